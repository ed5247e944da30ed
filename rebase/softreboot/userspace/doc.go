// Package userspace reads from a node what the decision about a soft reboot depends on, and sees afterwards whether the
// new userspace is whole.
//
//	deployments, /proc, versions of programs -> Node.Facts -> softreboot.Facts; after the switch -> Mend, Check
package userspace
