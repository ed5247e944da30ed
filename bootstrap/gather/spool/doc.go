// Package spool keeps the last log bundle of a bootstrap host on another machine, to which that host sends it.
//
//	bootstrap host: gather -> Sender -> HTTPS PUT -> Receiver -> log-bundle-spool.tar.gz (+ .lost.json on silence)
package spool
