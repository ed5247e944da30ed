// Package replica keeps a registry filled with what its cluster wants: it fetches missing images from other registries
// of the cluster, by digest, and lets go what nobody wants any more. It needs no API: what it works by are files.
//
//	wanted list + addresses of peers -> what the storage lacks -> blobs of any peer, verified -> storage -> report
package replica
