package openshift_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"dayone.dev/dayone/bootstrap/gather/analyze"
	"dayone.dev/dayone/bootstrap/gather/bundle"
	"dayone.dev/dayone/hack/testnode"
)

// sshEnv makes this test binary the program that reaches the bootstrap node, in ssh's place: its value is the lab's ID,
// its arguments are the host and the command.
const sshEnv = "DAYONE_TEST_SSH"

// asSSH runs a command on a node of a lab and gives its exit code.
func asSSH(lab string, args []string) int {
	attached, err := testnode.Attach("", lab)
	if err != nil || len(args) != 2 {
		fmt.Fprintln(os.Stderr, "reach the node:", err)
		return 255
	}
	code, err := attached.Node("boot0").Run(context.Background(), testnode.Command{Argv: []string{"sh", "-c", args[1]},
		Stdout: os.Stdout, Stderr: os.Stderr})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 255
	}
	return code
}

// canary is a secret that the node's service prints into the journal.
const canary = "canary-0Zq8kInTheJournal"

// statusPort is of the status page.
const statusPort = 9501

// spool is dayone gather --every on the admin's machine.
type spool struct {
	w   *world
	dir string
	// end stops it, if it still runs.
	end func()
}

func (w *world) spool() *spool {
	self, err := os.Executable()
	require.NoError(w.t, err)
	s := &spool{w: w, dir: w.t.TempDir()}
	cmd := exec.CommandContext(w.t.Context(), w.bin, "gather", "--host", "core@bootstrap", "--ssh", self,
		"--remote-command", "dayone gather --stdout", "--every", "1s", "--out", s.dir)
	cmd.Env = []string{sshEnv + "=" + w.lab.ID}
	p := w.keeps(cmd)
	s.end = func() { require.NoError(w.t, p.Stop(w.t.Context())) }
	w.eventually("the first bundle", func() bool {
		_, err := os.Stat(s.file())
		return err == nil
	})
	return s
}

func (s *spool) file() string { return filepath.Join(s.dir, "log-bundle-spool.tar.gz") }

// vanished waits until the spool has noticed that the node is gone, ends it and reads what is left.
func (s *spool) vanished() {
	t := s.w.t
	s.w.eventually("the spool notices", func() bool {
		_, err := os.Stat(s.file() + ".lost.json")
		return err == nil
	})
	s.end()
	out, err := exec.Command(s.w.bin, "analyze", s.file()).CombinedOutput()
	require.Error(t, err, "the exit code tells: %s", out)
	first, _, _ := strings.Cut(string(out), "\n")
	assert.Contains(t, first, "verdict: vanished")
	assert.Contains(t, first, "the bootstrap host has not answered since")
	assert.Contains(t, string(out), "host-vanished")
	s.w.clean(s.file())
}

// spoolPort is where the node's log bundle is sent.
const spoolPort = 9601

// receive keeps what the node sends, beside it, and gives the words for install-config.yaml.
func (w *world) receive(dir string) string {
	t := w.t
	w.kept = t.TempDir()
	w.keeps(w.lab.Network.Command(t.Context(), w.bin, "gather", "--receive", fmt.Sprintf("%s:%d", w.host, spoolPort),
		"--out", w.kept))
	for _, name := range []string{"ca.crt", "spool.token"} {
		var raw []byte
		require.Eventually(t, func() bool {
			var err error
			raw, err = os.ReadFile(filepath.Join(w.kept, "receiver", name))
			return err == nil && len(raw) > 0
		}, patience, 50*time.Millisecond)
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), raw, 0o600))
	}
	return fmt.Sprintf("  logSpool: {url: \"https://%s:%d\", tokenFile: spool.token, caFile: ca.crt, every: 10s}\n",
		w.host, spoolPort)
}

// sent is the bundle that came of itself.
func (w *world) sent() string { return filepath.Join(w.kept, "log-bundle-spool.tar.gz") }

// sentBeforeItWent waits until the receiver has noticed that the node is gone.
func (w *world) sentBeforeItWent() {
	t := w.t
	require.Eventually(t, func() bool { _, err := os.Stat(w.sent() + ".lost.json"); return err == nil }, patience,
		200*time.Millisecond)
	out, err := exec.Command(w.bin, "analyze", w.sent()).CombinedOutput()
	require.Error(t, err, "the exit code tells: %s", out)
	assert.Contains(t, string(out), "verdict: vanished")
	w.clean(w.sent())
}

// sentAtTheEnd waits for the last bundle.
func (w *world) sentAtTheEnd() {
	w.eventually("the last bundle came", func() bool {
		out, err := exec.Command(w.bin, "analyze", w.sent()).CombinedOutput()
		return err == nil && strings.Contains(string(out), "verdict: handed over")
	})
	w.clean(w.sent())
	assert.NoFileExists(w.t, w.sent()+".lost.json")
}

