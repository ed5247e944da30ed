// Package assets holds files that ship inside the binaries.
//
//	sample install directory -> Sample -> a copy on disk for make demo, tests and newcomers
//	systemd unit of the node agent, rights of kubelets -> AgentUnit, AgentKubeletRights
package assets
