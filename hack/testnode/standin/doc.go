// Package standin plays rpm-ostree and bootc on test nodes: a skin with their command lines, messages, refusals and
// JSON over real libostree. It is neither.
//
//	argv -> flags -> image proxy's part (registry -> OCI layout) -> import -> ostree admin deploy --stage -> JSON
package standin
