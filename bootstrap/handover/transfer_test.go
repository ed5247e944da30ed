package handover_test

import (
	"context"
	"crypto/tls"
	"encoding/pem"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sirupsen/logrus"
	logtest "github.com/sirupsen/logrus/hooks/test"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"dayone.dev/dayone/bootstrap/handover"
	"dayone.dev/dayone/hack/faultproxy"
	"dayone.dev/dayone/registry"
	"dayone.dev/dayone/registry/transfer"
)

// fronted is a final registry behind a proxy that spoils its answers.
type fronted struct {
	*small
	proxy *faultproxy.Proxy
	// tired is called when there were more requests than any test needs.
	tired func()
	// ca is PEM of the proxy's certificate.
	ca []byte
}

func newFronted(t *testing.T) *fronted {
	t.Helper()
	f := &fronted{tired: func() {}}
	f.small = newSmallBehind(t, func(final string) string {
		// the proxy is the only client that does not look at the real registry's certificate
		via := &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}
		t.Cleanup(via.CloseIdleConnections)
		var err error
		f.proxy, err = faultproxy.To("https://"+final, via)
		require.NoError(t, err)
		var requests atomic.Int32
		server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if requests.Add(1) > maxRequests {
				f.tired()
			}
			f.proxy.ServeHTTP(w, r)
		}))
		server.Config.ErrorLog = log.New(io.Discard, "", 0)
		server.StartTLS()
		t.Cleanup(func() { server.CloseClientConnections(); server.Close() })
		f.ca = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
		return server.Listener.Addr().String()
	})
	f.final.CAFile = filepath.Join(t.TempDir(), "proxy.crt")
	require.NoError(t, os.WriteFile(f.final.CAFile, f.ca, 0o600))
	f.final.PushAuthFile = filepath.Join(t.TempDir(), "push-auth.json")
	require.NoError(t, f.final.Push.WriteAuthFile(f.final.PushAuthFile, f.final.Addr))
	return f
}

// nowhere is a cluster that has not come yet.
func nowhere() func(context.Context) (client.Client, error) { return handover.Kubeconfig("none", "") }

// delivered runs the hand-over of images until it is done, and gives what it waited for and warned of.
func (f *fronted) delivered(policy handover.Policy) (waits, warns []string, err error) {
	f.t.Helper()
	ctx, cancel := context.WithCancel(f.t.Context())
	defer cancel()
	logger, hook := logtest.NewNullLogger()
	o := f.options(nil)
	o.Connect, f.tired = nowhere(), cancel
	o.RetryMin, o.RetryMax = time.Millisecond, time.Millisecond
	o.Policy, o.Log = policy, logrus.NewEntry(logger)
	done := false
	o.Observe = func(e handover.Event) {
		if e.Waiting != "" {
			waits = append(waits, e.Waiting)
		}
		if e.Stage == handover.StageObjects {
			done = true
			cancel()
		}
	}
	if err = handover.Run(ctx, o); done {
		err = nil
	}
	for _, entry := range hook.AllEntries() {
		if entry.Level == logrus.WarnLevel {
			warns = append(warns, entry.Message)
		}
	}
	return waits, warns, err
}

// on keeps a fault to one method.
func on(method string, fault faultproxy.Fault) faultproxy.Fault {
	return func(w http.ResponseWriter, r *http.Request) bool { return r.Method == method && fault(w, r) }
}

// What the final registry answers before it has the image: some answers go away, some need somebody.
func TestFinalRegistryAnswersWithoutImages(t *testing.T) {
	manifests := func(code int) faultproxy.Fault { return faultproxy.On("/manifests/", faultproxy.Status(code)) }
	first := func(method string, n int32, code int) faultproxy.Fault {
		return on(method, faultproxy.On("/manifests/", faultproxy.First(n, faultproxy.Status(code))))
	}
	for _, c := range []struct {
		name   string
		fault  faultproxy.Fault
		waits  string
		fails  string
		policy handover.Policy
	}{
		{"nothing wrong", nil, "", "", handover.PolicyWait},
		{"busy for a moment", faultproxy.First(2, manifests(503)), "find ", "", handover.PolicyWait},
		{"too many requests for a moment", faultproxy.First(2, manifests(429)), "find ", "", handover.PolicyWait},
		{"odd once", faultproxy.First(1, manifests(418)), "", "", handover.PolicyWait},
		{"odd", manifests(418), "", "if its certificate is signed by a CA of your own", handover.PolicyWait},
		{"refused, and nothing is to be copied", manifests(403), "", "does not take the account of Secret os-push",
			handover.PolicySkip},
		{"no account, and nothing is to be copied", manifests(401), "", "does not take the account of Secret os-push",
			handover.PolicySkip},
		{"refused until it is pushed", first(http.MethodGet, 1, 403), "", "", handover.PolicyWait},
		{"no image, and nothing is to be copied", nil, "", "the policy is to copy nothing", handover.PolicySkip},
		{"a push that fails for a moment", first(http.MethodPut, 8, 503),
			"copy to the final registry", "", handover.PolicyWait},
		{"a push that is not allowed", on(http.MethodPut, manifests(403)), "", "correct the Secret", handover.PolicyWait},
		{"a push that never works", on(http.MethodPut, manifests(400)), "", "copy to the final registry",
			handover.PolicyWait},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := newFronted(t)
			f.proxy.Spoil(c.fault)
			waits, warns, err := f.delivered(c.policy)
			if c.fails != "" {
				require.ErrorContains(t, err, c.fails)
				return
			}
			require.NoError(t, err)
			assert.Contains(t, strings.Join(waits, "\n"), c.waits)
			assert.Equal(t, c.waits == "", len(waits) == 0, waits)
			assert.Empty(t, warns)
		})
	}
}

