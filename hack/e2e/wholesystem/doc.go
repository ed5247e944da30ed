// Package wholesystem holds the test of Day 2 as a whole: ostree hosts that run the real agent under systemd, as Node
// objects of a real API server with dayone's render, node, drain and policy controllers, whose process can be killed.
//
//	MachineConfigs -> rendered config -> plan -> agents: drain, stage, reboot, verify, uncordon -> pool updated
package wholesystem
