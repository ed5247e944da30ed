// Package mcostandin plays the unmodified Machine Config Operator, its node agents included, in a cluster of a test.
//
//	API objects -> dayone's renderer and builder in MCO's place -> rendered pools, seeded builds -> annotated nodes
package mcostandin
