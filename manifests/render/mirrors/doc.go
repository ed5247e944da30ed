// Package mirrors turns mirror sets and the cluster's image settings into the files by which a node's container tools
// find images.
//
//	ICSP, IDMS, ITMS, Image -> mirrors and scopes by source -> registries.conf, policy.json, search drop-in
package mirrors
