package firstboot

import "strings"

// UnitName is the systemd unit that runs first boot.
const UnitName = "dayone-firstboot.service"

// DaemonPath is where Ignition puts the agent; /usr/local is part of /var on an ostree host.
const DaemonPath = "/usr/local/bin/dayone-daemon"

// Unit gives the unit's text. With gate, nothing that needs the node's final OS (kubelet and what it stands for) starts
// before first boot is done; the boot's start transaction then waits as long. The conditions are of the kind that small
// init systems know, too.
func Unit(gate bool) string {
	lines := []string{
		"[Unit]",
		"Description=Boot this node into the OS image of its config",
		"Documentation=https://dayone.dev/docs/operators/node.md",
		"ConditionPathExists=/run/ostree-booted",
		"ConditionPathExists=" + ConfigPath,
		"ConditionPathExists=!" + StateDir + "/done",
		"Wants=network-online.target",
		"After=network-online.target",
	}
	if gate {
		lines = append(lines, "Before=kubelet.service kubelet-dependencies.target crio.service")
	}
	lines = append(lines, "", "[Service]")
	if gate {
		lines = append(lines, "Type=oneshot", "RemainAfterExit=yes", "TimeoutStartSec=infinity")
	} else {
		lines = append(lines, "Type=exec")
	}
	return strings.Join(append(lines,
		"ExecStart="+DaemonPath+" firstboot",
		"Restart=on-failure",
		"RestartSec=5",
		"SyslogIdentifier=dayone-firstboot",
		"StandardOutput=journal+console",
		"StandardError=journal+console",
		"",
		"[Install]",
		"WantedBy=multi-user.target",
		""), "\n")
}
