package day1

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	"github.com/sirupsen/logrus"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"dayone.dev/dayone/bootstrap/journal"
	"dayone.dev/dayone/bootstrap/preflight"
	"dayone.dev/dayone/build"
	"dayone.dev/dayone/build/buildtest"
	"dayone.dev/dayone/build/sign"
	"dayone.dev/dayone/installconfig"
	"dayone.dev/dayone/manifests"
	"dayone.dev/dayone/manifests/assets/cluster"
	"dayone.dev/dayone/registry/registrytest"
	"dayone.dev/dayone/registry/transfer"
)

// host is one whose images need no container: its Containerfiles have labels only. Its base image is in a registry
// elsewhere.
type host struct {
	Host
	t      *testing.T
	source *registrytest.Registry
	base   build.Image
}

const baseName = "quay.example.com/ocp/base-os"

func newHost(t *testing.T) *host {
	t.Helper()
	h := &host{t: t, source: registrytest.Start(t)}
	h.base = buildtest.Push(t, h.source, buildtest.Base{Fixed: true})
	log := logrus.New()
	log.SetOutput(t.Output())
	address := net.JoinHostPort("127.0.0.1", strconv.Itoa(registrytest.Port(t)))
	pool := func(name string, at installconfig.BuildAt) preflight.Pool {
		return preflight.Pool{Pool: installconfig.Pool{Name: name, BuildAt: at},
			MachineOSConfig: manifests.NewItem(&mcfgv1.MachineOSConfig{}),
			Containerfile:   "FROM configs\nLABEL pool=" + name + "\n", Repository: "quay.example.com/ocp/" + name + "-os"}
	}
	h.Host = Host{Options: Options{StateDir: filepath.Join(t.TempDir(), "state"), Log: logrus.NewEntry(log),
		NewEngine: func(string) (build.ContainerEngine, error) { return nil, nil }}.WithDefaults(),
		Registry: address, Listen: address, Names: []string{"127.0.0.1"}, ProveName: true,
		In: &preflight.Input{Set: &manifests.Set{}, Sidecar: &installconfig.Sidecar{}, Pools: []preflight.Pool{
			pool("master", installconfig.BuildAtBootstrap), pool("worker", installconfig.BuildAtCluster),
			pool("infra", installconfig.BuildAtBootstrap)}}}
	return h
}

// flow is a small implementation of what differs between the flows. It fails in the step that the test names.
type flow struct {
	h     *host
	fails string
	// did are the steps that began; saw is what the last of them got.
	did []string
	saw Layered[string]
	// signatures runs before those of the base are copied once more.
	signatures func()
}

var errFlow = errors.New("this step fails")

func (f *flow) step(name string) error {
	f.did = append(f.did, name)
	if name == f.fails {
		return errFlow
	}
	return nil
}

func (f *flow) First(ctx context.Context, _ *journal.Run, r *Registry) (string, Sources, error) {
	if err := f.step("first"); err != nil {
		return "", Sources{}, err
	}
	from := transfer.Endpoint{Reference: f.h.base.Reference, CAFile: f.h.source.CAFile, AuthFile: f.h.source.PullAuthFile}
	base, err := r.Import(ctx, from, baseName, "base-1")
	out := Sources{Pools: map[string]Source{}, Copies: map[string]string{baseName + "@" + base.Digest: base.Reference}}
	if f.signatures != nil {
		out.Signatures = func(ctx context.Context, image string) error {
			assert.Equal(f.h.t, baseName+"@"+base.Digest, image)
			f.signatures()
			return r.CopySignatures(ctx, from, image, "base-1")
		}
	}
	for _, p := range BuiltHere(f.h.In) {
		out.Pools[p.Name] = Source{Config: buildtest.Config(f.h.t, nil), Controller: &mcfgv1.ControllerConfigSpec{},
			Base: baseName + "@" + base.Digest}
	}
	return "rendered first", out, err
}

func (f *flow) Final(_ context.Context, _ *journal.Run, l Layered[string]) (Rendered, error) {
	f.saw = l
	return Rendered{Configs: map[string]string{"master": "rendered-master-2"}}, f.step("final")
}

func (f *flow) Serve(_ context.Context, _ *journal.Run, l Layered[string], final Rendered) (Finisher, error) {
	assert.Equal(f.h.t, f.saw, l)
	assert.Equal(f.h.t, "rendered-master-2", final.Configs["master"])
	return f, f.step("serve")
}

func (f *flow) Finish(context.Context, *journal.Run) error { return f.step("finish") }

