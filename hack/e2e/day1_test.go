package e2e_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/crypto/ssh"

	"dayone.dev/dayone/bootstrap/nodes"
	"dayone.dev/dayone/hack/baseimage"
	"dayone.dev/dayone/hack/cmdlines"
	"dayone.dev/dayone/hack/codeblocks"
	"dayone.dev/dayone/hack/e2e"
	"dayone.dev/dayone/hack/program"
	"dayone.dev/dayone/hack/testnode"
	"dayone.dev/dayone/manifests/assets"
	"dayone.dev/dayone/rebase/deploy/deploytest"
	"dayone.dev/dayone/rebase/firstboot"
)

// binDir is where the programs under test are built, once for all tests.
var binDir string

func TestMain(m *testing.M) {
	testnode.Init()
	var err error
	if binDir, err = os.MkdirTemp("", "dayone-e2e-bin-"); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	code := m.Run()
	if err := os.RemoveAll(binDir); err != nil {
		fmt.Fprintln(os.Stderr, err)
	}
	os.Exit(code)
}

// binaries builds the programs into binDir.
var binaries = sync.OnceValue(func() error {
	return errors.Join(
		program.Build(context.Background(), "", program.Options{Package: "dayone.dev/dayone/cmd/dayone", Cgo: true},
			filepath.Join(binDir, "dayone")),
		program.Build(context.Background(), "", program.Options{Package: "dayone.dev/dayone/cmd/dayone-daemon"},
			filepath.Join(binDir, "dayone-daemon")))
})

// options are those of a test: everything below the test's own directory, nothing left behind.
func options(t testing.TB) e2e.Options {
	t.Helper()
	switch {
	case testing.Short():
		t.Skip("boots nodes: left out with -short")
	case os.Geteuid() != 0 && os.Getenv("CI") == "":
		t.Skip("needs root: it boots nodes in namespaces")
	}
	require.NoError(t, binaries())
	return e2e.Options{Bin: binDir, Work: t.TempDir(), Kind: baseimage.Tiny}
}

func TestDay1OfThreeMasters(t *testing.T) {
	o := options(t)
	report, err := e2e.Day1(t.Context(), o)
	require.NoError(t, err)
	assert.Len(t, report.Checks, 27, "nine facts for each of three masters")
	var shown strings.Builder
	report.Print(&shown)
	assert.Regexp(t, `one reboot, no more: 2 hardware boots; no soft reboot: the node's OS has no systemd\n`,
		shown.String())
	assert.Regexp(t, `signed by key [0-9a-f]{64}, verified by 3 nodes`, shown.String())
	assert.Regexp(t, `^registry\.example\.com/ocp/master-os@sha256:[0-9a-f]{64}$`, report.Image)
	console, err := os.ReadFile(filepath.Join(o.Work, "logs/master-0.log"))
	require.NoError(t, err)
	assert.Contains(t, string(console), "layers_present 3", "the first deployment's layers are not fetched again")

	networks, err := exec.Command("ip", "netns", "list").Output()
	require.NoError(t, err)
	mounts, err := os.ReadFile("/proc/self/mounts")
	require.NoError(t, err)
	for what, text := range map[string]string{"a network namespace": string(networks), "a mount": string(mounts)} {
		assert.NotContains(t, text, report.Run, "%s is left behind", what)
	}
	assert.NoDirExists(t, fmt.Sprintf("/proc/%d", report.BootstrapPID), "the bootstrap has ended")
}

// TestDay1BySoftReboot is make demo SOFT=1 with one master.
func TestDay1BySoftReboot(t *testing.T) {
	o := options(t)
	o.Kind, o.Masters = baseimage.Forky, 1
	report, err := e2e.Day1(t.Context(), o)
	require.NoError(t, err)
	var shown strings.Builder
	report.Print(&shown)
	assert.Contains(t, shown.String(), "one reboot, no more: 1 hardware boot, 1 soft reboot\n")
}

