// Package rpmostree deploys with rpm-ostree.
//
//	image digest -> rpm-ostree rebase, kargs -> staged deployment -> rpm-ostree status -> deploy.Status
package rpmostree