// run is Day 1 on the host's state directory; it gives the events as "phase kind".
func (h *host) run(f *flow) (events []string, err error) {
	h.t.Helper()
	j, err := journal.Open(h.StateDir)
	require.NoError(h.t, err)
	r := journal.Begin(j, Phases(h.In, nil, nil), func(e journal.Event) {
		events = append(events, e.Record.Name+" "+string(e.Kind))
	}, h.Now, h.Log)
	f.h = h
	return events, Run(h.t.Context(), r, h.Host, f, f)
}

func TestRun(t *testing.T) {
	h := newHost(t)
	require.NoError(t, os.MkdirAll(h.StateDir, 0o700))
	told := map[string]bool{}
	h.BuildProgress = func(pool string, _ build.Event) { told[pool] = true }
	f := &flow{}
	events, err := h.run(f)
	require.NoError(t, err)
	assert.Equal(t, map[string]bool{"master": true, "infra": true}, told)
	recorded := slices.DeleteFunc(events, func(e string) bool { return !strings.HasSuffix(e, " recorded") })
	assert.Equal(t, []string{"identity recorded", "registry recorded", "build-master recorded", "build-infra recorded"},
		recorded)
	assert.Equal(t, []string{"first", "final", "serve", "finish"}, f.did)
	assert.Equal(t, "rendered first", f.saw.First)
	require.Len(t, f.saw.Images, 2, "the cluster builds worker")
	for pool, built := range f.saw.Images {
		assert.Equal(t, h.Registry+"/ocp/"+pool+"-os@"+built.Digest, built.Reference)
	}
	assert.DirExists(t, h.Path("build"))
	assert.NoDirExists(t, h.Path("build", "master"), "one storage, for one build at a time")

	out, err := Outcome(h.Host, f.saw)
	require.NoError(t, err)
	require.Len(t, out.Built, 2)
	assert.Equal(t, "quay.example.com/ocp/master-os", out.Built["master"].Repository)
	assert.Equal(t, "quay.example.com/ocp/infra-os", out.Built["infra"].Repository)
	assert.NotEqual(t, out.Built["master"].Ground, out.Built["infra"].Ground)

	digest := f.saw.Images["master"].Digest
	f = &flow{}
	events, err = h.run(f)
	require.NoError(t, err)
	assert.Contains(t, events, "build-master reused")
	assert.Contains(t, events, "build-infra reused")

	// A blob of an image is lost: that image is made again, the same one, and the other is not.
	require.NoError(t, filepath.WalkDir(h.Path(RegistryDir), func(path string, d os.DirEntry, err error) error {
		if err == nil && strings.Contains(path, strings.TrimPrefix(digest, "sha256:")) && d.Name() == "data" {
			return os.Remove(path)
		}
		return nil
	}))
	f = &flow{}
	events, err = h.run(f)
	require.NoError(t, err)
	assert.Contains(t, events, "build-master recorded")
	assert.Contains(t, events, "build-infra reused")
	assert.Equal(t, digest, f.saw.Images["master"].Digest)

	h.In.Pools[2].Containerfile = "FROM configs\nLABEL pool=another\n"
	events, err = h.run(&flow{})
	require.NoError(t, err)
	assert.Contains(t, events, "build-master reused")
	assert.Contains(t, events, "build-infra recorded", "another Containerfile is another image")
}

// A step that fails ends Day 1: nothing that comes after it begins, and the registry's port is free again.
func TestRunEndsAtAFailure(t *testing.T) {
	for _, c := range []struct {
		name  string
		spoil func(t *testing.T, h *host)
		fails string
		did   []string
		says  string
	}{
		{name: "identity", spoil: func(t *testing.T, h *host) {
			require.NoError(t, os.WriteFile(IdentityDir(h.StateDir), nil, 0o600))
		}, says: "make identity directory"},
		{name: "registry's port", spoil: func(t *testing.T, h *host) {
			other, err := net.Listen("tcp", h.Listen)
			require.NoError(t, err)
			t.Cleanup(func() { other.Close() })
		}, says: "the embedded registry cannot listen on port"},
		{name: "registry's name", spoil: func(t *testing.T, h *host) {
			h.Registry = net.JoinHostPort("127.0.0.1", strconv.Itoa(registrytest.Port(t)))
		}, says: "the embedded registry does not answer at"},
		{name: "first rendering", fails: "first", did: []string{"first"}, says: errFlow.Error()},
		{name: "a build", spoil: func(_ *testing.T, h *host) { h.In.Pools[2].Containerfile = "FROM configs\nRUN true\n" },
			did: []string{"first"}, says: "no engine that runs containers"},
		{name: "CA of the base image's registry", spoil: func(_ *testing.T, h *host) { h.BaseCAFile = "none.crt" },
			did: []string{"first"}, says: "read CA of the base image's registry"},
		{name: "registry's directory", spoil: func(t *testing.T, h *host) {
			require.NoError(t, os.WriteFile(h.Path(RegistryDir), nil, 0o600))
		}, says: "registry"},
		{name: "final rendering", fails: "final", did: []string{"first", "final"}, says: errFlow.Error()},
		{name: "serving", fails: "serve", did: []string{"first", "final", "serve"}, says: errFlow.Error()},
		{name: "finishing", fails: "finish", did: []string{"first", "final", "serve", "finish"}, says: errFlow.Error()},
	} {
		t.Run(c.name, func(t *testing.T) {
			h := newHost(t)
			require.NoError(t, os.MkdirAll(h.StateDir, 0o700))
			if c.spoil != nil {
				c.spoil(t, h)
			}
			f := &flow{fails: c.fails}
			_, err := h.run(f)
			require.ErrorContains(t, err, c.says)
			assert.Equal(t, c.did, f.did)
			if c.name != "registry's port" {
				again, err := net.Listen("tcp", h.Listen)
				require.NoError(t, err, "the registry has stopped")
				require.NoError(t, again.Close())
			}
		})
	}
}