// clean looks for secrets in a bundle.
func (w *world) clean(file string) *bundle.Bundle {
	b, err := bundle.Open(file)
	require.NoError(w.t, err)
	assert.Empty(w.t, b.Damage)
	passwords, err := w.sh("cd /var/lib/dayone/identity; cat *.password *.token 2>/dev/null; " +
		`sed -n 's/.*"auth": *"\([^"]*\)".*/\1/p' *auth.json 2>/dev/null; true`)
	if err != nil {
		passwords = "" // the node is off
	}
	token, err := os.ReadFile(filepath.Join(w.kept, "receiver", "spool.token"))
	require.NoError(w.t, err)
	secrets := append(strings.Fields(passwords), canary, string(token))
	for _, name := range b.Names() {
		text := string(b.Get(name).Content)
		for _, s := range secrets {
			assert.NotContains(w.t, text, s, name)
		}
		assert.NotContains(w.t, text, "PRIVATE KEY-----\nM", name)
	}
	return b
}

// onTheNode gathers where the bootstrap was: journals and files of a real systemd arrive, secrets do not.
func (w *world) onTheNode() {
	t := w.t
	_, err := w.sh("systemd-run --quiet --wait --unit=dayone-registry sh -c 'echo the registry token=" + canary +
		" and the end'")
	require.NoError(t, err)
	w.eventually("the journal has it",
		func() bool { return w.is("journalctl --no-pager -u dayone-registry | grep -q 'and the end'") })
	file := filepath.Join(t.TempDir(), "node.tar.gz")
	f, err := os.Create(file)
	require.NoError(t, err)
	var errs strings.Builder
	code, err := w.node.Run(t.Context(), testnode.Command{Argv: []string{"dayone", "gather", "--stdout"}, Stdout: f,
		Stderr: &errs})
	require.NoError(t, err)
	require.Zero(t, code, errs.String())
	require.NoError(t, f.Close())
	b := w.clean(file)
	for name, has := range map[string]string{
		"bootstrap/journals/dayone-bootstrap.log": "hand-over", "bootstrap/journals/dayone-registry.log": "and the end",
		"bootstrap/services/dayone-bootstrap.json": `"stage": "gate"`, "bootstrap/dayone/journal.json": "build-master",
		"bootstrap/dayone/handed-over.json": "time", "bootstrap/dayone/nodes.json": `"name": "master-0"`,
		"bootstrap/dayone/os-release.txt": "Debian", "rendered-assets/dayone/rendered-first/master.yaml": "osImageURL",
		"rendered-assets/openshift/layering/machineosconfig-master.yaml": "MachineOSConfig",
	} {
		if assert.NotNil(t, b.Get(name), "%s is not among %v: %s", name, b.Names(), errs.String()) {
			assert.Contains(t, string(b.Get(name).Content), has, name)
		}
	}
	r := analyze.Bundle(b)
	assert.Equal(t, analyze.StatusHandedOver, r.Verdict.Status, "%+v", r.Verdict)
	assert.NotEmpty(t, r.Differences)
}

// overThePage gathers from elsewhere while the hand-over waits, with what an admin copies from the node once.
func (w *world) overThePage() {
	t, dir := w.t, w.t.TempDir()
	page := fmt.Sprintf("https://%s:%d", w.node.Addr, statusPort)
	access := []string{"--url", page, "--ca", filepath.Join(dir, "ca.crt"), "--token-file",
		filepath.Join(dir, "status.token")}
	for _, name := range []string{"ca.crt", "status.token"} {
		text, err := w.sh("cat /var/lib/dayone/identity/" + name)
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600))
	}
	var status []byte
	w.eventually("the page shows the hand-over", func() bool {
		var err error
		status, err = w.lab.Network.Command(t.Context(), append([]string{w.bin, "status", "-o", "json"}, access...)...).
			CombinedOutput()
		return err == nil && strings.Contains(string(status), `"name": "hand-over"`)
	})
	out, err := w.lab.Network.Command(t.Context(), append([]string{w.bin, "gather", "--out", dir, "--id", "page"},
		access...)...).CombinedOutput()
	require.NoError(t, err, string(out))
	b := w.clean(filepath.Join(dir, "log-bundle-page.tar.gz"))
	assert.NotNil(t, b.Get("bootstrap/journals/dayone-bootstrap.log"))
	w.page(page, dir)
}

// page asks as a browser does.
func (w *world) page(address, dir string) {
	t := w.t
	ca, err := os.ReadFile(filepath.Join(dir, "ca.crt"))
	require.NoError(t, err)
	token, err := os.ReadFile(filepath.Join(dir, "status.token"))
	require.NoError(t, err)
	pool := x509.NewCertPool()
	require.True(t, pool.AppendCertsFromPEM(ca))
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool}, DisableKeepAlives: true,
		DialContext: func(ctx context.Context, _, at string) (c net.Conn, err error) {
			err = w.lab.Network.Do(func() error { c, err = (&net.Dialer{}).DialContext(ctx, "tcp4", at); return err })
			return c, err
		}}}
	for password, status := range map[string]int{string(token): http.StatusOK, "guess": http.StatusUnauthorized,
		"": http.StatusUnauthorized} {
		request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, address+"/", nil)
		require.NoError(t, err)
		request.SetBasicAuth("admin", password)
		response, err := client.Do(request)
		require.NoError(t, err)
		text, err := io.ReadAll(response.Body)
		require.NoError(t, err)
		require.NoError(t, response.Body.Close())
		assert.Equal(t, status, response.StatusCode)
		assert.Equal(t, status == http.StatusOK, strings.Contains(string(text), "<title>dayone bootstrap: "), "%s", text)
	}
}
