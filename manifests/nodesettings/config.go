package nodesettings

import (
	"slices"
	"strings"

	ign35 "github.com/coreos/ignition/v2/config/v3_5/types"

	"dayone.dev/dayone/installconfig"
	"dayone.dev/dayone/manifests/machineconfig"
)

// Paths of the files. All lie in /etc, where an image can bring and change them.
const (
	// PullSecretPath has the pull secret. The agent merges it into what image pulls read; the kubelet reads it through
	// KubeletAuthPath.
	PullSecretPath = "/etc/dayone/pull-secret.json"
	// KubeletAuthPath is where the kubelet looks for credentials (Kubernetes, pkg/credentialprovider), on the node's own
	// disk: a line of tmpfiles.d links it to PullSecretPath, unless the node has a file there.
	KubeletAuthPath = "/var/lib/kubelet/config.json"
	linkPath        = "/etc/tmpfiles.d/dayone-pull-secret.conf"
	anchorPath      = anchors + "/dayone-install-config.crt"
	anchors         = "/etc/pki/ca-trust/source/anchors"
	// proxyPath gives every service of the system the variables (systemd-system.conf(5)).
	proxyPath = "/etc/systemd/system.conf.d/10-dayone-proxy.conf"
)

// coreUser is the user of the installer's sshKey.
const coreUser = "core"

// config is what one pool gets.
type config struct {
	ignition        ign35.Config
	fips            bool
	kernelArguments []string
}

func (c config) empty() bool {
	return len(c.ignition.Storage.Files) == 0 && len(c.ignition.Passwd.Users) == 0 && !c.fips &&
		len(c.kernelArguments) == 0
}

// settingsOf are those of a pool's nodes.
func settingsOf(n installconfig.NodeSettings, pool string) config {
	c := config{fips: n.FIPS}
	c.ignition.Ignition.Version = machineconfig.Version
	for _, bring := range []func(installconfig.NodeSettings, *config){pullSecret, sshKeys, trustBundle, proxy} {
		bring(n, &c)
	}
	if slices.Contains(n.SingleThread, pool) {
		// Both, as the installer sets them: the second is for ppc64le.
		c.kernelArguments = []string{"nosmt", "smt-enabled=0"}
	}
	return c
}

func (c *config) file(path string, mode int, content string) {
	yes := true
	c.ignition.Storage.Files = append(c.ignition.Storage.Files, ign35.File{
		Node:          ign35.Node{Path: path, Overwrite: &yes},
		FileEmbedded1: ign35.FileEmbedded1{Mode: &mode, Contents: machineconfig.Inline([]byte(content))},
	})
}

func pullSecret(n installconfig.NodeSettings, c *config) {
	if len(n.PullSecret) == 0 {
		return
	}
	c.file(PullSecretPath, 0o600, string(n.PullSecret))
	// A relative target: tools that see the node's root below another directory follow it, too.
	up := strings.Repeat("../", strings.Count(KubeletAuthPath, "/")-1)
	c.file(linkPath, 0o644, "# The kubelet pulls with the cluster's pull secret.\nL "+KubeletAuthPath+" - - - - "+
		up+strings.TrimPrefix(PullSecretPath, "/")+"\n")
}

func sshKeys(n installconfig.NodeSettings, c *config) {
	if len(n.SSHKeys) == 0 {
		return
	}
	user := ign35.PasswdUser{Name: coreUser}
	for _, key := range n.SSHKeys {
		user.SSHAuthorizedKeys = append(user.SSHAuthorizedKeys, ign35.SSHAuthorizedKey(key))
	}
	c.ignition.Passwd.Users = []ign35.PasswdUser{user}
}

// trustUnit makes the system's bundle of trusted CAs again on each boot, before anything uses the network. The second
// program is Debian's, which has another directory for such files.
const trustUnit = `[Unit]
Description=Trust the CAs of install-config.yaml
Documentation=https://dayone.dev/docs/users/install-config.md
Before=network.target crio.service kubelet.service dayone-firstboot.service

[Service]
Type=oneshot
RemainAfterExit=yes
ExecStart=/bin/sh -c 'if command -v update-ca-trust >/dev/null; then exec update-ca-trust extract; fi; ` +
	`exec update-ca-certificates --localcertsdir ` + anchors + `'

[Install]
WantedBy=multi-user.target
`

func trustBundle(n installconfig.NodeSettings, c *config) {
	if len(n.TrustBundle) == 0 {
		return
	}
	c.file(anchorPath, 0o644, string(n.TrustBundle))
	text, yes := trustUnit, true
	c.ignition.Systemd.Units = append(c.ignition.Systemd.Units,
		ign35.Unit{Name: "dayone-ca-trust.service", Contents: &text, Enabled: &yes})
}

func proxy(n installconfig.NodeSettings, c *config) {
	variables := ProxyVariables(n.Proxy)
	if len(variables) == 0 {
		return
	}
	var b strings.Builder
	b.WriteString("[Manager]\n")
	// A percent sign begins one of systemd's specifiers.
	quote := strings.NewReplacer(`\`, `\\`, `"`, `\"`, "%", "%%")
	for _, v := range variables {
		b.WriteString(`DefaultEnvironment="` + quote.Replace(v) + "\"\n")
	}
	c.file(proxyPath, 0o600, b.String()) // an address may hold a password
}
