package e2e_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"dayone.dev/dayone/bootstrap/preflight"
	"dayone.dev/dayone/build/sign"
	"dayone.dev/dayone/hack/baseimage"
	"dayone.dev/dayone/hack/e2e"
	"dayone.dev/dayone/hack/testnode/machine"
	"dayone.dev/dayone/rebase/deploy"
	"dayone.dev/dayone/rebase/deploy/deploytest"
	"dayone.dev/dayone/rebase/deploy/host"
	"dayone.dev/dayone/rebase/firstboot"
)

// machineEnv asks for the run in a virtual machine: "kvm" uses the processor's virtualization, anything else emulates,
// in minutes.
const machineEnv = "DAYONE_TEST_VM"

// machineLimit is several times what three emulated boots take on two processors.
const machineLimit = 20 * time.Minute

// failure are the console's lines to look at first.
var failure = regexp.MustCompile(`(?mi)^.*(fail|critical|error|dayone-firstboot).*$`)

// vm is a master that is a virtual machine, and a clock for its figures.
type vm struct {
	*machine.Machine
	t     testing.TB
	run   *e2e.Run
	since time.Time
}

func TestDay1AndDay2InAVirtualMachine(t *testing.T) {
	onlyAsked(t)
	m, ctx := startVM(t, baseimage.Machine)
	require.NoError(t, m.WaitBoot(ctx, 1))
	m.took("boot 1: kernel, initramfs with Ignition, systemd")
	require.NoError(t, m.WaitBoot(ctx, 2))
	m.took("pull, stage, shutdown, boot 2")
	built := m.checkDay1(ctx)

	second := m.pushLater(built)
	m.checkClock(ctx, second)
	m.output(ctx, "echo '# edited' >/etc/sysctl.d/90-demo.conf")
	m.output(ctx, firstboot.DaemonPath+" stage "+second)
	m.took("Day 2: pull and stage")
	_, _, err := m.Run(ctx, "systemctl reboot; sleep 600")
	require.Error(t, err, "it goes down")
	require.NoError(t, m.WaitBoot(ctx, 3))
	m.took("shutdown, boot 3")
	m.checkDay2(ctx, second)

	_, _, err = m.Run(ctx, "systemctl poweroff; sleep 600")
	require.Error(t, err)
	require.NoError(t, m.WaitOff(ctx))
	assert.Equal(t, 3, m.Boots(), "two for Day 1, one for Day 2")
}

func newVM(ctx context.Context, t testing.TB, r *e2e.Run) *vm {
	t.Helper()
	m := &vm{t: t, run: r, since: time.Now()}
	require.NoError(t, r.MakeMasters(ctx))
	require.NoError(t, r.StartBootstrap(ctx))
	m.took("bootstrap: image built and served")
	pointer, err := r.Pointer("master")
	require.NoError(t, err)
	m.Machine, err = machine.New(ctx, r.Lab, r.Masters[0],
		machine.Options{Ignition: pointer, KVM: os.Getenv(machineEnv) == "kvm"})
	require.NoError(t, err)
	t.Cleanup(func() {
		assert.NoError(t, m.Close())
		if t.Failed() {
			text, err := r.Masters[0].Log()
			t.Logf("console, what failed (%v):\n%s\nand its end:\n%s", err, strings.Join(failure.FindAllString(text, -1), "\n"),
				text[max(0, len(text)-2000):])
		}
	})
	m.took("disk image made")
	return m
}

// took logs a figure.
func (m *vm) took(what string) {
	m.t.Logf("%6.1f s  %s", time.Since(m.since).Seconds(), what)
	m.since = time.Now()
}

func (m *vm) output(ctx context.Context, command string) string {
	m.t.Helper()
	out, err := m.Output(ctx, command)
	require.NoError(m.t, err)
	return strings.TrimSpace(out)
}

func (m *vm) status(ctx context.Context) deploy.Status {
	m.t.Helper()
	var s deploy.Status
	require.NoError(m.t, json.Unmarshal([]byte(m.output(ctx, firstboot.DaemonPath+" status")), &s))
	return s
}

// checkDay1 gives the image that the machine runs.
func (m *vm) checkDay1(ctx context.Context) string {
	t := m.t
	image := m.doneWith(ctx)
	assert.Equal(t, 2, m.Boots())
	for command, want := range map[string]string{
		"systemctl is-system-running --wait":      "running",
		"systemctl is-active demo-hello.service":  "active",
		"cat /usr/share/demo-built-by-run.txt":    "built from the image of pool master",
		"stat -c %a:%u /etc/demo/private.conf":    "600:0",
		"journalctl --list-boots --quiet | wc -l": "2",
	} {
		assert.Equal(t, want, m.output(ctx, command), command)
	}
	config, err := e2e.RenderedConfig(m.run.State, "master")
	require.NoError(t, err)
	for _, k := range config.Spec.KernelArguments {
		assert.Contains(t, strings.Fields(m.output(ctx, "cat /proc/cmdline")), k)
	}
	diff := m.output(ctx, "ostree admin config-diff")
	assert.NotContains(t, diff, "demo", "what Ignition wrote in the initramfs is what the image has")
	assert.NotContains(t, diff, "motd")
	return image
}

// doneWith gives the image that the first boot ended with.
func (m *vm) doneWith(ctx context.Context) string {
	m.t.Helper()
	require.Eventually(m.t, func() bool { return m.record(ctx).State == firstboot.StateDone }, time.Minute, time.Second)
	built, err := e2e.Built(m.run.State, "master")
	require.NoError(m.t, err)
	s := m.status(ctx)
	require.Equal(m.t, built.Digest, s.Booted.Image.Digest.String(), "the booted digest is the built one")
	return s.Booted.Image.String()
}

