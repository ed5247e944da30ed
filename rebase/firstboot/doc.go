// Package firstboot brings a new node from its disk image to the OS image of its config, with one reboot.
//
//	encapsulated config -> preflight -> stage -> reboot -> booted digest == wanted -> currentconfig, currentimage, record
package firstboot
