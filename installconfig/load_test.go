package installconfig

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"dayone.dev/dayone/installconfig/report"
)

const sample = `# the cluster
apiVersion: v1
baseDomain: example.com
metadata:
  name: demo
# images of our own
onClusterLayering:
  flow: standalone
  baseImage: registry.example.com/ocp/base-os:1
  pools:
  - name: master
  - name: worker # later
  bootstrapRegistry:
    host: 192.0.2.1

# keep me
sshKey: |
  ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAILaofmw0DPom6sKyqmPLNu7RPSBkcAmEUZL/N8RmDDFI core@example.com
pullSecret: '{"auths":{"registry.example.com":{"auth":"YTpi"}}}'
`

func TestParseFillsDefaults(t *testing.T) {
	doc, err := parse([]byte(sample))
	require.NoError(t, err)
	assert.Equal(t, Cluster{Name: "demo", BaseDomain: "example.com"}, doc.Cluster)
	c := doc.Config
	require.NotNil(t, c)
	assert.Equal(t, defaultRegistryPort, c.BootstrapRegistry.Port)
	assert.Equal(t, ConfigServer{Host: "192.0.2.1", Port: 22623}, c.ConfigServer)
	assert.Equal(t, "layering", c.LayeringDir)
	assert.Equal(t, 30*time.Minute, time.Duration(c.Build.Timeout))
	assert.Equal(t, []BuildAt{BuildAtBootstrap, BuildAtCluster}, []BuildAt{c.Pools[0].BuildAt, c.Pools[1].BuildAt})
	assert.Equal(t, LogSpool{}, c.LogSpool, "no log spool is asked for")
}

