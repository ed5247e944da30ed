// Package strangers bounds the connections of clients that have not shown yet who they are.
//
//	net.Listener, limits -> Listener -> connections; Admit takes one out when its client has shown an account or token
package strangers
