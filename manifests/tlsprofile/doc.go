// Package tlsprofile reads a TLSSecurityProfile: the lowest version of TLS and the cipher suites that it allows, as Go
// names them.
//
//	TLSSecurityProfile -> the profile's text -> version, cipher suites, names that Go does not have
package tlsprofile