func TestParseRefuses(t *testing.T) {
	cases := []struct{ name, from, to, rule, path string }{
		{"an unknown key", "  baseImage:", "  baseimage:", "unknown-key", "onClusterLayering.baseimage"},
		{"an unknown key in a pool", "  - name: worker", "  - nam: worker", "unknown-key",
			"onClusterLayering.pools[1].nam"},
		{"a key that stands twice", "  flow: standalone\n", "  flow: standalone\n  flow: standalone\n",
			"repeated-key", "onClusterLayering.flow"},
		{"a list where a mapping is wanted", "    host: 192.0.2.1\n", "  - host\n", "wrong-type",
			"onClusterLayering.bootstrapRegistry"},
		{"a number where a string is wanted", "flow: standalone", "flow: 7", "wrong-type", "onClusterLayering.flow"},
		{"a flow that does not exist", "flow: standalone", "flow: sideways", "flow", "onClusterLayering.flow"},
		{"a host without a dot", "host: 192.0.2.1", "host: localhost", "dotted-host",
			"onClusterLayering.bootstrapRegistry.host"},
		{"the node itself as a host", "host: 192.0.2.1", "host: 127.0.0.1", "loopback-host",
			"onClusterLayering.bootstrapRegistry.host"},
		{"the node itself by name", "host: 192.0.2.1", "host: localhost.localdomain", "loopback-host",
			"onClusterLayering.bootstrapRegistry.host"},
		{"a config server on the node itself", "  flow: standalone\n",
			"  flow: standalone\n  configServer: {host: 127.0.0.2}\n", "loopback-host", "onClusterLayering.configServer.host"},
		{"an SSH key that is none", "ssh-ed25519 AAAAC3", "ssh-ed25519 AAAAC4", "ssh-key", "sshKey"},
		{"an SSH key for which FIPS mode has no use", "sshKey:", "fips: true\nsshKey:", "ssh-key", "sshKey"},
		{"an IPv6 host", "host: 192.0.2.1", `host: "2001:db8::1"`, "dotted-host",
			"onClusterLayering.bootstrapRegistry.host"},
		{"a port out of range", "host: 192.0.2.1", "host: 192.0.2.1\n    port: 70000", "port",
			"onClusterLayering.bootstrapRegistry.port"},
		{"a pool that is named twice", "- name: worker", "- name: master", "pool-twice",
			"onClusterLayering.pools[1].name"},
		{"a pool name that is none", "- name: worker", "- name: Worker_1", "pool-name",
			"onClusterLayering.pools[1].name"},
		{"MOSCs in the installer's directory", "  flow: standalone\n", "  layeringDir: openshift\n", "layering-dir",
			"onClusterLayering.layeringDir"},
		{"a directory outside", "  flow: standalone\n", "  layeringDir: ../x\n", "inside-directory",
			"onClusterLayering.layeringDir"},
		{"a time limit without unit", "  flow: standalone\n", "  build: {timeout: \"30\"}\n", "wrong-type",
			"onClusterLayering.build.timeout"},
		{"the install directory itself", "  flow: standalone\n", "  layeringDir: ./\n", "layering-dir",
			"onClusterLayering.layeringDir"},
		{"below the installer's directory", "  flow: standalone\n", "  layeringDir: ./manifests/x/\n", "layering-dir",
			"onClusterLayering.layeringDir"},
		{"a mistyped IPv4 address", "host: 192.0.2.1", "host: 999.0.2.1", "dotted-host",
			"onClusterLayering.bootstrapRegistry.host"},
		{"an address that is no host's", "host: 192.0.2.1", "host: 0.0.0.0", "dotted-host",
			"onClusterLayering.bootstrapRegistry.host"},
		{"port 0", "host: 192.0.2.1", "host: 192.0.2.1\n    port: 0", "port",
			"onClusterLayering.bootstrapRegistry.port"},
		{"a log spool without a token", "  flow: standalone\n",
			"  flow: standalone\n  logSpool: {url: \"https://192.0.2.9:9601\"}\n", "log-spool-token",
			"onClusterLayering.logSpool.tokenFile"},
		{"a log spool without an address", "  flow: standalone\n",
			"  flow: standalone\n  logSpool: {tokenFile: a.token}\n", "log-spool-url", "onClusterLayering.logSpool.url"},
		{"a log spool without TLS", "  flow: standalone\n",
			"  flow: standalone\n  logSpool: {url: \"http://a.example.com\", tokenFile: a.token}\n", "log-spool-url",
			"onClusterLayering.logSpool.url"},
		{"a log spool's password in its URL", "  flow: standalone\n",
			"  flow: standalone\n  logSpool: {url: \"https://a:b@a.example.com\", tokenFile: a.token}\n", "log-spool-url",
			"onClusterLayering.logSpool.url"},
		{"a token elsewhere", "  flow: standalone\n",
			"  flow: standalone\n  logSpool: {url: \"https://a.example.com\", tokenFile: ../a.token}\n", "inside-directory",
			"onClusterLayering.logSpool.tokenFile"},
		{"a token that bundles would show", "  flow: standalone\n",
			"  flow: standalone\n  logSpool: {url: \"https://a.example.com\", tokenFile: secret.txt}\n", "log-spool-token",
			"onClusterLayering.logSpool.tokenFile"},
		{"a bundle every second", "  flow: standalone\n",
			"  flow: standalone\n  logSpool: {url: \"https://a.example.com\", tokenFile: a.token, every: 1s}\n",
			"log-spool-every", "onClusterLayering.logSpool.every"},
		{"a size that is none", "  flow: standalone\n", "  build: {disk: much}\n", "wrong-type",
			"onClusterLayering.build.disk"},
		{"a config server without a dot", "  flow: standalone\n", "  flow: standalone\n  configServer: {host: boot}\n",
			"dotted-host", "onClusterLayering.configServer.host"},
		{"two sources of one Secret", "  flow: standalone\n",
			"  flow: standalone\n  registry: {pushSecret: a, pushAuthFile: a.json}\n", "one-secret",
			"onClusterLayering.registry.pushAuthFile"},
		{"credentials elsewhere", "  flow: standalone\n", "  flow: standalone\n  registry: {pushAuthFile: ../a.json}\n",
			"inside-directory", "onClusterLayering.registry.pushAuthFile"},
		{"a base's credentials elsewhere", "  flow: standalone\n",
			"  flow: standalone\n  registry: {baseImagePullAuthFile: ../a.json}\n", "inside-directory",
			"onClusterLayering.registry.baseImagePullAuthFile"},
		{"a CA elsewhere", "  flow: standalone\n", "  flow: standalone\n  registry: {caFile: ../ca.crt}\n",
			"inside-directory", "onClusterLayering.registry.caFile"},
		{"a signature policy elsewhere", "  flow: standalone\n",
			"  flow: standalone\n  signaturePolicyFile: ../policy.json\n", "inside-directory",
			"onClusterLayering.signaturePolicyFile"},
		{"a signing key without its passphrase", "  flow: standalone\n",
			"  flow: standalone\n  signing: {keyFile: cosign.key}\n", "key-and-passphrase", "onClusterLayering.signing"},
		{"a signing key elsewhere", "  flow: standalone\n",
			"  flow: standalone\n  signing: {keyFile: /etc/a.key, passphraseFile: a.passphrase}\n", "inside-directory",
			"onClusterLayering.signing.keyFile"},
		{"a passphrase that is not named as one", "  flow: standalone\n",
			"  flow: standalone\n  signing: {keyFile: a.key, passphraseFile: p}\n", "secret-name",
			"onClusterLayering.signing.passphraseFile"},
		{"a public key elsewhere", "  flow: standalone\n",
			"  flow: standalone\n  signing: {publicKeyFiles: [old.pub, ../new.pub]}\n", "inside-directory",
			"onClusterLayering.signing.publicKeyFiles[1]"},
		{"two Containerfiles", "- name: worker # later\n",
			"- name: worker\n    containerfile: a\n    containerfilePath: a\n" +
				"    pushSpec: registry.example.com/a/b:1\n  registry: {pushSecret: a}\n",
			"one-containerfile", "onClusterLayering.pools[1].containerfilePath"},
		{"a status page on the registry's port", "  flow: standalone\n",
			"  flow: standalone\n  statusPage: {port: 9500}\n", "port-twice", "onClusterLayering.statusPage.port"},
		{"a status page on the config server's port", "  flow: standalone\n",
			"  flow: standalone\n  statusPage: {port: 22623}\n", "port-twice", "onClusterLayering.statusPage.port"},
		{"one port for both services", "host: 192.0.2.1", "host: 192.0.2.1\n    port: 22623", "port-twice",
			"onClusterLayering.bootstrapRegistry.port"},
		{"a time limit of nothing", "  flow: standalone\n", "  build: {timeout: 0s}\n", "positive",
			"onClusterLayering.build.timeout"},
		{"generation without a registry", "- name: worker", "- name: worker\n    containerfile: FROM configs\n" +
			"  registry: {type: external}\n  #", "registry-repository", "onClusterLayering.registry.repository"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			text := strings.Replace(sample, c.from, c.to, 1)
			require.NotEqual(t, sample, text)
			_, err := parse([]byte(text))
			require.Error(t, err)
			found := report.Of(err)
			require.NotEmpty(t, found, "%v", err)
			assert.Equal(t, c.rule, found[0].Rule)
			assert.Equal(t, c.path, found[0].Path)
			assert.Equal(t, FileName, found[0].File)
			assert.Positive(t, found[0].Line)
		})
	}
}

