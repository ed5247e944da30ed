// Package ostree deploys with the plain ostree program: own import of the image, libostree's staged deployment and its
// /etc merge.
//
//	image digest -> pull.Import -> ostree admin deploy --stage -> ostree admin status, origin files -> deploy.Status
package ostree
