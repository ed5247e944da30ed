package installconfig

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"math/big"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"dayone.dev/dayone/installconfig/report"
)

// certificate is a PEM bundle of one, indented as in YAML.
func certificate(t *testing.T) string {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	c := &x509.Certificate{SerialNumber: big.NewInt(1), IsCA: true, NotAfter: time.Now().Add(time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, c, c, key.Public(), key)
	require.NoError(t, err)
	text := string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}))
	return "  " + strings.ReplaceAll(strings.TrimSpace(text), "\n", "\n  ") + "\n"
}

func TestEveryFieldOfTheInstallerHasARow(t *testing.T) {
	raw, err := os.ReadFile("testdata/installer-fields.txt")
	require.NoError(t, err)
	rows, used := InstallerFields(), map[string]bool{}
	for _, path := range lines(string(raw)) {
		if row := fieldFor(rows, path); assert.NotNil(t, row, "no row of InstallerFields says what happens to %s", path) {
			used[row.Path] = true
		}
	}
	for _, row := range rows {
		assert.True(t, used[row.Path], "the installer has no field for the row %s", row.Path)
		assert.NotEmpty(t, row.Standalone, row.Path)
		assert.Equal(t, row.Handling == refused, row.instead != "", "%s: a refused field has a next step", row.Path)
	}
	assert.Nil(t, fieldFor(rows, "sshkey"))
}

func TestNodes(t *testing.T) {
	more := "additionalTrustBundle: |\n" + certificate(t) + `additionalTrustBundlePolicy: Always
fips: false
proxy: {httpProxy: "http://user:word@192.0.2.8:3128", noProxy: "192.0.2.1, .example.org"}
networking: {machineNetwork: [{cidr: 192.0.2.0/24}], serviceNetwork: [172.30.0.0/16], networkType: Other}
imageDigestSources:
- {source: registry.example.com/ocp, mirrors: [mirror.example.org/ocp], sourcePolicy: NeverContactSource}
controlPlane: {name: master, hyperthreading: Disabled}
`
	doc, err := parse([]byte(sample + more))
	require.NoError(t, err)
	n, found := doc.Nodes(doc.Config)
	require.Len(t, found, 1)
	assert.Equal(t, "not-ours", found[0].Rule)
	assert.Contains(t, found[0].Message, "fields: networking.networkType")
	assert.Len(t, n.SSHKeys, 1)
	assert.True(t, strings.HasPrefix(string(n.TrustBundle), "-----BEGIN CERTIFICATE-----\n"))
	assert.Equal(t, Proxy{HTTP: "http://user:word@192.0.2.8:3128",
		No: ".cluster.local,.example.org,.svc,127.0.0.1,172.30.0.0/16,192.0.2.0/24,192.0.2.1,api-int.demo.example.com," +
			"localhost"}, n.Proxy)
	assert.Equal(t, []MirrorSource{{Source: "registry.example.com/ocp", Mirrors: []string{"mirror.example.org/ocp"},
		Never: true}}, n.Mirrors)
	assert.Equal(t, []string{"master"}, n.SingleThread)

	older, err := parse([]byte(strings.Replace(sample+more, "imageDigestSources:", "imageContentSources:", 1)))
	require.NoError(t, err)
	before, _ := older.Nodes(older.Config)
	assert.Equal(t, n.Mirrors, before.Mirrors, "the old name of the field")
	assert.JSONEq(t, `{"auths":{"registry.example.com":{"auth":"YTpi"}}}`, string(n.PullSecret))
}

// TestNodesRefuses also runs on a directory that is prepared: the user may change the rest of the file later.
func TestNodesRefuses(t *testing.T) {
	through := "proxy: {httpsProxy: \"http://192.0.2.8:3128\"}\n"
	for _, c := range []struct{ name, more, rule, path string }{
		{"a pull secret that is not JSON", "pullSecret: dXNlcjpwYXNz\n", "pull-secret", "pullSecret"},
		{"a pull secret that is not base64", `pullSecret: '{"auths":{"a.example.com":{"auth":"user:word"}}}'` + "\n",
			"pull-secret", "pullSecret"},
		{"a pull secret without a password", `pullSecret: '{"auths":{"a.example.com":{"auth":"dXNlcg=="}}}'` + "\n",
			"pull-secret", "pullSecret"},
		{"a pull secret without a registry", "pullSecret: '{\"auths\":{}}'\n", "pull-secret", "pullSecret"},
		{"a proxy before the bootstrap host", through, "no-proxy", "proxy.noProxy"},
		{"a proxy that is none", "proxy: {httpProxy: 192.0.2.8}\n", "proxy", "proxy.httpProxy"},
		{"a proxy with a broken address", "proxy: {httpProxy: \"http://%zz\"}\n", "proxy", "proxy.httpProxy"},
		{"a proxy of another kind", "proxy: {httpsProxy: \"ftp://192.0.2.8\"}\n", "proxy", "proxy.httpsProxy"},
		{"plain requests through TLS", "proxy: {httpProxy: \"https://192.0.2.8\"}\n", "proxy", "proxy.httpProxy"},
		{"a proxy without an address", "proxy: {noProxy: 192.0.2.1}\n", "proxy", "proxy"},
		{"a bundle that is no PEM", "additionalTrustBundle: MIIB\n", "trust-bundle", "additionalTrustBundle"},
		{"a bundle with a key", "additionalTrustBundle: |\n  -----BEGIN PRIVATE KEY-----\n  AAAA\n" +
			"  -----END PRIVATE KEY-----\n", "trust-bundle", "additionalTrustBundle"},
		{"a policy that is none", "additionalTrustBundlePolicy: Never\n", "trust-bundle-policy",
			"additionalTrustBundlePolicy"},
		{"two lists of mirrors", "imageDigestSources: [{source: a.example.com}]\n" +
			"imageContentSources: [{source: b.example.com}]\n", "image-sources", "imageContentSources"},
		{"mirrors of nothing", "imageDigestSources: [{mirrors: [a.example.com]}]\n", "image-sources",
			"imageDigestSources[0].source"},
		{"a field without effect", "cpuPartitioningMode: AllNodes\n", "not-honoured", "cpuPartitioningMode"},
		{"a stream", "osImageStream: rhel-10\n", "not-honoured", "osImageStream"},
		{"a disk", "compute: [{name: worker, diskSetup: [{type: swap}]}]\n", "not-honoured", "compute[].diskSetup[].type"},
		{"a field that nobody knows", "sshkey: a\n", "unknown-key", "sshkey"},
	} {
		t.Run(c.name, func(t *testing.T) {
			base := sample
			if key, _, _ := strings.Cut(c.more, ":"); key == "pullSecret" {
				base, _, _ = strings.Cut(sample, "pullSecret:")
			}
			field, _, _ := strings.Cut(base[strings.Index(base, "# images of our own"):], "# keep me")
			prepared, err := parse([]byte(strings.Replace(base, field, "", 1) + c.more))
			require.NoError(t, err)
			require.Nil(t, prepared.Config)
			_, found := prepared.Nodes(&Config{Flow: FlowStandalone, BootstrapRegistry: BootstrapRegistry{Host: "192.0.2.1"}})
			rep := report.Report{Findings: found}
			bad := report.Of(rep.Err())
			require.NotEmpty(t, bad)
			assert.Equal(t, [2]string{c.rule, c.path}, [2]string{bad[0].Rule, bad[0].Path}, bad[0].Message)
			assert.NotEmpty(t, bad[0].Next)
		})
	}
}

