package firstboot

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/containers/image/v5/docker/reference"
	ign35 "github.com/coreos/ignition/v2/config/v3_5/types"

	"dayone.dev/dayone/manifests/machineconfig"
	"dayone.dev/dayone/rebase/deploy/pull"
	"dayone.dev/dayone/rebase/nodedisk"
	"dayone.dev/dayone/registry/poolaccounts"
)

// Paths of what makes a node trust the registry of the bootstrap host. Sources: containers-registries.conf.d(5),
// containers-certs.d(5), ostree-ext (auth).
const (
	MirrorPath = "/etc/containers/registries.conf.d/50-dayone-bootstrap.conf"
	AuthPath   = nodedisk.OSTreeAuth
	// attachmentsPath says that signatures of the mirrors' images are beside them.
	attachmentsPath = "/etc/containers/registries.d/dayone-bootstrap.yaml"
	// PullAuthPath has the bootstrap registry's credential as it was served. The agent merges it into what is read;
	// Ignition could only replace AuthPath, and what an admin has there.
	PullAuthPath = "/etc/dayone/pull-auth.json"
	certsDir     = "/etc/containers/certs.d"
)

// Mirror sends pulls by digest of one repository to another place first.
type Mirror struct {
	Repository string // the final name: registry.example.com/ocp/master-os
	Location   string // where it is during bootstrap: 192.168.77.1:5000/ocp/master-os
}

// IgnitionOptions say what a new node gets beside its rendered config. None of it is in the image.
type IgnitionOptions struct {
	Config  Config
	Mirrors []Mirror
	// RegistryCA is the PEM certificate of every mirror host's CA; empty: the system's CAs count.
	RegistryCA []byte
	// PullAuth is the content of a containers-auth.json; empty: anonymous.
	PullAuth []byte
	// RegistryAccount is the same for the registries of the control plane, until the agent has the node's own account;
	// empty: there are none, or PullAuth has it.
	RegistryAccount []byte
	// SignaturePolicy is a containers-policy.json that the node's image must satisfy; empty: Config decides.
	SignaturePolicy []byte
	// DaemonURL is where Ignition fetches the agent; empty: it is in the disk image.
	DaemonURL string
	// DaemonSHA512 is the agent's hash in hex, with DaemonURL.
	DaemonSHA512 string
}

// Ignition makes the config (spec 3.5) that the config server merges last into what it serves.
func Ignition(o IgnitionOptions) (ign35.Config, error) {
	o.Config.Version = cmp.Or(o.Config.Version, configVersion)
	if len(o.SignaturePolicy) > 0 {
		o.Config.SignaturePolicy = pull.ServedPolicyPath
	}
	if err := o.Config.Validate(); err != nil {
		return ign35.Config{}, fmt.Errorf("first boot config: %w", err)
	}
	settings, err := json.MarshalIndent(o.Config, "", "  ")
	if err != nil {
		return ign35.Config{}, fmt.Errorf("first boot config: %w", err)
	}
	files := []ign35.File{file(ConfigPath, 0o644, append(settings, '\n'))}
	trust, err := TrustFiles(o.Mirrors, o.RegistryCA)
	if err != nil {
		return ign35.Config{}, err
	}
	files = append(files, trust...)
	if len(o.PullAuth) > 0 {
		files = append(files, file(PullAuthPath, 0o600, o.PullAuth))
	}
	if len(o.RegistryAccount) > 0 {
		files = append(files, file(poolaccounts.AuthPath, 0o600, o.RegistryAccount))
	}
	if len(o.SignaturePolicy) > 0 {
		files = append(files, file(pull.ServedPolicyPath, 0o644, o.SignaturePolicy))
	}
	if o.DaemonURL != "" {
		if o.DaemonSHA512 == "" {
			return ign35.Config{}, errors.New("first boot: the agent's URL comes without its SHA-512")
		}
		files = append(files, fetched(DaemonPath, 0o755, o.DaemonURL, "sha512-"+o.DaemonSHA512))
	}
	unit, enabled := unitText(), true
	return ign35.Config{
		Ignition: ign35.Ignition{Version: ign35.MaxVersion.String()},
		Storage:  ign35.Storage{Files: files},
		Systemd:  ign35.Systemd{Units: []ign35.Unit{{Name: UnitName, Contents: &unit, Enabled: &enabled}}},
	}, nil
}

// Program lets Ignition fetch a program by its SHA-512 in hex.
func Program(path, url, sha512 string) ign35.Config {
	return ign35.Config{Ignition: ign35.Ignition{Version: ign35.MaxVersion.String()},
		Storage: ign35.Storage{Files: []ign35.File{fetched(path, 0o755, url, "sha512-"+sha512)}}}
}