func (m *vm) record(ctx context.Context) (r firstboot.Record) {
	m.t.Helper()
	require.NoError(m.t, json.Unmarshal([]byte(m.output(ctx, "cat "+firstboot.StateDir+"/status.json")), &r))
	return r
}

// checkClock sets the machine's clock years back: unlike a namespace it has one of its own.
func (m *vm) checkClock(ctx context.Context, image string) {
	m.output(ctx, "date --set 1999-12-31")
	said, status, err := m.Run(ctx, firstboot.DaemonPath+" stage "+image)
	require.NoError(m.t, err)
	assert.Equal(m.t, 1, status)
	assert.Contains(m.t, said, "current time 1999-12-31")
	assert.Contains(m.t, said, "next: set this node's clock")
	m.output(ctx, fmt.Sprintf("date --set @%d", time.Now().Unix()))
	m.took("a clock years off is said")
}

func (m *vm) checkDay2(ctx context.Context, second string) {
	t := m.t
	s := m.status(ctx)
	assert.Equal(t, second, s.Booted.Image.String())
	require.NotNil(t, s.Rollback)
	assert.Equal(t, "changed on day 2", m.output(ctx, "cat /etc/motd"),
		"Ignition wrote the first copy, the image changes it")
	assert.Equal(t, "# edited", m.output(ctx, "cat /etc/sysctl.d/90-demo.conf"), "a local edit is kept")
	var drift []host.EtcChange
	require.NoError(t, json.Unmarshal([]byte(m.output(ctx, firstboot.DaemonPath+" drift")), &drift))
	assert.Contains(t, drift, host.EtcChange{Path: "/etc/sysctl.d/90-demo.conf", Kind: host.EtcModified})
	assert.NotContains(t, drift, host.EtcChange{Path: "/etc/motd", Kind: host.EtcModified})
	assert.Equal(t, "running", m.output(ctx, "systemctl is-system-running --wait"))
}

// pushLater pushes a later image of the master's to the bootstrap registry and gives its final name.
func (m *vm) pushLater(first string) string {
	t, r := m.t, m.run
	image, err := deploy.ParseImage(first)
	require.NoError(t, err)
	host := r.Lab.Network.Bootstrap().String() + ":5000"
	_, path, _ := strings.Cut(image.Repository, "/")
	ref, err := name.NewDigest(host + "/" + path + "@" + image.Digest.String())
	require.NoError(t, err)
	options := []remote.Option{remote.WithTransport(bootstrapTransport(t, r)), remote.WithAuth(builder(t, r))}
	img, err := remote.Image(ref, options...)
	require.NoError(t, err)
	img, err = mutate.AppendLayers(img, deploytest.Layer(t, deploytest.Entry{Name: "etc/motd", Body: "changed on day 2\n"},
		deploytest.Entry{Name: "etc/sysctl.d/90-demo.conf", Body: "# day 2\n"}))
	require.NoError(t, err)
	require.NoError(t, remote.Write(ref.Context().Tag("day2"), img, options...))
	digest, err := img.Digest()
	require.NoError(t, err)
	m.sign(host, ref.Context().Digest(digest.String()).String(), image.Repository)
	return image.Repository + "@" + digest.String()
}

// sign gives an image in the bootstrap registry the signature that the nodes demand.
func (m *vm) sign(host, image, repository string) {
	t, r := m.t, m.run
	account, err := builder(t, r).Authorization()
	require.NoError(t, err)
	auth, err := json.Marshal(map[string]any{"auths": map[string]any{host: account}})
	require.NoError(t, err)
	file := filepath.Join(t.TempDir(), "auth.json")
	require.NoError(t, os.WriteFile(file, auth, 0o600))
	key := filepath.Join(r.Dir, preflight.SigningDir)
	out, err := r.Lab.Network.Command(t.Context(), filepath.Join(r.Bin, "dayone"), "sign", image,
		"--repository", repository, "--ca", filepath.Join(r.State, "identity", "ca.crt"), "--authfile", file,
		"--key", filepath.Join(key, sign.KeyFile),
		"--passphrase-file", filepath.Join(key, sign.PassphraseFile)).CombinedOutput()
	require.NoError(t, err, string(out))
}

// bootstrapTransport reaches the bootstrap host's registry from outside its network.
func bootstrapTransport(t testing.TB, r *e2e.Run) http.RoundTripper {
	t.Helper()
	ca, err := os.ReadFile(filepath.Join(r.State, "identity", "ca.crt"))
	require.NoError(t, err)
	pool := x509.NewCertPool()
	require.True(t, pool.AppendCertsFromPEM(ca))
	return &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool}, DialContext: func(ctx context.Context, network,
		addr string) (c net.Conn, err error) {
		err = r.Lab.Network.Do(func() (err error) {
			c, err = (&net.Dialer{}).DialContext(ctx, network, addr)
			return err
		})
		return c, err
	}}
}

func builder(t testing.TB, r *e2e.Run) authn.Authenticator {
	t.Helper()
	password, err := os.ReadFile(filepath.Join(r.State, "identity", "dayone-build.password"))
	require.NoError(t, err)
	return &authn.Basic{Username: "dayone-build", Password: strings.TrimSpace(string(password))}
}