func TestDay1WithSystemd(t *testing.T) {
	o := options(t)
	o.Kind, o.Masters = baseimage.Debian, 1
	r, err := e2e.Prepare(t.Context(), o)
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, r.Close(context.Background())) })
	require.NoError(t, r.MakeMasters(t.Context()))
	require.NoError(t, r.StartBootstrap(t.Context()))
	require.NoError(t, r.BootMasters(t.Context()))

	n := r.Masters[0]
	for _, c := range []struct{ command, want string }{
		{"systemctl is-system-running --wait", "running"},
		{"systemctl is-enabled demo-hello.service", "enabled"},
		{"systemctl is-active demo-hello.service", "active"},
		{"cat /usr/share/demo-built-by-run.txt", "built from the image of pool master"},
		{"journalctl --sync; journalctl -b -o cat -u demo-hello.service --grep 'good-morning'",
			"good-morning from the image of pool master"},
		{"cat /home/core/.ssh/authorized_keys.d/ignition | cut -d' ' -f1", "ssh-ed25519"},
		{"stat -c %a:%u /etc/demo/private.conf", "600:0"},
		{"readlink /etc/demo/limits.conf", "../sysctl.d/90-demo.conf"},
		{"readlink /etc/systemd/system/multi-user.target.wants/demo-hello.service",
			"/etc/systemd/system/demo-hello.service"},
	} {
		got, err := n.Output(t.Context(), "sh", "-c", c.command)
		assert.NoError(t, err, c.command)
		assert.Equal(t, c.want, strings.TrimSpace(got), c.command)
	}
	typesThePage(t, n, "../../docs/operators/node.md")
	diff, err := n.Output(t.Context(), "ostree", "admin", "config-diff")
	require.NoError(t, err)
	assert.NotContains(t, diff, "demo", "neither files nor links nor directories of the MachineConfigs are local changes")
	assert.NotContains(t, diff, "sysctl.d")
	assert.NotContains(t, diff, "motd")
}

// typesThePage runs on a node what a page lets its reader type there.
func typesThePage(t *testing.T, n *testnode.Node, page string) {
	t.Helper()
	blocks, err := codeblocks.Of(page)
	require.NoError(t, err)
	typed := 0
	for _, b := range blocks {
		for _, line := range b.Commands() {
			typed++
			_, err := n.Output(t.Context(), "sh", "-c", line)
			assert.NoError(t, err, line)
		}
	}
	assert.Positive(t, typed)
}

// nodeSettings are what the installer's fields say of the nodes.
const nodeSettings = `sshKey: |
  ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAILaofmw0DPom6sKyqmPLNu7RPSBkcAmEUZL/N8RmDDFI core@example.com
  ecdsa-sha2-nistp256 %s second@example.com
additionalTrustBundlePolicy: Always
additionalTrustBundle: |
%s
proxy:
  httpProxy: http://proxy:p%%40ss@192.168.77.99:3128
  noProxy: 192.168.77.1,.example.com
networking: {machineNetwork: [{cidr: 192.168.77.0/24}]}
imageDigestSources:
- source: registry.example.com/other
  mirrors: [mirror.example.com/other]
`

// TestInstallConfigReachesTheNode follows each field of install-config.yaml to where programs on the node meet it.
func TestInstallConfigReachesTheNode(t *testing.T) {
	o := options(t)
	o.Kind, o.Masters = baseimage.Debian, 1
	o.InstallDir = filepath.Join(o.Work, "mine")
	require.NoError(t, assets.WriteSample(o.InstallDir))
	file := filepath.Join(o.InstallDir, "install-config.yaml")
	raw, err := os.ReadFile(file)
	require.NoError(t, err)
	before, _, _ := strings.Cut(string(raw), "sshKey:")
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	second, err := ssh.NewPublicKey(key.Public())
	require.NoError(t, err)
	ca := deploytest.NewAuthority(t).PEM
	text := before + fmt.Sprintf(nodeSettings, base64.StdEncoding.EncodeToString(second.Marshal()),
		"  "+strings.ReplaceAll(strings.TrimSpace(string(ca)), "\n", "\n  "))
	require.NoError(t, os.WriteFile(file, []byte(text), 0o600))

	r, err := e2e.Prepare(t.Context(), o)
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, r.Close(context.Background())) })
	require.NoError(t, r.MakeMasters(t.Context()))
	require.NoError(t, r.StartBootstrap(t.Context()))
	require.NoError(t, r.BootMasters(t.Context()))
	n := r.Masters[0]
	output := func(command string) string {
		out, err := n.Output(t.Context(), "sh", "-c", command)
		assert.NoError(t, err, command)
		return strings.TrimSpace(out)
	}
	assert.Equal(t, "running", output("systemctl is-system-running --wait"),
		output("systemctl --failed; journalctl -b -u dayone-ca-trust"))
	assert.Contains(t, output("cat /home/core/.ssh/authorized_keys.d/ignition"), "second@example.com")
	assert.Equal(t, "600:0", output("stat -c %a:%u /etc/dayone/pull-secret.json"))
	assert.Contains(t, output("cat /var/lib/kubelet/config.json"), `"registry.example.com"`, "the kubelet's credentials")
	assert.True(t, strings.Contains(output("cat /etc/ssl/certs/ca-certificates.crt"), strings.TrimSpace(string(ca))))
	environment := output("systemd-run --quiet --pipe --wait env")
	assert.Contains(t, environment, "HTTP_PROXY=http://proxy:p%40ss@192.168.77.99:3128\n")
	assert.Contains(t, environment, "http_proxy=http://proxy:p%40ss@192.168.77.99:3128\n")
	assert.Contains(t, environment, ",192.168.77.0/24,192.168.77.1,api-int.demo.example.com,")
	assert.Contains(t, output("cat /etc/containers/registries.conf"), "mirror.example.com/other")

	diff, err := n.Output(t.Context(), "ostree", "admin", "config-diff")
	require.NoError(t, err)
	for _, ours := range []string{"dayone/pull-secret", "tmpfiles.d", "system.conf.d", "source/anchors", "dayone-ca-trust",
		"registries.conf\n"} {
		assert.NotContains(t, diff, ours, "the image has it as the node has it: a later image can change it")
	}
}

