// Package gather writes a log bundle of a bootstrap host or a cluster in the layout of openshift-install gather
// bootstrap: bounded, and without secrets.
//
//	state directory, install directory, journals, host | cluster -> scrub -> bounded files -> log-bundle-<id>.tar.gz
package gather
