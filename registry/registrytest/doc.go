// Package registrytest gives tests a real registry on loopback with TLS, a push and a pull account, and the files that
// clients need.
//
//	testing.T -> registry.Server in a temporary directory -> Addr, CA file, certs.d, auth files
package registrytest
