package registry_test

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/opencontainers/go-digest"
	"github.com/sirupsen/logrus"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"dayone.dev/dayone/registry"
	"dayone.dev/dayone/registry/certs"
	"dayone.dev/dayone/registry/registrytest"
	"dayone.dev/dayone/registry/storage"
	"dayone.dev/dayone/registry/transfer"
)

// childEnv makes the test program a registry that a test can kill: ROOT|PASSWORD, and of an upstream |HOST|CA|AUTHFILE.
const childEnv = "DAYONE_TEST_REGISTRY_CHILD"

func TestMain(m *testing.M) {
	if v := os.Getenv(childEnv); v != "" {
		s, err := startChild(strings.Split(v, "|"))
		if err != nil {
			fmt.Println("error", err)
			os.Exit(1)
		}
		fmt.Println(s.Addr())
		_, _ = io.Copy(io.Discard, os.Stdin) // until the parent is gone
		os.Exit(0)
	}
	code := m.Run()
	registry.RemoveKept()
	os.Exit(code)
}

func startChild(args []string) (s *registry.Server, err error) {
	o := registry.Options{Root: args[0], Listen: "127.0.0.1:0", InsecureHTTP: true,
		Users: []registry.User{{Name: "push", Password: args[1], Role: registry.RolePush}}}
	if len(args) > 2 {
		o.Upstream, err = transfer.NewUpstream(transfer.Endpoint{Reference: args[2], CAFile: args[3], AuthFile: args[4]})
		if err != nil {
			return nil, err
		}
	}
	if s, err = registry.New(o); err != nil {
		return nil, err
	}
	return s, s.Start()
}

// child runs a registry in a process of its own and returns it with its address.
func child(t *testing.T, root string, u registry.User) (*exec.Cmd, *registrytest.Registry) {
	t.Helper()
	exe, err := os.Executable()
	require.NoError(t, err)
	cmd := exec.Command(exe)
	cmd.Env = append(os.Environ(), childEnv+"="+root+"|"+u.Password)
	_, err = cmd.StdinPipe()
	require.NoError(t, err)
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	line, err := bufio.NewReader(out).ReadString('\n')
	require.NoError(t, err)
	r := &registrytest.Registry{Addr: strings.TrimSpace(line), Push: u, Pull: u}
	r.Options.InsecureHTTP = true
	return cmd, r
}

func TestKillDuringPush(t *testing.T) {
	u, err := registry.NewUser("push", registry.RolePush)
	require.NoError(t, err)
	data := bytes.Repeat([]byte("0123456789abcdef"), 1<<16) // 1 MiB
	d := digest.FromBytes(data)
	half := len(data) / 2
	for _, stage := range []string{"upload started", "half a chunk sent", "one of two chunks done", "blob done",
		"manifest done"} {
		t.Run(stage, func(t *testing.T) {
			root := t.TempDir()
			cmd, r := child(t, root, u)
			loc := request(t, r, u, http.MethodPost, "/v2/a/b/blobs/uploads/", nil).header.Get("Location")
			switch stage {
			case "half a chunk sent":
				sendHalf(t, r, loc, data)
			case "one of two chunks done":
				require.Equal(t, http.StatusAccepted, request(t, r, u, http.MethodPatch, loc, bytes.NewReader(data[:half])).status)
			case "blob done":
				pushBlob(t, r, "a/b", data)
			case "manifest done":
				pushBlob(t, r, "a/b", data)
				body := manifestOf(pushBlob(t, r, "a/b", []byte("{}")), 2, data)
				require.Equal(t, http.StatusCreated, pushManifest(t, r, "a/b", "v1", body).status)
			}
			require.NoError(t, cmd.Process.Signal(syscall.SIGKILL))
			_ = cmd.Wait() // it was killed, that is its error

			_, r = child(t, root, u)
			got := request(t, r, u, http.MethodGet, "/v2/a/b/blobs/"+d.String(), nil)
			switch stage {
			case "blob done":
				require.Equal(t, http.StatusOK, got.status)
				assert.Equal(t, d, digest.FromBytes(got.body))
			case "manifest done":
				require.Equal(t, http.StatusOK, request(t, r, u, http.MethodGet, "/v2/a/b/manifests/v1", nil).status)
			default:
				require.Equal(t, http.StatusNotFound, got.status, "nothing half is visible")
				status := request(t, r, u, http.MethodGet, loc, nil)
				require.Equal(t, http.StatusNoContent, status.status, "the upload can go on")
				var last int
				_, err := fmt.Sscanf(status.header.Get("Range"), "0-%d", &last)
				require.NoError(t, err)
				from := last + 1
				require.Equal(t, http.StatusCreated, request(t, r, u, http.MethodPut, loc+"?digest="+d.String(),
					bytes.NewReader(data[from:])).status)
			}
		})
	}
}