// A registry that takes an image and does not have it then: something removes it there.
func TestFinalRegistryLosesWhatItGets(t *testing.T) {
	f := newFronted(t)
	first := f.plan.Images[0]
	f.proxy.Spoil(func(w http.ResponseWriter, r *http.Request) bool {
		lost := r.Method != http.MethodPut && strings.HasSuffix(r.URL.Path, "/manifests/"+first.Digest)
		return lost && faultproxy.Status(404)(w, r)
	})
	ctx, cancel := context.WithCancel(t.Context())
	o, said := f.options(nil), ""
	o.Observe = func(e handover.Event) {
		if e.Waiting != "" {
			said = e.Waiting
			cancel()
		}
	}
	require.ErrorIs(t, handover.Run(ctx, o), context.Canceled)
	assert.Equal(t, first.Reference()+" was copied and is not in its final registry: see that nothing removes it there",
		said)
}

// A blob that is missing makes an image that has to be copied again.
func TestFinalRegistryWithoutABlob(t *testing.T) {
	f := newFronted(t)
	_, _, err := f.delivered(handover.PolicyWait)
	require.NoError(t, err)
	f.proxy.Spoil(on(http.MethodHead, faultproxy.On("/blobs/", faultproxy.Status(404))))
	_, _, err = f.delivered(handover.PolicySkip)
	require.ErrorContains(t, err, "is not in its final registry")
}

// An image that is there already needs its tags and its signatures only. An account that may not push them holds up
// nothing; a registry that is busy is asked again.
func TestTagsOfImagesThatAreThere(t *testing.T) {
	for _, c := range []struct {
		name  string
		fault func(tag string) faultproxy.Fault
		waits string
		warns []string
	}{
		{"all is well", func(string) faultproxy.Fault { return nil }, "", nil},
		{"a tag may not be pushed", func(tag string) faultproxy.Fault {
			return on(http.MethodPut, faultproxy.On("/manifests/"+tag, faultproxy.Status(403)))
		}, "", []string{"image is in its final registry without this tag: see that nothing removes it there"}},
		{"a tag may not be read", func(tag string) faultproxy.Fault {
			return on(http.MethodGet, faultproxy.On("/manifests/"+tag, faultproxy.Status(400)))
		}, "", []string{"image is in its final registry without this tag: see that nothing removes it there"}},
		{"busy", func(tag string) faultproxy.Fault {
			return on(http.MethodPut, faultproxy.On("/manifests/"+tag, faultproxy.First(8, faultproxy.Status(500))))
		}, "tag ", nil},
		{"a connection that ends", func(tag string) faultproxy.Fault {
			return faultproxy.On("/manifests/"+tag, faultproxy.First(8, func(http.ResponseWriter, *http.Request) bool {
				panic(http.ErrAbortHandler)
			}))
		}, "tag ", nil},
		{"too many requests", func(tag string) faultproxy.Fault {
			return on(http.MethodPut, faultproxy.On("/manifests/"+tag, faultproxy.First(8, faultproxy.Status(429))))
		}, "tag ", nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := newFronted(t)
			for _, i := range f.plan.Images {
				f.mirror(i, i.Reference())
			}
			tag := f.plan.Images[1].Tags[1]
			f.proxy.Spoil(c.fault(tag))
			waits, warns, err := f.delivered(handover.PolicyWait)
			require.NoError(t, err)
			assert.Contains(t, strings.Join(waits, "\n"), c.waits)
			assert.Equal(t, c.waits == "", len(waits) == 0, waits)
			assert.Equal(t, c.warns, warns)
		})
	}
}

