package day1

import (
	"context"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/coreos/go-systemd/v22/daemon"
	"github.com/sirupsen/logrus"
	logtest "github.com/sirupsen/logrus/hooks/test"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"dayone.dev/dayone/bootstrap/clusterregistry"
	"dayone.dev/dayone/bootstrap/journal"
	"dayone.dev/dayone/bootstrap/nodes"
	"dayone.dev/dayone/bootstrap/preflight"
	"dayone.dev/dayone/installconfig"
	"dayone.dev/dayone/installconfig/report"
	"dayone.dev/dayone/registry"
	"dayone.dev/dayone/registry/certs"
	"dayone.dev/dayone/registry/credentials"
)

// newLog keeps what is logged, as "level: message".
func newLog() (*logrus.Entry, func() []string) {
	logger, hook := logtest.NewNullLogger()
	return logrus.NewEntry(logger), func() (out []string) {
		for _, e := range hook.AllEntries() {
			out = append(out, e.Level.String()+": "+e.Message)
		}
		return out
	}
}

func TestOptionsWithDefaults(t *testing.T) {
	o := Options{}.WithDefaults()
	assert.Equal(t, "/var/lib/dayone", o.StateDir)
	assert.Regexp(t, "^linux/", o.Platform)
	o.Observe(journal.Event{})
	require.NotNil(t, o.BuildProgress)
	require.NotNil(t, o.Log)
	assert.WithinDuration(t, time.Now(), o.Now(), time.Hour)
	log, said := newLog()
	then := time.Unix(1, 0)
	seen := 0
	o = Options{StateDir: "/s", Platform: "linux/s390x", Log: log, Now: func() time.Time { return then },
		Observe: func(journal.Event) { seen++ }}.WithDefaults()
	o.Observe(journal.Event{})
	o.Log.Info("a")
	assert.Equal(t, []any{"/s", "linux/s390x", 1, then, []string{"info: a"}, "/s/handover", "/s/a/b"},
		[]any{o.StateDir, o.Platform, seen, o.Now(), said(), o.PlanDir(), o.Path("a", "b")})
}

func TestWarn(t *testing.T) {
	log, said := newLog()
	Host{Options: Options{Log: log}, In: &preflight.Input{Warnings: []report.Finding{
		{Severity: report.Warning, Message: "look"}, {Severity: report.Error, Message: "stop"}}}}.Warn()
	assert.Equal(t, []string{"warning: look"}, said())
}

func TestPhases(t *testing.T) {
	in := &preflight.Input{Pools: []preflight.Pool{
		{Pool: installconfig.Pool{Name: "master", BuildAt: installconfig.BuildAtBootstrap}},
		{Pool: installconfig.Pool{Name: "worker", BuildAt: installconfig.BuildAtCluster}}}}
	var names []string
	for _, p := range Phases(in, []journal.Phase{{Name: "base"}}, []journal.Phase{{Name: "serve"}}) {
		names = append(names, p.Name)
	}
	assert.Equal(t, []string{"identity", "registry", "base", "build-master", "serve"}, names)
}

// A second run has the identity of the first, and what the hand-over ends is gone.
func TestIdentity(t *testing.T) {
	dir := t.TempDir()
	id, err := loadIdentity(dir, "192.0.2.1:5000")
	require.NoError(t, err)
	again, err := loadIdentity(dir, "192.0.2.1:5000")
	require.NoError(t, err)
	assert.Equal(t, id, again)
	require.Len(t, id.Users, 2)
	assert.Equal(t, registry.RolePush, id.Users[0].Role)
	assert.Equal(t, registry.RolePull, id.pull().Role)
	for file, user := range map[string]registry.User{id.PushAuth: id.Users[0], id.PullAuth: id.Users[1]} {
		raw, err := os.ReadFile(file)
		require.NoError(t, err)
		accounts, err := credentials.Parse(raw)
		require.NoError(t, err)
		account, found, err := accounts.Find("192.0.2.1:5000/ocp/master-os")
		require.NoError(t, err)
		require.True(t, found)
		assert.Equal(t, user.Password, account.Password)
	}
	o := Options{StateDir: dir}
	base, err := o.WriteBaseAuth([]byte("{}"))
	require.NoError(t, err)
	info, err := os.Stat(base)
	require.NoError(t, err)
	assert.Equal(t, os.FileMode(0o600), info.Mode().Perm())
	assert.Equal(t, "*** and ***", id.scrub(id.Users[0].Password+" and "+id.Users[1].Password))

	require.NoError(t, removeAccounts(dir))
	left, err := filepath.Glob(filepath.Join(dir, identityDir, "*"))
	require.NoError(t, err)
	for _, file := range left {
		assert.NotRegexp(t, "auth|password", filepath.Base(file))
	}
	assert.NoFileExists(t, base)
	require.NoError(t, removeAccounts(dir), "again")
	blocked := filepath.Join(dir, identityDir, pullAuthFile, "x")
	require.NoError(t, os.MkdirAll(blocked, 0o700))
	require.ErrorContains(t, removeAccounts(dir), "remove credential")
}