// sendHalf announces data and sends half of it.
func sendHalf(t *testing.T, r *registrytest.Registry, loc string, data []byte) {
	t.Helper()
	c, err := net.Dial("tcp", r.Addr)
	require.NoError(t, err)
	t.Cleanup(func() { _ = c.Close() })
	req, err := http.NewRequest(http.MethodPatch, r.URL()+loc, nil)
	require.NoError(t, err)
	req.SetBasicAuth(r.Push.Name, r.Push.Password)
	_, err = fmt.Fprintf(c, "PATCH %s HTTP/1.1\r\nHost: x\r\nAuthorization: %s\r\nContent-Length: %d\r\n\r\n", loc,
		req.Header.Get("Authorization"), len(data))
	require.NoError(t, err)
	_, err = c.Write(data[:len(data)/2])
	require.NoError(t, err)
}

func TestFullDisk(t *testing.T) {
	if os.Geteuid() != 0 {
		if os.Getenv("CI") != "" {
			t.Fatal("needs root to mount a small tmpfs")
		}
		t.Skip("needs root to mount a small tmpfs")
	}
	for _, tc := range []struct {
		name    string
		minFree int64
	}{{"the budget stops it before", 2 << 20}, {"the disk itself is full", 1}} {
		t.Run(tc.name, func(t *testing.T) {
			root := t.TempDir()
			require.NoError(t, syscall.Mount("tmpfs", root, "tmpfs", 0, "size=12m"))
			t.Cleanup(func() { assert.NoError(t, syscall.Unmount(root, syscall.MNT_DETACH)) })
			r := registrytest.Start(t, func(o *registry.Options) { o.Root = root; o.MinFreeBytes = tc.minFree })
			layer := bytes.Repeat([]byte("z"), 4<<20)
			pushBlob(t, r, "a/b", layer)
			body := manifestOf(pushBlob(t, r, "a/b", []byte("{}")), 2, layer)
			require.Equal(t, http.StatusCreated, pushManifest(t, r, "a/b", "v1", body).status)

			big := bytes.Repeat([]byte("y"), 16<<20)
			post := "/v2/a/b/blobs/uploads/?digest=" + digest.FromBytes(big).String()
			a := request(t, r, r.Push, http.MethodPost, post, bytes.NewReader(big))
			require.Equal(t, http.StatusInsufficientStorage, a.status, "%s", a.body)
			assert.Equal(t, "INSUFFICIENT_STORAGE", a.code(t))
			a = request(t, r, r.Push, http.MethodPost, post, unsized{bytes.NewReader(big)})
			require.Equal(t, http.StatusInsufficientStorage, a.status, "also without a length: %s", a.body)

			for range 2 {
				got := request(t, r, r.Pull, http.MethodGet, "/v2/a/b/blobs/"+digest.FromBytes(layer).String(), nil)
				require.Equal(t, http.StatusOK, got.status)
				assert.Equal(t, digest.FromBytes(layer), digest.FromBytes(got.body))
				require.Equal(t, http.StatusOK, request(t, r, r.Pull, http.MethodGet, "/v2/a/b/manifests/v1", nil).status)
				r.Restart(t)
			}
			pushBlob(t, r, "a/b", []byte("small ones still fit"))
		})
	}
}