func TestMastersWaitForBootstrap(t *testing.T) {
	o := options(t)
	o.Masters = 1
	r, err := e2e.Prepare(t.Context(), o)
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, r.Close(context.Background())) })
	require.NoError(t, r.MakeMasters(t.Context()))
	require.NoError(t, r.StartBootstrap(t.Context()))
	n := r.Masters[0]
	pointer, err := r.Pointer("master")
	require.NoError(t, err)
	require.NoError(t, n.Ignite(t.Context(), pointer))

	require.NoError(t, r.Bootstrap.Kill())
	require.NoError(t, n.Start(t.Context()))
	require.NoError(t, n.WaitBoot(t.Context(), 1))
	var rec firstboot.Record
	require.Eventually(t, func() bool {
		rec, err = e2e.FirstBootRecord(t.Context(), n)
		return err == nil && rec.State == firstboot.StateWaiting
	}, 5*time.Minute, 100*time.Millisecond)
	assert.Contains(t, rec.Message, "192.168.77.1:5000", "the message names the registry")
	boots, err := n.Boots()
	require.NoError(t, err)
	assert.Equal(t, 1, boots, "the master stays on its base OS")

	require.NoError(t, r.StartBootstrap(t.Context()), "a second run on the same state directory")
	require.NoError(t, n.WaitBoot(t.Context(), 2))
	built, err := e2e.Built(r.State, "master")
	require.NoError(t, err)
	booted, err := e2e.BootedDigest(t.Context(), n)
	require.NoError(t, err)
	assert.Equal(t, built.Digest, booted)
}

// TestFailedNodeSaysWhy boots a node that cannot have what its config asks for: the bootstrap host says so in its
// status, its bundle and the verdict, and it does not forget it when it is killed.
func TestFailedNodeSaysWhy(t *testing.T) {
	o := options(t)
	o.Masters, o.InstallDir = 1, filepath.Join(o.Work, "mine")
	require.NoError(t, assets.WriteSample(o.InstallDir))
	require.NoError(t, os.WriteFile(filepath.Join(o.InstallDir, "openshift/90-fips.yaml"),
		[]byte("apiVersion: machineconfiguration.openshift.io/v1\nkind: MachineConfig\nmetadata:\n  name: 90-master-fips\n"+
			"  labels: {machineconfiguration.openshift.io/role: master}\nspec: {fips: true}\n"), 0o600))
	r, err := e2e.Prepare(t.Context(), o)
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, r.Close(context.Background())) })
	require.NoError(t, r.MakeMasters(t.Context()))
	require.NoError(t, r.StartBootstrap(t.Context()))
	pointer, err := r.Pointer("master")
	require.NoError(t, err)
	n := r.Masters[0]
	require.NoError(t, errors.Join(n.Ignite(t.Context(), pointer), n.Start(t.Context()), n.WaitBoot(t.Context(), 1)))
	require.Eventually(t, func() bool {
		rows, err := nodes.Read(r.State)
		return err == nil && len(rows) == 1 && rows[0].Stage == nodes.StageFailed
	}, 5*time.Minute, 100*time.Millisecond)
	require.NoError(t, r.Bootstrap.Kill())

	dayone := func(args ...string) string {
		out, err := exec.CommandContext(t.Context(), filepath.Join(binDir, "dayone"), args...).Output()
		var exit *exec.ExitError
		if args[0] != "analyze" || !errors.As(err, &exit) || exit.ExitCode() != 1 {
			require.NoError(t, err)
		}
		return string(out)
	}
	status := dayone("status", "--state-dir", r.State)
	assert.Regexp(t, `failed +master +master-0 +failed .* ago: check FIPS mode: the config says true`, status)
	assert.Contains(t, status, "next: set it in the boot arguments of the disk image")
	var looked struct {
		Nodes []nodes.View `json:"nodes"`
	}
	require.NoError(t, json.Unmarshal([]byte(dayone("status", "--state-dir", r.State, "-o", "json")), &looked))
	require.Len(t, looked.Nodes, 1)
	assert.Equal(t, []any{"master-0", "BadConfiguration", true},
		[]any{looked.Nodes[0].Name, looked.Nodes[0].Class, looked.Nodes[0].Stuck})
	out := t.TempDir()
	dayone("gather", "--state-dir", r.State, "--dir", r.Dir, "--out", out)
	bundles, err := filepath.Glob(filepath.Join(out, "*.tar.gz"))
	require.NoError(t, err)
	require.Len(t, bundles, 1)
	verdict := dayone("analyze", bundles[0])
	assert.Contains(t, verdict, "master-0")
	assert.Contains(t, verdict, "check FIPS mode")
}