func TestParseRefusesSecondDocument(t *testing.T) {
	_, err := parse([]byte(strings.Replace(sample, "onClusterLayering:", "---\nonClusterLayering:", 1)))
	require.Len(t, report.Of(err), 1, "%v", err)
	assert.Equal(t, "one-document", report.Of(err)[0].Rule)
	_, err = parse([]byte("--- # the only one\n" + sample + "...\n"))
	assert.NoError(t, err)
}

// TestParseAliases takes an alias, and refuses those that have no end or grow without bound.
func TestParseAliases(t *testing.T) {
	pyramid := "a: &a [x,x,x,x,x,x,x,x,x]\n"
	for c := 'b'; c < 'k'; c++ {
		pyramid += fmt.Sprintf("%c: &%c [%s]\n", c, c, strings.TrimSuffix(strings.Repeat(fmt.Sprintf("*%c,", c-1), 9), ","))
	}
	for name, text := range map[string]string{"an anchor that holds itself": "a: &a [*a]\n", "a pyramid": pyramid} {
		t.Run(name, func(t *testing.T) {
			_, err := parse([]byte(sample + text))
			require.Len(t, report.Of(err), 1)
			assert.Equal(t, "yaml", report.Of(err)[0].Rule)
			assert.NotEmpty(t, report.Of(err)[0].Next)
		})
	}
}