// Builds at the same time have a storage each, and one that fails does not stop the other.
func TestBuildsTogether(t *testing.T) {
	h := newHost(t)
	require.NoError(t, os.MkdirAll(h.StateDir, 0o700))
	h.Together = true
	h.In.Pools[0].Containerfile = "FROM configs\nRUN true\n"
	events, err := h.run(&flow{})
	require.ErrorContains(t, err, "no engine that runs containers")
	assert.Contains(t, events, "build-infra recorded")
	assert.Contains(t, events, "build-master failed")
	for _, pool := range []string{"master", "infra"} {
		assert.DirExists(t, h.Path("build", pool))
	}
	h.Together = false
	h.In.Pools[2].Containerfile = "FROM configs\nLABEL pool=another\n"
	events, err = h.run(&flow{})
	require.ErrorContains(t, err, "no engine that runs containers")
	assert.NotContains(t, events, "build-infra started", "one after the other")
}

// An engine that cannot be opened, and a build directory that cannot be made, are no Containerfile's fault.
func TestBuilderNeedsItsPlace(t *testing.T) {
	h := newHost(t)
	h.NewEngine = func(string) (build.ContainerEngine, error) { return nil, errors.New("no user namespaces") }
	_, err := newBuilder(h.Host, "master", nil)
	require.EqualError(t, err, "no user namespaces")
	require.NoError(t, os.RemoveAll(h.StateDir))
	require.NoError(t, os.WriteFile(h.StateDir, nil, 0o600))
	_, err = newBuilder(h.Host, "master", nil)
	require.ErrorContains(t, err, "make build directory")
}

// How a build reaches registries: by the install directory's words, this host's, and the CA of the command line.
func TestAccess(t *testing.T) {
	h := newHost(t)
	id, err := loadIdentity(h.StateDir, h.Registry)
	require.NoError(t, err)
	r := &Registry{Address: h.Registry, Identity: id}
	pool := h.In.Pools[0]
	a, conf, err := h.access(r, pool)
	require.NoError(t, err)
	assert.Equal(t, build.Access{CAFile: id.CAFile, AuthFile: id.PushAuth}, a)
	assert.Empty(t, conf)

	h.BaseCAFile = filepath.Join(t.TempDir(), "base.crt")
	_, _, err = h.access(r, pool)
	require.ErrorContains(t, err, "read CA of the base image's registry")
	require.NoError(t, os.WriteFile(h.BaseCAFile, []byte("of the base\n"), 0o600))
	a, _, err = h.access(r, pool)
	require.NoError(t, err)
	raw, err := os.ReadFile(a.CAFile)
	require.NoError(t, err)
	assert.Equal(t, string(id.CAPEM)+"of the base\n", string(raw))

	pool.BasePull = []byte("{")
	_, _, err = h.access(r, pool)
	require.Error(t, err)
	_, err = NewRequest(h.Host, r, Sources{}, pool)
	require.Error(t, err)
	h.Images.Auth, pool.BasePull = []byte("{"), nil
	_, _, err = h.access(r, pool)
	require.Error(t, err)
	_, err = Outcome(h.Host, Layered[string]{Registry: r})
	require.Error(t, err)
}

