// Package kubeapi is the agent's client of the Kubernetes API: as much of it as one node needs, so that the program
// every node carries stays small.
//
//	rest.Config, name of the node → Client: own Node (metadata only) and MachineConfigNode, rendered configs, disruption policies, ControllerConfig → Wake: the node is asked for something
package kubeapi