func TestLayeringDirHasOneSpelling(t *testing.T) {
	for _, written := range []string{"layering/", "./layering", "a/../layering"} {
		doc, err := parse([]byte(strings.Replace(sample, "  flow: standalone\n", "  layeringDir: "+written+"\n",
			1)))
		require.NoError(t, err)
		assert.Equal(t, "layering", doc.Config.LayeringDir, written)
	}
}

func TestStrippedRefuses(t *testing.T) {
	for _, c := range []struct{ name, text string }{
		{"a value that others refer to", "onClusterLayering:\n  pools: [{name: &m master}]\n" +
			"  bootstrapRegistry: {host: 192.0.2.1}\nname: *m\n"},
		{"a brace at the left margin", "onClusterLayering: {\n  pools: [{name: master}], " +
			"bootstrapRegistry: {host: 192.0.2.1}\n}\na: 1\n"},
	} {
		t.Run(c.name, func(t *testing.T) {
			doc, err := parse([]byte(c.text))
			require.NoError(t, err)
			_, err = doc.stripped()
			require.Len(t, report.Of(err), 1, "%v", err)
			assert.Equal(t, "layout", report.Of(err)[0].Rule)
		})
	}
}

func TestParseRefusesNonMapping(t *testing.T) {
	for _, c := range []struct{ name, text, rule string }{{"an empty file", "", "empty"}, {"a list", "- a\n", "yaml"},
		{"broken YAML", "a: [\n", "yaml"}, {"plain text", "hello", "yaml"}} {
		t.Run(c.name, func(t *testing.T) {
			_, err := parse([]byte(c.text))
			require.NotEmpty(t, report.Of(err), "%v", err)
			assert.Equal(t, c.rule, report.Of(err)[0].Rule)
		})
	}
}

func TestParseNamesTheLineOfBrokenYAML(t *testing.T) {
	for _, c := range []struct {
		name, text string
		line       int
	}{
		{"the first", "a: b: c\n", 1},
		{"the third", "a: b\nc: d\n  e: f\n", 3},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := parse([]byte(c.text))
			require.Len(t, report.Of(err), 1)
			found := report.Of(err)[0]
			assert.Equal(t, c.line, found.Line)
			assert.Equal(t, "mapping values are not allowed in this context", found.Message)
		})
	}
}

func TestStrippedKeepsOtherBytes(t *testing.T) {
	doc, err := parse([]byte(sample))
	require.NoError(t, err)
	got, err := doc.stripped()
	require.NoError(t, err)
	want := "# the cluster\napiVersion: v1\nbaseDomain: example.com\nmetadata:\n  name: demo\n\n# keep me\nsshKey: |\n" +
		"  ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAILaofmw0DPom6sKyqmPLNu7RPSBkcAmEUZL/N8RmDDFI " +
		"core@example.com\npullSecret: '{\"auths\":{\"registry.example.com\":{\"auth\":\"YTpi\"}}}'\n"
	assert.Equal(t, want, string(got))
}

