// Package openshift is dayone's part on an installer's bootstrap node: it builds between MCO's first and second
// rendering.
//
//	first rendering -> image builds -> annotated MachineOSConfigs -> second rendering -> API objects -> test pull ->
//	  gate opens -> hand-over
package openshift