// TrustFiles are the files that send a node's pulls to the mirrors, let it find signatures there and make it trust
// their CA.
func TrustFiles(list []Mirror, ca []byte) ([]ign35.File, error) {
	mirrors, hosts, err := mirrorDropIn(list)
	if err != nil {
		return nil, err
	}
	var files []ign35.File
	if mirrors != "" {
		files = append(files, file(MirrorPath, 0o644, []byte(mirrors)),
			file(attachmentsPath, 0o644, pull.Attachments(hosts...)))
	}
	if len(ca) > 0 {
		for _, host := range hosts {
			// World-readable: rpm-ostree's fetcher runs without privileges.
			files = append(files, file(certsDir+"/"+host+"/ca.crt", 0o644, ca))
		}
	}
	return files, nil
}

func file(path string, mode int, content []byte) ign35.File {
	return newFile(path, mode, machineconfig.Inline(content))
}

func fetched(path string, mode int, url, hash string) ign35.File {
	return newFile(path, mode, ign35.Resource{Source: &url, Verification: ign35.Verification{Hash: &hash}})
}

func newFile(path string, mode int, from ign35.Resource) ign35.File {
	overwrite := true
	return ign35.File{
		Node:          ign35.Node{Path: path, Overwrite: &overwrite},
		FileEmbedded1: ign35.FileEmbedded1{Mode: &mode, Contents: from},
	}
}

// mirrorDropIn writes the registries.conf.d file and lists the mirrors' hosts, each once.
func mirrorDropIn(mirrors []Mirror) (text string, hosts []string, err error) {
	var b strings.Builder
	seen := map[string]bool{}
	for _, m := range mirrors {
		for _, name := range []string{m.Repository, m.Location} {
			named, err := reference.ParseNamed(name)
			if err != nil || !reference.IsNameOnly(named) {
				return "", nil, fmt.Errorf("first boot: mirror %q is no repository name (host/path without tag or digest)", name)
			}
			if name == m.Location && !seen[reference.Domain(named)] {
				seen[reference.Domain(named)] = true
				hosts = append(hosts, reference.Domain(named))
			}
		}
		fmt.Fprintf(&b,
			"[[registry]]\nlocation = %q\n\n[[registry.mirror]]\nlocation = %q\npull-from-mirror = \"digest-only\"\n\n",
			m.Repository, m.Location)
	}
	if b.Len() == 0 {
		return "", nil, nil
	}
	return "# Images of this cluster come from the bootstrap host until their final registry has them.\n" +
		strings.TrimSuffix(b.String(), "\n"), hosts, nil
}

// UnitName is the systemd unit that runs first boot.
const UnitName = "dayone-firstboot.service"

// DaemonPath is where Ignition puts the agent; /usr/local is part of /var on an ostree host.
const DaemonPath = "/usr/local/bin/dayone-daemon"

// sandbox is that of dayone-agent.service, which starts the same programs, and says why it has no more lines.
const sandbox = `RestrictAddressFamilies=AF_UNIX AF_INET AF_INET6 AF_NETLINK
RestrictRealtime=yes
LockPersonality=yes
SystemCallArchitectures=native
SystemCallFilter=~@clock @cpu-emulation @module @obsolete @raw-io @reboot @swap
SystemCallErrorNumber=EPERM
CapabilityBoundingSet=~CAP_SYS_TIME CAP_SYS_MODULE CAP_SYSLOG CAP_SYS_BOOT CAP_SYS_RAWIO CAP_SYS_PACCT
CapabilityBoundingSet=~CAP_SYS_TTY_CONFIG CAP_WAKE_ALARM CAP_BLOCK_SUSPEND CAP_LEASE CAP_AUDIT_CONTROL CAP_AUDIT_READ`

// unitText gives the unit's text. The conditions are of the kind that small init systems know, too. /sysroot is on
// every host that ostree or bootc booted, /run/ostree-booted is not on bootc's with composefs.
func unitText() string {
	return strings.Join([]string{
		"[Unit]",
		"Description=Boot this node into the OS image of its config",
		"Documentation=https://dayone.dev/docs/operators/node.md",
		"ConditionPathExists=/sysroot",
		"ConditionPathExists=" + ConfigPath,
		"ConditionPathExists=!" + StateDir + "/done",
		"Wants=network-online.target",
		"After=network-online.target",
		"",
		"[Service]",
		"Type=exec",
		"ExecStart=" + DaemonPath + " firstboot",
		"Restart=on-failure",
		"RestartSec=5",
		"SyslogIdentifier=dayone-firstboot",
		"StandardOutput=journal+console",
		"StandardError=journal+console",
		sandbox,
		"",
		"[Install]",
		"WantedBy=multi-user.target",
		"",
	}, "\n")
}
