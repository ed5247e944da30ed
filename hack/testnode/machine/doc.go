// Package machine runs an ostree host as a virtual machine: kernel, initramfs and systemd are the image's own, from a
// disk image.
//
//	node's sysroot -> disk image -> QEMU: kernel, initramfs with Ignition, systemd -> commands over a serial port
//
// The package plays the boot loader; the rest is the image's. QEMU emulates unless KVM is asked for: a boot takes half
// a minute then.
package machine