// A host whose registry the node keeps has that registry's CA and accounts.
func TestSharedIdentity(t *testing.T) {
	dir := t.TempDir()
	shared, err := clusterregistry.LoadOrCreate(t.TempDir(), "api-int.example.com:22626")
	require.NoError(t, err)
	id, err := sharedIdentity(dir, shared)
	require.NoError(t, err)
	assert.Equal(t, shared.CA, id.CAPEM)
	push, pull, err := shared.Users()
	require.NoError(t, err)
	assert.Equal(t, []registry.User{push, pull}, id.Users)
	for file, want := range map[string][]byte{id.CAFile: shared.CA, id.PushAuth: shared.PushAuth,
		id.PullAuth: shared.PullAuth, filepath.Join(dir, identityDir, certs.CAKeyFile): shared.Files()[certs.CAKeyFile]} {
		got, err := os.ReadFile(file)
		require.NoError(t, err)
		assert.Equal(t, string(want), string(got))
		info, err := os.Stat(file)
		require.NoError(t, err)
		assert.Equal(t, os.FileMode(0o600), info.Mode().Perm())
	}
	blocked := filepath.Join(dir, "file")
	require.NoError(t, os.WriteFile(blocked, nil, 0o600))
	_, err = sharedIdentity(blocked, shared)
	require.ErrorContains(t, err, "make identity directory")
}

func TestIdentityThatCannotBeRead(t *testing.T) {
	for _, c := range []struct{ name, blocked, says string }{
		{"push password", pushUser + passwordEnd, "read credential"},
		{"pull password", pullUser + passwordEnd, "read credential"},
		{"CA", "ca.key", "CA"},
		{"auth file", pullAuthFile, "write identity"},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := t.TempDir()
			require.NoError(t, os.MkdirAll(filepath.Join(dir, identityDir, c.blocked), 0o700))
			_, err := loadIdentity(dir, "192.0.2.1:5000")
			require.ErrorContains(t, err, c.says)
		})
	}
	_, err := Options{StateDir: filepath.Join(t.TempDir(), "none")}.WriteBaseAuth(nil)
	require.ErrorContains(t, err, "write base-auth.json")
}

// Whose a pull is, is told by its repository, unless pools share one. This host's own requests are no node's.
func TestTrackNodes(t *testing.T) {
	pool := func(name, repository string) preflight.Pool {
		return preflight.Pool{Pool: installconfig.Pool{Name: name, BuildAt: installconfig.BuildAtBootstrap},
			Repository: repository}
	}
	dir := t.TempDir()
	id, err := loadIdentity(dir, "192.0.2.1:5000")
	require.NoError(t, err)
	log, _ := newLog()
	h := Host{Options: Options{StateDir: dir, Log: log}.WithDefaults(), In: &preflight.Input{Pools: []preflight.Pool{
		pool("master", "quay.example.com/ocp/master-os"), pool("infra", "quay.example.com/ocp/shared"),
		pool("edge", "quay.example.com/ocp/shared")}}}
	tracker := trackNodes(h, id)
	require.NotEmpty(t, ownAddresses())
	manifest := []byte(`{"config":{"size":1},"layers":[{"size":2}]}`)
	for i, repository := range []string{"ocp/master-os", "ocp/shared"} {
		tracker.Pulled(registry.Pull{Client: "192.0.2.1" + string(rune('0'+i)), Repository: repository,
			Digest: "sha256:" + strings.Repeat("1", 64), Manifest: manifest})
	}
	tracker.Pulled(registry.Pull{Client: ownAddresses()[0], Repository: "ocp/master-os", Manifest: manifest,
		Digest: "sha256:" + strings.Repeat("1", 64)})
	end := track(t.Context(), tracker)
	end()
	rows, err := nodes.Read(dir)
	require.NoError(t, err)
	pools := map[string]string{}
	for _, r := range rows {
		pools[r.Address] = r.Pool
	}
	assert.Equal(t, map[string]string{"192.0.2.10": "master", "192.0.2.11": ""}, pools)
}