// Canaries: nothing of them may be seen outside files that only root reads.
const (
	canaryPull = "canary-pull-7f3a9c"
	canaryPush = "canary-push-b81d44"
)

func TestNothingSensitiveLeaks(t *testing.T) {
	o := options(t)
	o.Masters = 1
	o.InstallDir = filepath.Join(o.Work, "mine")
	require.NoError(t, assets.WriteSample(o.InstallDir))
	secrets := filepath.Join(o.InstallDir, "layering/secrets.yaml")
	raw, err := os.ReadFile(secrets)
	require.NoError(t, err)
	encode := func(s string) string { return base64.StdEncoding.EncodeToString([]byte("user:" + s)) }
	text := strings.Replace(string(raw), "ZGVtby1wdXNoOm5vdC1hLXJlYWwtcGFzc3dvcmQ=", encode(canaryPush), 1)
	text = strings.Replace(text, "ZGVtby1wdWxsOm5vdC1hLXJlYWwtcGFzc3dvcmQ=", encode(canaryPull), 1)
	require.NoError(t, os.WriteFile(secrets, []byte(text), 0o600))

	stop := cmdlines.Watch()
	t.Cleanup(func() { stop() })
	r, err := e2e.Prepare(t.Context(), o)
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, r.Close(context.Background())) })
	require.NoError(t, r.MakeMasters(t.Context()))
	require.NoError(t, r.StartBootstrap(t.Context()))
	require.NoError(t, r.BootMasters(t.Context()))

	sensitive := []string{canaryPull, canaryPush, encode(canaryPull), encode(canaryPush)}
	for _, user := range []string{"dayone-build", "dayone-node"} {
		password, err := os.ReadFile(filepath.Join(r.State, "identity", user+".password"))
		require.NoError(t, err)
		sensitive = append(sensitive, string(password), base64.StdEncoding.EncodeToString([]byte(user+":"+string(password))))
	}
	arguments := strings.Join(stop(), "\n")
	for _, s := range sensitive {
		assert.NotContains(t, arguments, s, "a secret is in a process's arguments")
	}
	rows, err := os.ReadFile(filepath.Join(r.State, nodes.File))
	require.NoError(t, err)
	assert.Contains(t, string(rows), `"name": "master-0"`)
	for _, s := range sensitive {
		assert.NotContains(t, string(rows), s, "what is known of the nodes holds no secret")
	}
	assertSealed(t, r.LogDir(), sensitive, false)
	assertSealed(t, r.State, sensitive, true)
	assertSealed(t, filepath.Join(r.Dir, ".dayone"), sensitive, false)
}

// assertSealed fails for every file that holds a secret: any file where sealed is false, else one that others may read.
// What a running program removes meanwhile holds none.
func assertSealed(t *testing.T, dir string, sensitive []string, sealed bool) {
	t.Helper()
	require.NoError(t, filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) && path != dir {
			return nil
		}
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		info, err := d.Info()
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err != nil || info.Size() > 64<<20 {
			return err
		}
		raw, err := os.ReadFile(path)
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err != nil {
			return err
		}
		for i, s := range sensitive {
			if strings.Contains(string(raw), s) && (!sealed || info.Mode().Perm()&0o077 != 0) {
				t.Errorf("%s (mode %o) holds secret %d", path, info.Mode().Perm(), i)
			}
		}
		return nil
	}))
}