// TestFullDiskInEveryPhase takes the last byte of the disk at each step of a push: the client is told why, images are
// served and deleted, and the step succeeds when there is room, without a restart.
func TestFullDiskInEveryPhase(t *testing.T) {
	root := t.TempDir()
	require.NoError(t, syscall.Mount("tmpfs", root, "tmpfs", 0, "size=16m"))
	t.Cleanup(func() { assert.NoError(t, syscall.Unmount(root, syscall.MNT_DETACH)) })
	r := registrytest.Start(t, func(o *registry.Options) { o.Root, o.MinFreeBytes = root, 1 })
	layer := bytes.Repeat([]byte("z"), 1<<20)
	pushBlob(t, r, "a/b", layer)
	body := manifestOf(pushBlob(t, r, "a/b", []byte("{}")), 2, layer)
	require.Equal(t, http.StatusCreated, pushManifest(t, r, "a/b", "v1", body).status)
	other := []byte("another configuration")
	otherBody := manifestOf(pushBlob(t, r, "a/b", other), len(other), layer)
	fresh := func(n int) (location, query string) { // an upload with n bytes
		a := request(t, r, r.Push, http.MethodPost, "/v2/a/b/blobs/uploads/", nil)
		require.Equal(t, http.StatusAccepted, a.status)
		data := bytes.Repeat([]byte{byte(n)}, n)
		if n > 0 {
			a = request(t, r, r.Push, http.MethodPatch, a.header.Get("Location"), bytes.NewReader(data))
			require.Equal(t, http.StatusAccepted, a.status)
		}
		return a.header.Get("Location"), "?digest=" + digest.FromBytes(data).String()
	}
	for _, tc := range []struct {
		name string
		step func() func() answer // prepares it while there is room
		want int                  // with room
	}{
		{"start", func() func() answer {
			return func() answer { return request(t, r, r.Push, http.MethodPost, "/v2/c/d/blobs/uploads/", nil) }
		}, http.StatusAccepted},
		{"chunk", func() func() answer {
			location, _ := fresh(0)
			return func() answer {
				return request(t, r, r.Push, http.MethodPatch, location, unsized{bytes.NewReader(layer)})
			}
		}, http.StatusAccepted},
		{"commit", func() func() answer {
			location, query := fresh(1000)
			return func() answer { return request(t, r, r.Push, http.MethodPut, location+query, nil) }
		}, http.StatusCreated},
		{"mount", func() func() answer {
			return func() answer {
				return request(t, r, r.Push, http.MethodPost,
					"/v2/e/f/blobs/uploads/?from=a/b&mount="+digest.FromBytes(layer).String(), nil)
			}
		}, http.StatusCreated},
		{"manifest", func() func() answer {
			return func() answer { return pushManifest(t, r, "a/b", digest.FromBytes(otherBody).String(), otherBody) }
		}, http.StatusCreated},
		{"tag", func() func() answer {
			return func() answer { return pushManifest(t, r, "a/b", "v2", body) }
		}, http.StatusCreated},
	} {
		t.Run(tc.name, func(t *testing.T) {
			step := tc.step()
			filler := filepath.Join(root, "filler")
			fillDisk(t, filler)
			a := step()
			assert.Equal(t, http.StatusInsufficientStorage, a.status, "%s", a.body)
			got := request(t, r, r.Pull, http.MethodGet, "/v2/a/b/blobs/"+digest.FromBytes(layer).String(), nil)
			assert.Equal(t, digest.FromBytes(layer), digest.FromBytes(got.body))
			assert.Equal(t, http.StatusOK, request(t, r, r.Pull, http.MethodGet, "/v2/a/b/manifests/v1", nil).status)
			require.NoError(t, os.Remove(filler))
			if tc.name == "commit" || tc.name == "chunk" { // an upload that failed is gone, with what it took
				step = tc.step()
			}
			a = step()
			assert.Equal(t, tc.want, a.status, "%s", a.body)
		})
	}
	fillDisk(t, filepath.Join(root, "filler"))
	a := request(t, r, r.Push, http.MethodDelete, "/v2/a/b/manifests/"+digest.FromBytes(otherBody).String(), nil)
	assert.Equal(t, http.StatusAccepted, a.status, "%s", a.body)
	opened, err := registry.OpenRoot(t.Context(), root, nil)
	require.NoError(t, err)
	collected, err := opened.Collect(t.Context(), storage.CollectOptions{Grace: -1})
	require.NoError(t, err)
	assert.NotEmpty(t, collected.Removed)
	found, err := opened.Verify(t.Context())
	require.NoError(t, err)
	require.NoError(t, opened.Close())
	assert.Empty(t, append(found.Missing, found.Damaged...))
	assert.Empty(t, found.Corrupt)
}

// fillDisk writes until nothing more fits.
func fillDisk(t *testing.T, path string) {
	t.Helper()
	f, err := os.Create(path)
	require.NoError(t, err)
	for _, size := range []int{1 << 20, 4096, 1} {
		for err = nil; err == nil; {
			_, err = f.Write(make([]byte, size))
		}
		require.ErrorIs(t, err, syscall.ENOSPC)
	}
	require.NoError(t, f.Close())
}

func TestCorruptBlob(t *testing.T) {
	var log bytes.Buffer
	l := logrus.New()
	l.SetOutput(&log)
	r := registrytest.Start(t, func(o *registry.Options) { o.Log = logrus.NewEntry(l) })
	d := pushBlob(t, r, "a/b", []byte("good bytes"))
	file := filepath.Join(r.Options.Root, storage.Subdirectory, "blobs/sha256", d.Encoded()[:2], d.Encoded(), "data")
	require.NoError(t, os.WriteFile(file, []byte("evil bytes, more of them"), 0o600))
	a := request(t, r, r.Pull, http.MethodGet, "/v2/a/b/blobs/"+d.String(), nil)
	assert.Equal(t, http.StatusNotFound, a.status)
	assert.NotContains(t, string(a.body), "evil")
	assert.Contains(t, log.String(), d.String())
	assert.Contains(t, log.String(), "push its image again")
	m := request(t, r, r.Pull, http.MethodGet, "/metrics", nil)
	assert.Contains(t, string(m.body), "dayone_registry_blobs_corrupt_total 1")
}

