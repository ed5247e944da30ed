// Package coldstart tests that the control plane's own registries serve nodes that boot while there is no API: the
// shipped units of registry and agent on a systemd host, which pulls through its forwarder.
//
//	registry node-config -> host with dayone-registry and the agent -> power off, power on -> image pulled and booted
package coldstart