// A value that asks for nothing is no fault, and what another flow or the boot medium must do is said.
func TestWhatTheInstallerAsksFor(t *testing.T) {
	for _, c := range []struct {
		name, more string
		flow       Flow
		want       []string
	}{
		{"nothing", "cpuPartitioningMode: None\nosImageStream: \"\"\n", FlowStandalone, nil},
		{"a proxy with TLS", "proxy: {httpsProxy: \"https://192.0.2.8\", noProxy: 192.0.2.1}\n", FlowStandalone, nil},
		{"FIPS mode", "fips: true\n", FlowStandalone, []string{"fips-boot"}},
		{"a bootstrap in place", "bootstrapInPlace: {installationDisk: /dev/vda}\n", FlowOpenShift,
			[]string{"in-place", "in-place"}}, // the sample has three masters and a bootstrap registry
		{"no bootstrap in place", "bootstrapInPlace: {}\n", FlowOpenShift, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			key := "  ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAILaofmw0DPom6sKyqmPLNu7RPSBkcAmEUZL/N8RmDDFI core@example.com\n"
			doc, err := parse([]byte(strings.Replace(sample, "sshKey: |\n"+key, "", 1) + c.more))
			require.NoError(t, err)
			config := &Config{Flow: c.flow, BootstrapRegistry: BootstrapRegistry{Host: "192.0.2.1"}}
			rep := report.Report{}
			root, err := rootMapping(doc.raw)
			require.NoError(t, err)
			validateInstaller(root, config, &rep)
			found := rep.Findings
			if c.flow == FlowStandalone {
				_, found = doc.Nodes(config)
			}
			var rules []string
			for _, f := range found {
				rules = append(rules, f.Rule)
			}
			assert.Equal(t, c.want, rules)
		})
	}
}

// The installer's machine network, where none is given, is not asked through a proxy. dayone's flow has none.
func TestTheMachineNetworkOfEachFlow(t *testing.T) {
	doc, err := parse([]byte(sample + "proxy: {httpProxy: \"http://192.0.2.8:3128\", noProxy: 192.0.2.1}\n"))
	require.NoError(t, err)
	for flow, want := range map[Flow]bool{FlowStandalone: false, FlowOpenShift: true} {
		n, _ := doc.Nodes(&Config{Flow: flow, BootstrapRegistry: BootstrapRegistry{Host: "192.0.2.1"}})
		assert.Equal(t, want, strings.Contains(n.Proxy.No, "10.0.0.0/16"), "%s: %s", flow, n.Proxy.No)
	}
}

func TestNodesWarnsOfABundleThatNobodyTrusts(t *testing.T) {
	doc, err := parse([]byte(sample + "additionalTrustBundle: |\n" + certificate(t)))
	require.NoError(t, err)
	n, found := doc.Nodes(doc.Config)
	require.Len(t, found, 1)
	assert.Equal(t, "trust-bundle-unused", found[0].Rule)
	assert.Empty(t, n.TrustBundle)
}

func TestUnreachable(t *testing.T) {
	for _, c := range []struct {
		place       string
		unreachable bool
		itself      bool
	}{
		{"registry.example.com:5000/a", false, false}, {"192.0.2.1:5000/a/b", false, false}, {"quay.io", false, false},
		{"[2001:db8::1]:5000/a", false, false}, {"2001:db8::1", false, false},
		{"127.0.0.1:5000/a", true, true}, {"localhost/a", true, true}, {"[::1]:5000", true, true},
		{"0.0.0.0:5000", true, false}, {"169.254.3.4/a", true, false}, {"fe80::1", true, false},
		{"255.255.255.255", true, false}, {"224.0.0.1:1/a", true, false},
	} {
		assert.Equal(t, c.unreachable, Unreachable(c.place) != "", c.place)
		assert.Equal(t, c.itself, MeansItself(c.place), c.place)
	}
}
