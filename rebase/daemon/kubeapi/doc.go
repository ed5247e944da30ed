// Package kubeapi is the agent's client of the Kubernetes API: as much of it as one node needs, so that the program
// every node carries stays small.
//
//	rest.Config, node name -> Client: own Node and MachineConfigNode, configs, policies -> objects; Wake on a change
package kubeapi