func TestSlowClients(t *testing.T) {
	r := registrytest.Start(t)
	d := pushBlob(t, r, "a/b", []byte("bytes"))
	for range 200 { // half a request header each, and never more
		c, err := net.Dial("tcp", r.Addr)
		require.NoError(t, err)
		t.Cleanup(func() { _ = c.Close() })
		_, err = c.Write([]byte{0x16, 0x03, 0x01})
		require.NoError(t, err)
	}
	for range 20 {
		require.Equal(t, http.StatusOK, request(t, r, r.Pull, http.MethodGet, "/v2/a/b/blobs/"+d.String(), nil).status)
	}
}

func TestTwoPushersOfOneTag(t *testing.T) {
	r := registrytest.Start(t)
	cfg := pushBlob(t, r, "a/b", []byte("{}"))
	pushBlob(t, r, "a/b", []byte("l"))
	bodies := [][]byte{manifestOf(cfg, 2), manifestOf(cfg, 2, []byte("l"))}
	var wg sync.WaitGroup
	for i := range 2 {
		wg.Go(func() {
			for range 20 {
				assert.Equal(t, http.StatusCreated, pushManifest(t, r, "a/b", "v1", bodies[i]).status)
			}
		})
	}
	wg.Wait()
	a := request(t, r, r.Pull, http.MethodGet, "/v2/a/b/manifests/v1", nil)
	require.Equal(t, http.StatusOK, a.status)
	assert.Contains(t, []string{string(bodies[0]), string(bodies[1])}, string(a.body))
	assert.Equal(t, digest.FromBytes(a.body).String(), a.header.Get("Docker-Content-Digest"))
	r.Restart(t)
	b := request(t, r, r.Pull, http.MethodGet, "/v2/a/b/manifests/v1", nil)
	assert.Equal(t, a.body, b.body, "what was answered last is on disk")
}

func TestRestartDuringPull(t *testing.T) {
	r := registrytest.Start(t)
	data := bytes.Repeat([]byte("0123456789abcdef"), 2<<20) // 32 MiB: more than the sockets hold
	d := pushBlob(t, r, "a/b", data)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, r.URL()+"/v2/a/b/blobs/"+d.String(), nil)
	require.NoError(t, err)
	req.SetBasicAuth(r.Pull.Name, r.Pull.Password)
	resp, err := r.Transport(t).RoundTrip(req)
	require.NoError(t, err)
	got := make([]byte, 1<<20)
	_, err = io.ReadFull(resp.Body, got)
	require.NoError(t, err)
	stop, done := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer done()
	require.Error(t, r.Server.Shutdown(stop), "a client was cut")
	_, err = io.Copy(io.Discard, resp.Body)
	require.Error(t, err, "it notices")
	require.NoError(t, resp.Body.Close())
	r.Restart(t)
	rest := request(t, r, r.Pull, http.MethodGet, "/v2/a/b/blobs/"+d.String(), nil, "Range",
		fmt.Sprintf("bytes=%d-", len(got)))
	require.Equal(t, http.StatusPartialContent, rest.status)
	assert.Equal(t, d, digest.FromBytes(append(got, rest.body...)))
}

func TestShutdownWithStalledPulls(t *testing.T) {
	r := registrytest.Start(t)
	d := pushBlob(t, r, "a/b", bytes.Repeat([]byte("0123456789abcdef"), 2<<20)) // 32 MiB: more than the sockets hold
	tr := r.Transport(t)
	for range 8 {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, r.URL()+"/v2/a/b/blobs/"+d.String(), nil)
		require.NoError(t, err)
		req.SetBasicAuth(r.Pull.Name, r.Pull.Password)
		resp, err := tr.RoundTrip(req)
		require.NoError(t, err)
		t.Cleanup(func() { _ = resp.Body.Close() })
		_, err = resp.Body.Read(make([]byte, 1))
		require.NoError(t, err)
	}
	stop, done := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer done()
	began := time.Now()
	require.Error(t, r.Server.Shutdown(stop), "clients were cut")
	assert.Less(t, time.Since(began), 20*time.Second, "TLS waits five seconds for each")
}

