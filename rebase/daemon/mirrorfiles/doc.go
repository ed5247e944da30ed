// Package mirrorfiles sends a node's pulls to its own forwarder, and lets them in there.
//
//	Mirror -> registries.conf.d, certs.d, registries.d, account -> programs that pull
package mirrorfiles
