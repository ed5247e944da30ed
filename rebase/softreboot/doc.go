// Package softreboot decides whether a node may take its next deployment by a soft reboot, which restarts the userspace
// and leaves hardware and kernel running, or must reboot the hardware.
//
//	policy, versions, what differs between the booted and the staged deployment -> Facts.Decide -> soft, or hard: reason
//
// It is pure; package userspace reads the facts from a node.
package softreboot
