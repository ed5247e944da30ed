// Package daemon is the agent on a node: it brings the node to the config and image that its annotations name, and says
// how far it is.
//
//	node annotations, rendered configs → state table, one file per state → drain, stage or write, act or reboot, verify, uncordon → Done
//
// A step looks at what is: the annotations, the journal on disk, the deployments. So it may be killed, or lose its
// power, anywhere, and goes on. In layered mode it writes no files and no units but where a change needs no reboot:
// then the running system gets them, too.
package daemon
