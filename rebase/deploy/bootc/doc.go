// Package bootc deploys with bootc.
//
//	image digest -> bootc switch -> staged deployment -> bootc status -> deploy.Status
package bootc