// The builder in the cluster signs with the key that this host signs with, and not without it.
func TestSigningSecret(t *testing.T) {
	h := newHost(t)
	id, err := h.makeIdentity(t.Context())
	require.NoError(t, err)
	keys, err := id.Keys()
	require.NoError(t, err)
	s, err := SigningSecret(id, []byte("{}"))
	require.NoError(t, err)
	assert.Equal(t, cluster.DefaultNamespace+"/"+cluster.SigningKey, s.Namespace+"/"+s.Name)
	assert.Equal(t, string(keys.Key.Public), string(s.Data[sign.PublicFile]))
	assert.Equal(t, "{}", string(s.Data[sign.BasePolicyFile]))
	dir := t.TempDir()
	for _, name := range []string{sign.KeyFile, sign.PassphraseFile} {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), s.Data[name], 0o600))
	}
	key, err := sign.Load(filepath.Join(dir, sign.KeyFile), filepath.Join(dir, sign.PassphraseFile))
	require.NoError(t, err)
	assert.Equal(t, keys.Key.Public, key.Public)
	s, err = SigningSecret(id, nil)
	require.NoError(t, err)
	assert.NotContains(t, s.Data, sign.BasePolicyFile)

	require.NoError(t, os.Remove(id.passphraseFile))
	_, err = SigningSecret(id, nil)
	require.ErrorContains(t, err, "read signing key")
	other := newHost(t)
	require.NoError(t, os.MkdirAll(IdentityDir(other.StateDir), 0o700))
	require.NoError(t, os.WriteFile(filepath.Join(IdentityDir(other.StateDir), signingDir), nil, 0o600))
	blocked, err := other.makeIdentity(t.Context())
	require.NoError(t, err, "the key is needed later")
	_, err = blocked.Keys()
	require.Error(t, err)
	id.Keys = func() (*sign.Keys, error) { return nil, errFlow }
	_, err = SigningSecret(id, nil)
	require.ErrorIs(t, err, errFlow)
}

// A base that is signed after it was copied is built from. Its signatures are copied again only where a policy has
// refused it.
func TestBaseThatIsSignedLater(t *testing.T) {
	h := newHost(t)
	vendor, err := sign.LoadOrCreate(t.TempDir())
	require.NoError(t, err)
	h.In.Signing.BasePolicy = fmt.Appendf(nil, `{"default":[{"type":"reject"}],"transports":{"docker":{%q:[{`+
		`"type":"sigstoreSigned","keyData":%q,"signedIdentity":{"type":"matchRepository"}}]}}}`, baseName,
		base64.StdEncoding.EncodeToString(vendor.Public))
	require.NoError(t, os.MkdirAll(h.StateDir, 0o700))
	asked := 0
	_, err = h.run(&flow{signatures: func() { asked++ }})
	require.True(t, build.BaseRefused(err), "%v", err)
	assert.Equal(t, 1, asked)
	_, err = h.run(&flow{signatures: func() {
		asked++
		_, err := vendor.Sign(t.Context(), sign.Image{Repository: baseName, Endpoint: transfer.Endpoint{
			Reference: h.base.Reference, CAFile: h.source.CAFile, AuthFile: h.source.PushAuthFile}})
		require.NoError(t, err)
	}})
	require.NoError(t, err)
	assert.Equal(t, 2, asked, "the second pool finds it signed")
}

// The base is taken in for every pool that is built here; what fails is said and is the build's to say again.
func TestTakeIn(t *testing.T) {
	h := newHost(t)
	require.NoError(t, os.MkdirAll(h.StateDir, 0o700))
	id, err := loadIdentity(h.StateDir, h.Registry)
	require.NoError(t, err)
	r, err := startRegistry(t.Context(), h.Host, id)
	require.NoError(t, err)
	t.Cleanup(r.stop)
	base, err := r.Import(t.Context(), transfer.Endpoint{Reference: h.base.Reference, CAFile: h.source.CAFile,
		AuthFile: h.source.PullAuthFile}, baseName, "base-1")
	require.NoError(t, err)
	assert.Positive(t, base.Bytes)
	require.NoError(t, r.Holds(t.Context(), base.Reference))

	logger, said := newLog()
	h.Log = logger
	TakeIn(t.Context(), h.Host, r, base.Reference)
	assert.Equal(t, []string{"info: base image is ready for the build", "info: base image is ready for the build"}, said())
	TakeIn(t.Context(), h.Host, r, r.Name("quay.example.com/none")+"@sha256:"+strings.Repeat("1", 64))
	assert.Equal(t, slices.Repeat([]string{
		"warning: base image is not ready for the build, which will take it in itself"}, 2), said()[2:])
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	TakeIn(ended, h.Host, r, base.Reference)
	assert.Len(t, said(), 4, "who stops hears nothing of it")
}