// A tag that names another image in the final registry names ours in the end: it is what keeps ours from collection.
func TestTagsOfAnotherImageMove(t *testing.T) {
	f := newFronted(t)
	for _, i := range f.plan.Images {
		f.mirror(i, i.Reference())
	}
	ours := f.plan.Images[1]
	at := ours.Repository + ":" + ours.Tags[1]
	f.mirror(handover.Image{Repository: ours.Repository, Digest: f.putTag("ocp/master-os", "other")}, at)
	_, _, err := f.delivered(handover.PolicyWait)
	require.NoError(t, err)
	found, err := transfer.Inspect(t.Context(), transfer.Endpoint{Reference: at, CAFile: f.final.CAFile,
		AuthFile: f.final.PushAuthFile}, platform)
	require.NoError(t, err)
	assert.Equal(t, ours.Digest, found.Digest.String())
}

// With the policy to copy nothing, nothing is written to the final registry.
func TestSkipWritesNothing(t *testing.T) {
	f := newFronted(t)
	for _, i := range f.plan.Images {
		f.mirror(i, i.Reference())
	}
	signature := strings.Replace(f.plan.Images[1].Digest, ":", "-", 1) + ".sig"
	f.putTag("ocp/master-os", signature)
	var mu sync.Mutex
	var written []string
	f.proxy.Spoil(func(_ http.ResponseWriter, r *http.Request) bool {
		mu.Lock()
		defer mu.Unlock()
		if r.Method != http.MethodGet && r.Method != http.MethodHead {
			written = append(written, r.Method+" "+r.URL.Path)
		}
		return false
	})
	_, _, err := f.delivered(handover.PolicySkip)
	require.NoError(t, err)
	assert.Empty(t, written)
	_, _, err = f.delivered(handover.PolicyWait)
	require.NoError(t, err)
	assert.Contains(t, written, "PUT /v2/ocp/master-os/manifests/"+f.plan.Images[1].Tags[0])
	assert.Contains(t, written, "PUT /v2/ocp/master-os/manifests/"+signature)
}

// The bootstrap registry is this host's own: what it refuses has another cure.
func TestBootstrapRegistryRefuses(t *testing.T) {
	f := newFronted(t)
	o := f.options(nil)
	o.Source.AuthFile = filepath.Join(t.TempDir(), "auth.json")
	require.NoError(t, registry.User{Name: "nobody", Password: "wrong"}.WriteAuthFile(o.Source.AuthFile, f.boot.Addr))
	err := handover.Run(t.Context(), o)
	require.ErrorContains(t, err, "read from the bootstrap registry")
	require.ErrorContains(t, err, "run the hand-over on the bootstrap host, on its state directory")
}

// A registry that wants an account for an image without a push Secret.
func TestNoSecretForAnImage(t *testing.T) {
	f := newFronted(t)
	f.plan.Images[0].Secret = ""
	_, _, err := f.delivered(handover.PolicyWait)
	require.ErrorContains(t, err, "wants an account for "+f.plan.Images[0].Repository+" and no push Secret has one")
}

// The final registry's CA may come with the command, with the plan or with the cluster's trust bundle. What registry
// clients read from disk is for nobody else, and gone with the hand-over.
func TestWhereTheFinalCAComesFrom(t *testing.T) {
	for _, c := range []struct {
		name string
		put  func(f *fronted, o *handover.Options)
	}{
		{"the command", func(f *fronted, o *handover.Options) { o.FinalCAFile = f.final.CAFile }},
		{"the plan", func(f *fronted, _ *handover.Options) { f.plan.FinalCA = string(f.ca) }},
		{"the trust bundle", func(f *fronted, _ *handover.Options) {
			f.plan.Set.ControllerConfigs[0].Object.Spec.AdditionalTrustBundle = f.ca
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := newFronted(t)
			o := f.options(nil)
			o.Connect = nowhere()
			f.plan.FinalCA, o.FinalCAFile = "", ""
			c.put(f, &o)
			ctx, cancel := context.WithCancel(t.Context())
			var modes []os.FileMode
			o.Observe = func(e handover.Event) {
				if e.Stage != handover.StageObjects {
					return
				}
				files, err := filepath.Glob(filepath.Join(o.TempDir, "handover-*", "*"))
				require.NoError(t, err)
				for _, file := range files {
					info, err := os.Stat(file)
					require.NoError(t, err)
					modes = append(modes, info.Mode().Perm())
				}
				cancel()
			}
			require.ErrorIs(t, handover.Run(ctx, o), context.Canceled)
			assert.Equal(t, []os.FileMode{0o600, 0o600}, modes, "the account and the CA")
			left, err := filepath.Glob(filepath.Join(o.TempDir, "*"))
			require.NoError(t, err)
			assert.Empty(t, left)
		})
	}
}
