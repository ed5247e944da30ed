// Package dial makes the connections of registries' clients: whom they trust, and how long they wait.
//
//	Options (CA file, limits) -> http.Transport
package dial
