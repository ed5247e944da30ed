// Package wholesystem holds the test of Day 2 as a whole: ostree hosts that run the real agent under systemd, as Node objects of a real
// API server with dayone's node and drain controllers.
//
//	pool's target -> node controller -> agent on each host -> drain, stage, reboot or act, verify, uncordon -> pool updated
package wholesystem