func TestRevokedAccount(t *testing.T) {
	r := registrytest.Start(t)
	d := pushBlob(t, r, "a/b", []byte("bytes"))
	tr := r.Transport(t)
	get := func() int {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, r.URL()+"/v2/a/b/blobs/"+d.String(), nil)
		require.NoError(t, err)
		req.SetBasicAuth(r.Pull.Name, r.Pull.Password)
		resp, err := tr.RoundTrip(req) // on one kept connection
		require.NoError(t, err)
		_, err = io.Copy(io.Discard, resp.Body)
		require.NoError(t, err)
		require.NoError(t, resp.Body.Close())
		return resp.StatusCode
	}
	require.Equal(t, http.StatusOK, get())
	require.NoError(t, r.Server.SetUsers([]registry.User{r.Push}))
	assert.Equal(t, http.StatusUnauthorized, get())
	require.NoError(t, r.Server.SetUsers([]registry.User{r.Push, r.Pull}))
	assert.Equal(t, http.StatusOK, get())
	require.Error(t, r.Server.SetUsers(nil))
	assert.Equal(t, http.StatusOK, get(), "a table that is wrong changes nothing")
}

func TestReadOnly(t *testing.T) {
	r := registrytest.Start(t)
	d := pushBlob(t, r, "a/b", []byte("bytes"))
	r.Options.ReadOnly = true
	r.Restart(t)
	a := request(t, r, r.Push, http.MethodPost, "/v2/a/b/blobs/uploads/", nil)
	assert.Equal(t, http.StatusMethodNotAllowed, a.status)
	assert.Equal(t, "UNSUPPORTED", a.code(t))
	assert.Equal(t, http.StatusMethodNotAllowed, request(t, r, r.Push, http.MethodDelete, "/v2/a/b/blobs/"+d.String(),
		nil).status)
	assert.Equal(t, http.StatusOK, request(t, r, r.Push, http.MethodGet, "/v2/a/b/blobs/"+d.String(), nil).status)
	r.Options.ReadOnly = false
	r.Restart(t)
	pushBlob(t, r, "a/b", []byte("again"))
}

func TestCertificateValidityAtStart(t *testing.T) {
	for _, tc := range []struct {
		name string
		made time.Duration
		want string
	}{
		{"expired", -48 * time.Hour, "expired"},
		{"not yet valid", 26 * time.Hour, "set the clock"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			at := func() time.Time { return time.Now().Add(tc.made) }
			ca, err := certs.NewCA(certs.CAOptions{Now: at})
			require.NoError(t, err)
			pair, err := ca.ServerCertificate([]string{"127.0.0.1"}, certs.ServerOptions{Now: at, Validity: 24 * time.Hour})
			require.NoError(t, err)
			s, err := registry.New(registry.Options{Root: t.TempDir(), Listen: "127.0.0.1:0", Certificate: &pair,
				Users: []registry.User{{Name: "u", Password: "p", Role: registry.RolePull}}})
			require.NoError(t, err)
			require.ErrorContains(t, s.Start(), tc.want)
		})
	}
}

func TestFailedLoginsLimit(t *testing.T) {
	// An address may fail again after some seconds. Where a machine is so busy that the right password comes after them,
	// another server is asked.
	for range 10 {
		if guessedUntilLimited(t) {
			return
		}
	}
	t.Error("not even the right password is looked at")
}

// guessedUntilLimited guesses a password and says whether after that the right one is not looked at either.
func guessedUntilLimited(t *testing.T) bool {
	t.Helper()
	r := registrytest.Start(t)
	pushBlob(t, r, "a/b", []byte("bytes")) // the push account is logged in
	wrong := registry.User{Name: "pull", Password: "guess"}
	for range 40 {
		a := request(t, r, wrong, http.MethodGet, "/v2/", nil)
		if a.status == http.StatusTooManyRequests {
			assert.Equal(t, "TOOMANYREQUESTS", a.code(t))
			assert.NotEmpty(t, a.header.Get("Retry-After"))
		}
	}
	assert.Equal(t, http.StatusOK, request(t, r, r.Push, http.MethodGet, "/v2/", nil).status)
	return request(t, r, r.Pull, http.MethodGet, "/v2/", nil).status == http.StatusTooManyRequests
}

func TestOldTLS(t *testing.T) {
	r := registrytest.Start(t)
	_, err := tls.Dial(
		"tcp",
		r.Addr,
		&tls.Config{InsecureSkipVerify: true, MaxVersion: tls.VersionTLS11},
	) //nolint:gosec // it must fail
	require.Error(t, err)
}
