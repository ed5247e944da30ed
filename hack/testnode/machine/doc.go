// Package machine runs an ostree host as a virtual machine: boot loader, kernel, initramfs and systemd are on its disk.
//
//	node's sysroot -> disk image -> QEMU: UEFI, GRUB with ostree's boot entries, kernel, initramfs with Ignition, systemd
//	-> commands over a serial port
//
// Nothing is given from outside but the firmware and the pointer config. QEMU emulates unless KVM is asked for: a boot
// takes most of a minute then.
package machine
