// Package conformance runs the official conformance tests of the OCI distribution specification against the embedded
// registry.
//
//	suite/go.mod -> program, built once per version -> registry over TLS -> results, test by test
package conformance
