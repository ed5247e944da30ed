// Package cluster holds the objects that dayone installs in a cluster.
//
//	embedded YAML + Options -> CRDs, Objects -> applied by dayone cluster install
package cluster
