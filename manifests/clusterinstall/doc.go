// Package clusterinstall installs dayone's part in a cluster, brings it up to date and removes it.
//
//	options -> Objects, in order -> server-side apply -> prune what the last version had -> wait until it works
package clusterinstall