func TestStrippedHandlesOtherLayouts(t *testing.T) {
	field := "onClusterLayering:\n  pools: [{name: master}]\n  bootstrapRegistry: {host: 192.0.2.1}\n"
	cases := []struct{ name, in, want string }{
		{"the field first", field + "baseDomain: example.com\n", "baseDomain: example.com\n"},
		{"the field last", "baseDomain: example.com\n" + field, "baseDomain: example.com\n"},
		{"no newline at the end", "baseDomain: example.com\n" + strings.TrimSuffix(field, "\n"),
			"baseDomain: example.com\n"},
		{"a comment inside", "a: 1\nonClusterLayering:\n# left margin\n  pools: [{name: master}]\n" +
			"  bootstrapRegistry: {host: 192.0.2.1}\nb: 2\n", "a: 1\nb: 2\n"},
		{"the whole in flow style", `{"a": 1, "onClusterLayering": {"pools": [{"name": "master"}], ` +
			`"bootstrapRegistry": {"host": "192.0.2.1"}}}`, "\"a\": 1\n"},
		{"no field at all", "a: 1\n", "a: 1\n"},
		{"carriage returns, too", "a: 1\r\nonClusterLayering:\r\n  pools: [{name: master}]\r\n" +
			"  bootstrapRegistry: {host: 192.0.2.1}\r\nb: 2\r\n", "a: 1\r\nb: 2\r\n"},
		{"a block scalar before it", "k: |\n  onClusterLayering:\n   x\n" + field, "k: |\n  onClusterLayering:\n   x\n"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			doc, err := parse([]byte(c.in))
			require.NoError(t, err)
			got, err := doc.stripped()
			require.NoError(t, err)
			assert.Equal(t, c.want, string(got))
		})
	}
}

func TestPrepareCanBeRepeated(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, FileName)
	require.NoError(t, os.WriteFile(file, []byte(sample), 0o640))
	first, err := Prepare(dir)
	require.NoError(t, err)
	assert.Equal(t, FlowStandalone, first.Config.Flow)
	left, err := os.ReadFile(file)
	require.NoError(t, err)
	assert.NotContains(t, string(left), Field)
	info, err := os.Stat(file)
	require.NoError(t, err)
	assert.Equal(t, os.FileMode(0o640), info.Mode().Perm())
	again, err := Prepare(dir)
	require.NoError(t, err)
	assert.Equal(t, first, again)
	info, err = os.Stat(SidecarPath(dir))
	require.NoError(t, err)
	assert.Equal(t, os.FileMode(0o600), info.Mode().Perm())
}

func TestPrepareWithoutField(t *testing.T) {
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, FileName), []byte("baseDomain: example.com\n"), 0o600))
	_, err := Prepare(dir)
	assert.ErrorIs(t, err, ErrNotPrepared)
}

func FuzzParse(f *testing.F) {
	f.Add([]byte(sample))
	f.Add([]byte("onClusterLayering: &a\n  pools: *a\n"))
	f.Fuzz(func(t *testing.T, raw []byte) {
		doc, err := parse(raw)
		if err != nil {
			return
		}
		if out, err := doc.stripped(); err == nil {
			again, err := parse(out)
			require.NoError(t, err)
			require.Nil(t, again.Config)
		}
	})
}

func TestPrepareKeepsTheOwner(t *testing.T) {
	if os.Geteuid() != 0 {
		require.Empty(t, os.Getenv("CI"), "needs root")
		t.Skip("needs root: only root gives files away")
	}
	dir := t.TempDir()
	file := filepath.Join(dir, FileName)
	require.NoError(t, os.WriteFile(file, []byte(sample), 0o640))
	require.NoError(t, os.Chown(file, 1234, 4321))
	_, err := Prepare(dir)
	require.NoError(t, err)
	info, err := os.Stat(file)
	require.NoError(t, err)
	owner := info.Sys().(*syscall.Stat_t)
	assert.Equal(t, []uint32{1234, 4321}, []uint32{owner.Uid, owner.Gid})
}

func TestUserProvisionedDNS(t *testing.T) {
	for _, c := range []struct {
		name, platform string
		want           bool
	}{
		{"enabled", "  aws: {region: x, userProvisionedDNS: Enabled}\n", true},
		{"disabled", "  aws: {region: x, userProvisionedDNS: Disabled}\n", false},
		{"not named", "  aws: {region: x}\n", false},
		{"of another platform", "  gcp: {userProvisionedDNS: Enabled}\n", false},
		{"a platform that is no mapping", "  aws: x\n", false},
	} {
		t.Run(c.name, func(t *testing.T) {
			doc, err := parse([]byte("baseDomain: example.com\nmetadata: {name: demo}\nplatform:\n" + c.platform))
			require.NoError(t, err)
			assert.Equal(t, c.want, doc.Cluster.UserProvisionedDNS)
		})
	}
}