func TestUseProxy(t *testing.T) {
	clear := func() {
		for _, name := range []string{"HTTP_PROXY", "http_proxy", "HTTPS_PROXY", "https_proxy", "NO_PROXY", "no_proxy"} {
			t.Setenv(name, "")
		}
	}
	clear()
	require.NoError(t, UseProxy(installconfig.Proxy{HTTP: "http://192.0.2.2:3128", No: ".example.com"}))
	assert.Equal(t, "http://192.0.2.2:3128", os.Getenv("HTTP_PROXY"))
	assert.Equal(t, "http://192.0.2.2:3128", os.Getenv("http_proxy"))
	require.NoError(t, ExemptFromProxy("192.0.2.1:5000"))
	assert.Equal(t, ".example.com,192.0.2.1", os.Getenv("NO_PROXY"))
	assert.Equal(t, ".example.com,192.0.2.1", os.Getenv("no_proxy"))
	require.ErrorContains(t, ExemptFromProxy("192.0.2.1"), "exempt 192.0.2.1 from the proxy")
	clear()
	t.Setenv("https_proxy", "http://of-the-host:1")
	require.NoError(t, UseProxy(installconfig.Proxy{HTTP: "http://192.0.2.2:3128"}))
	assert.Empty(t, os.Getenv("HTTP_PROXY"), "the host's own words are enough")
}

// listen is a service manager's socket.
func listen(t *testing.T) *net.UnixConn {
	t.Helper()
	address := &net.UnixAddr{Name: filepath.Join(t.TempDir(), "notify"), Net: "unixgram"}
	c, err := net.ListenUnixgram("unixgram", address)
	require.NoError(t, err)
	t.Cleanup(func() { c.Close() })
	t.Setenv("NOTIFY_SOCKET", address.Name)
	return c
}

func heard(t *testing.T, c *net.UnixConn) string {
	t.Helper()
	b := make([]byte, 100)
	require.NoError(t, c.SetReadDeadline(time.Now().Add(time.Minute)))
	n, err := c.Read(b)
	require.NoError(t, err)
	return string(b[:n])
}

func TestNotify(t *testing.T) {
	t.Setenv("NOTIFY_SOCKET", "")
	require.NoError(t, Notify(Ready), "there is no service manager")
	c := listen(t)
	require.NoError(t, Notify(Ready))
	assert.Equal(t, "READY=1", heard(t, c))
	t.Setenv("NOTIFY_SOCKET", "/no/such/socket")
	require.ErrorContains(t, Notify(Ready), "notify service manager")
}

// The watchdog hears of a process as long as it lives, and of one that hangs nothing.
func TestKeepAlive(t *testing.T) {
	KeepAlive(t.Context(), nil) // without a watchdog it returns
	c := listen(t)
	t.Setenv("WATCHDOG_USEC", "9000")
	t.Setenv("WATCHDOG_PID", "")
	asked := make(chan bool)
	ended := make(chan struct{})
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		defer close(ended)
		KeepAlive(ctx, func() bool { return <-asked })
	}()
	asked <- true
	assert.Equal(t, daemon.SdNotifyWatchdog, heard(t, c))
	for range 3 { // the third question comes after what the first two led to
		asked <- false
	}
	require.NoError(t, c.SetReadDeadline(time.Now()))
	_, err := c.Read(make([]byte, 1))
	require.ErrorIs(t, err, os.ErrDeadlineExceeded, "nothing was said")
	cancel()
	for ending := true; ending; {
		select {
		case asked <- false:
		case <-ended:
			ending = false
		}
	}
}

// A state directory that cannot be made, read or written is named, and its lock is dropped.
func TestOpenStateFails(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	require.NoError(t, os.WriteFile(file, nil, 0o600))
	_, err := OpenState(Options{StateDir: filepath.Join(file, "state")}.WithDefaults())
	require.ErrorContains(t, err, "make state directory")
	require.ErrorContains(t, CheckDisk(Options{StateDir: "/no/such/place"}.WithDefaults(), installconfig.Build{}),
		"look at the state directory's file system")
	require.ErrorContains(t, keepPrivate(filepath.Join(file, "x")), "check the state directory")

	dir := t.TempDir()
	machine := filepath.Join(dir, "machine-id")
	require.NoError(t, os.WriteFile(machine, []byte(strings.Repeat("a", machineIDLength)), 0o600))
	require.ErrorContains(t, belongToHost(filepath.Join(dir, "none"), machine), "write the name of this host")
	require.NoError(t, os.Mkdir(filepath.Join(dir, hostFile), 0o700))
	require.ErrorContains(t, belongToHost(dir, machine), "read which host the state directory is of")

	o := state(t)
	require.NoError(t, os.Mkdir(o.Path(hostFile), 0o700))
	_, err = OpenState(o)
	require.ErrorContains(t, err, "read which host")
	running, err := journal.Running(o.StateDir)
	require.NoError(t, err)
	assert.False(t, running)
}
