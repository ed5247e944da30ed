// Package statuspage answers how far a bootstrap is: as JSON on a socket of its host, and as a page that asks again
// by itself.
//
//	events, log lines -> Collector -> Status, board -> http.Handler -> unix socket, HTTPS
package statuspage
