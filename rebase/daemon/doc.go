// Package daemon is the agent on a node: it brings the node to the config and image that its annotations name, and says
// how far it is.
//
//	annotations, journal, disk -> observed -> the state's function -> outcome -> record, journal, reboot
//
// The state table (states.go) has one function per state, one file each, all with the same signature. A state starts
// from what is observed, not from what an earlier one left in memory. So the agent may be killed, or lose its power,
// anywhere, and goes on. In layered mode it writes no files and no units, except where a change needs no reboot: then
// the running system gets them, too.
package daemon
