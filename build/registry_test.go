package build_test

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"encoding/pem"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/gofrs/flock"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/static"
	"github.com/google/go-containerregistry/pkg/v1/types"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"dayone.dev/dayone/build"
	"dayone.dev/dayone/build/appendengine"
	"dayone.dev/dayone/build/buildtest"
	"dayone.dev/dayone/registry/registrytest"
)

// front is a real registry behind a proxy, which answers some requests with a status of its own.
type front struct {
	*registrytest.Registry
	addr, caFile, authFile string
	// spoil gives the status; 0 passes the request on.
	spoil func(method, path string) int
}

func newFront(t *testing.T) *front {
	f := &front{Registry: registrytest.Start(t)}
	to, err := url.Parse(f.URL())
	require.NoError(t, err)
	proxy := &httputil.ReverseProxy{Transport: f.Transport(t), ErrorLog: log.New(io.Discard, "", 0),
		Rewrite: func(r *httputil.ProxyRequest) {
			r.SetURL(to)
			r.Out.Host = r.In.Host
		}}
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if f.spoil != nil {
			if status := f.spoil(r.Method, r.URL.Path); status != 0 {
				w.WriteHeader(status)
				return
			}
		}
		proxy.ServeHTTP(w, r)
	}))
	t.Cleanup(server.Close)
	f.addr = strings.TrimPrefix(server.URL, "https://")
	f.caFile, f.authFile = filepath.Join(t.TempDir(), "ca.pem"), filepath.Join(t.TempDir(), "auth.json")
	require.NoError(t, os.WriteFile(f.caFile, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE",
		Bytes: server.Certificate().Raw}), 0o600))
	registrytest.WriteAuthFile(t, f.authFile, f.addr, f.Push)
	return f
}

// request is a request of which everything goes through the proxy.
func (f *front) request(t *testing.T, text string) build.Request {
	r := buildtest.Request(t, f.Registry, buildtest.Push(t, f.Registry, buildtest.Base{Fixed: true}), text)
	r.Base.Reference = strings.Replace(r.Base.Reference, f.Addr, f.addr, 1)
	r.Target = strings.Replace(r.Target, f.Addr, f.addr, 1)
	r.Registry = build.Access{CAFile: f.caFile, AuthFile: f.authFile}
	return r
}

func steps(r *build.Result) []string {
	var out []string
	for _, s := range r.Steps {
		out = append(out, s.Name)
	}
	return out
}

// Which answer of a registry ends a build, and in which step; what only makes it longer does not.
func TestRegistryThatFails(t *testing.T) {
	f := newFront(t)
	f.spoil = nil
	r := f.request(t, inline)
	r.Options.Attempts = 1
	fresh, err := builder(t).Build(t.Context(), r)
	require.NoError(t, err)
	assert.Equal(t, []string{"request", "base", "config", "push", "check"}, steps(fresh))
	layer := "/os/base/blobs/" + fresh.Layers[0].Digest
	for _, c := range []struct {
		name, method, path string
		status             int
		rebuild            bool
		step               string
		class              build.Class
		reused             bool
	}{
		{name: "what is known of the address", method: "HEAD GET", path: "/manifests/build-", status: 500, step: "request",
			class: build.ClassTransient},
		{name: "the blobs of a known image", method: "HEAD", path: "/blobs/", status: 500, step: "request",
			class: build.ClassTransient},
		{name: "the note of a known image", method: "HEAD GET", path: "/manifests/note-", status: 500, reused: true},
		{name: "the base", method: "HEAD GET", path: "/os/base/manifests/", status: 500, rebuild: true, step: "base",
			class: build.ClassTransient},
		{name: "the layers of the base", method: "GET", path: layer, status: 403, rebuild: true, step: "base",
			class: build.ClassInfrastructure},
		{name: "the image's name", method: "PUT", path: "/manifests/build-", status: 403, rebuild: true, step: "push",
			class: build.ClassInfrastructure},
		{name: "the image's note", method: "PUT", path: "/manifests/note-", status: 403, rebuild: true},
	} {
		t.Run(c.name, func(t *testing.T) {
			f.spoil = func(method, path string) int {
				if strings.Contains(c.method, method) && strings.Contains(path, c.path) {
					return c.status
				}
				return 0
			}
			r := r
			r.Options.Rebuild = c.rebuild
			result, err := builder(t).Build(t.Context(), r)
			if c.step == "" {
				require.NoError(t, err)
				assert.Equal(t, c.reused, result.Reused)
				assert.Equal(t, fresh.Digest, result.Digest)
				return
			}
			failure := build.AsFailure(err)
			require.NotNil(t, failure, "%v", err)
			assert.Nil(t, result)
			assert.Equal(t, []any{c.class, c.step}, []any{failure.Class, failure.Step}, failure.Error())
		})
	}
}

// The image that an engine made is pushed once more with its labels: who cannot push that has no image.
func TestSealThatFails(t *testing.T) {
	f := newFront(t)
	pushed := 0
	f.spoil = func(method, path string) int {
		if method == http.MethodPut && strings.Contains(path, "/manifests/sha256:") {
			if pushed++; pushed > 1 {
				return http.StatusForbidden
			}
		}
		return 0
	}
	_, err := build.NewBuilder(build.BuilderOptions{Engine: &engine{}}).Build(t.Context(),
		f.request(t, "FROM configs\nRUN true\n"))
	failure := build.AsFailure(err)
	require.NotNil(t, failure, "%v", err)
	assert.Equal(t, []any{build.ClassInfrastructure, "seal"}, []any{failure.Class, failure.Step}, failure.Error())
}

// The files of a base that were read once are not read again.
func TestBaseIsReadOnce(t *testing.T) {
	reg := registrytest.Start(t)
	base := buildtest.Push(t, reg, buildtest.Base{Fixed: true})
	manifest, err := pull(t, reg, base.Reference).Manifest()
	require.NoError(t, err)
	b := builder(t)
	job := build.BaseJob{Base: base, Registry: build.Access{CAFile: reg.CAFile, AuthFile: reg.PushAuthFile}}
	require.NoError(t, b.TakeIn(t.Context(), job))
	target, _, _ := strings.Cut(base.Reference, "@")
	removeBlob(t, reg, target, manifest.Layers[0].Digest.String())
	require.NoError(t, b.TakeIn(t.Context(), job))
	require.Error(t, builder(t).TakeIn(t.Context(), job), "another builder has to")
}

// A note that is not about just this image and request says nothing: the image is checked before it is used.
func TestNotesOfAnother(t *testing.T) {
	reg := registrytest.Start(t)
	r := buildtest.Request(t, reg, buildtest.Push(t, reg, buildtest.Base{Fixed: true}), inline)
	b := builder(t)
	fresh, err := b.Build(t.Context(), r)
	require.NoError(t, err)
	client, err := appendengine.NewClient(appendengine.Access{CAFile: reg.CAFile, AuthFile: reg.PushAuthFile})
	require.NoError(t, err)
	defer client.Close()
	note := appendengine.Note{Type: "application/vnd.dayone.build.note.v1", Annotation: "dayone.dev/build-note"}
	good, found, err := note.Read(t.Context(), client, r.Target, "note-"+fresh.Address)
	require.NoError(t, err)
	require.True(t, found)
	for name, text := range map[string]string{
		"another image": strings.ReplaceAll(good, fresh.Digest, strings.TrimPrefix(someDigest, "@")),
		"another build": strings.ReplaceAll(good, fresh.Address, strings.Repeat("0", 64)),
		"no note":       "{",
	} {
		t.Run(name, func(t *testing.T) {
			note.Text = text
			require.NoError(t, note.Put(t.Context(), client, r.Target, "note-"+fresh.Address))
			for _, want := range [][]string{{"request", "base", "config", "check"}, {"request"}} {
				again, err := b.Build(t.Context(), r)
				require.NoError(t, err)
				assert.True(t, again.Reused)
				assert.Equal(t, fresh.Warnings, again.Warnings)
				assert.Equal(t, want, steps(again), "the note is written anew")
			}
		})
	}
	note.Text = "{"
	require.NoError(t, note.Put(t.Context(), client, r.Target, "note-"+fresh.Address))
	ctx, kill := context.WithCancel(t.Context())
	killed := build.NewBuilder(build.BuilderOptions{Progress: func(e build.Event) {
		if e.Phase == "check" {
			kill()
		}
	}})
	_, err = killed.Build(ctx, r)
	require.ErrorIs(t, err, context.Canceled, "who is stopped in the check does not build")
}

// A build ends with its time, also before it has begun.
func TestTimeOfABuild(t *testing.T) {
	reg := registrytest.Start(t)
	r := buildtest.Request(t, reg, buildtest.Push(t, reg, buildtest.Base{Fixed: true}), "")
	over, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := build.NewBuilder(build.BuilderOptions{}).Build(over, r)
	require.ErrorIs(t, err, context.Canceled)

	state := t.TempDir()
	address, err := r.Address()
	require.NoError(t, err)
	require.NoError(t, os.Mkdir(filepath.Join(state, "locks"), 0o700))
	other := flock.New(filepath.Join(state, "locks", address))
	require.NoError(t, other.Lock())
	r.Options.Timeout = time.Millisecond
	_, err = build.NewBuilder(build.BuilderOptions{StateDir: state}).Build(t.Context(), r)
	require.ErrorContains(t, err, "wait for the same build in another process")
	require.NoError(t, other.Close())
}

// A builder without a state directory leaves nothing where it runs, and one with it keeps the base's files there.
func TestStateOfABuilder(t *testing.T) {
	reg := registrytest.Start(t)
	r := buildtest.Request(t, reg, buildtest.Push(t, reg, buildtest.Base{Fixed: true}), "")
	here, state := t.TempDir(), t.TempDir()
	t.Chdir(here)
	for _, dir := range []string{"", state} {
		_, err := build.NewBuilder(build.BuilderOptions{StateDir: dir}).Build(t.Context(), r)
		require.NoError(t, err)
		r.Options.Rebuild = true
	}
	left, err := os.ReadDir(here)
	require.NoError(t, err)
	assert.Empty(t, left)
	kept, err := os.ReadDir(filepath.Join(state, "bases"))
	require.NoError(t, err)
	assert.NotEmpty(t, kept)
}

// A config that Ignition refuses is its author's fault, before anything is read.
func TestConfigThatIgnitionRefuses(t *testing.T) {
	reg := registrytest.Start(t)
	r := buildtest.Request(t, reg, buildtest.Push(t, reg, buildtest.Base{Fixed: true}), "")
	for _, c := range []struct{ name, raw, step string }{
		{"a version to come", `{"ignition":{"version":"9.9.9"}}`, "config"}, {"no config", "{", "request"},
	} {
		r.Config.Spec.Config.Raw = []byte(c.raw)
		_, err := builder(t).Build(t.Context(), r)
		f := build.AsFailure(err)
		require.NotNil(t, f, "%s: %v", c.name, err)
		assert.Equal(t, c.step, f.Step, c.name)
	}
	_, err := r.Ground()
	require.ErrorContains(t, err, "address of build", "what has no address has no ground")
	_, err = r.Address()
	require.ErrorContains(t, err, "address of build")
}

// layerOf packs files into one layer: the same files at another level are packed otherwise.
func layerOf(t *testing.T, level int, files ...tar.Header) v1.Layer {
	t.Helper()
	var out bytes.Buffer
	packed, err := gzip.NewWriterLevel(&out, level)
	require.NoError(t, err)
	w := tar.NewWriter(packed)
	for _, h := range files {
		h.Size = 1000
		require.NoError(t, w.WriteHeader(&h))
		_, err = w.Write(bytes.Repeat([]byte("a"), 1000))
		require.NoError(t, err)
	}
	require.NoError(t, w.Close())
	require.NoError(t, packed.Close())
	return static.NewLayer(out.Bytes(), types.DockerLayer)
}

// withLayers is an image like another with these layers instead.
func withLayers(t *testing.T, like v1.Image, layers ...v1.Layer) v1.Image {
	t.Helper()
	file, err := like.ConfigFile()
	require.NoError(t, err)
	file = file.DeepCopy()
	file.RootFS.DiffIDs, file.History = nil, nil
	image, err := mutate.ConfigFile(empty.Image, file)
	require.NoError(t, err)
	image, err = mutate.AppendLayers(image, layers...)
	require.NoError(t, err)
	return image
}

// A layer that cannot be unpacked is named, and one that is packed in another way only says so.
func TestCompareLayers(t *testing.T) {
	reg := registrytest.Start(t)
	base := pull(t, reg, buildtest.Push(t, reg, buildtest.Base{Fixed: true}).Reference)
	access := build.Access{CAFile: reg.CAFile, AuthFile: reg.PullAuthFile}
	file, other := tar.Header{Name: "etc/a", Mode: 0o644}, tar.Header{Name: "etc/b", Mode: 0o644}
	good := pushImage(t, reg, "good", withLayers(t, base, layerOf(t, 1, file, other), layerOf(t, 1, file)))
	whole, err := layerOf(t, 0, file).Compressed()
	require.NoError(t, err)
	defer whole.Close()
	var raw bytes.Buffer
	_, err = raw.ReadFrom(whole)
	require.NoError(t, err)
	odd := func(content []byte) v1.Layer { return static.NewLayer(content, types.DockerLayer) }
	var noTar bytes.Buffer
	w := gzip.NewWriter(&noTar)
	_, err = w.Write(bytes.Repeat([]byte("no tar"), 1000))
	require.NoError(t, err)
	require.NoError(t, w.Close())
	for _, c := range []struct {
		name  string
		layer v1.Layer
		says  string
		fails bool
	}{
		{"packed in another way", layerOf(t, 9, file), "order or packing of the same files", false},
		{"another mode", layerOf(t, 1, tar.Header{Name: "etc/a", Mode: 0o600}), "mode", false},
		{"no gzip", odd([]byte("no gzip, and long enough")), "compare layer 1: unpack", true},
		{"no tar", odd(noTar.Bytes()), "compare layer 1: unpack", true},
		{"cut in a file", odd(raw.Bytes()[:700]), "compare layer 1: unpack etc/a", true},
	} {
		t.Run(c.name, func(t *testing.T) {
			second := pushImage(t, reg, "odd", withLayers(t, base, layerOf(t, 1, file, other), c.layer))
			for _, pair := range [][2]string{{good, second}, {second, good}} {
				list, err := build.Compare(t.Context(), access, "linux/amd64", pair[0], pair[1])
				if c.fails {
					require.ErrorContains(t, err, c.says)
					continue
				}
				require.NoError(t, err)
				require.Len(t, list, 1)
				assert.Equal(t, c.says, list[0].What)
				assert.Equal(t, 1, list[0].Layer)
			}
		})
	}
	lost := layerOf(t, 1, tar.Header{Name: "etc/lost", Mode: 0o644})
	gone, err := lost.Digest()
	require.NoError(t, err)
	second := pushImage(t, reg, "lost", withLayers(t, base, layerOf(t, 1, file, other), lost))
	removeBlob(t, reg, reg.Addr+"/os/compare", gone.String())
	for _, pair := range [][2]string{{good, second}, {second, good}} {
		_, err := build.Compare(t.Context(), access, "linux/amd64", pair[0], pair[1])
		require.ErrorContains(t, err, "compare layer 1", "a layer that the registry has lost")
	}
	for _, layer := range []string{"fewer", "more"} {
		images := map[string]v1.Image{"fewer": withLayers(t, base, layerOf(t, 1, file)),
			"more": withLayers(t, base, layerOf(t, 1, file, other), layerOf(t, 1, file), layerOf(t, 1, other))}
		list, err := build.Compare(t.Context(), access, "linux/amd64", good, pushImage(t, reg, layer, images[layer]))
		require.NoError(t, err)
		require.Len(t, list, 1, layer)
		assert.Contains(t, list[0].What, "number of layers")
	}
}

// An image is refused that does not stand on its base, whatever the engine says.
func TestEngineThatSpoilsTheBase(t *testing.T) {
	reg := registrytest.Start(t)
	from := buildtest.Push(t, reg, buildtest.Base{Fixed: true, Layers: 1, LayerSize: 100})
	base := pull(t, reg, from.Reference)
	layers, err := base.Layers()
	require.NoError(t, err)
	more := layerOf(t, 1, tar.Header{Name: "etc/a", Mode: 0o644})
	unlabelled, err := mutate.Config(base, v1.Config{})
	require.NoError(t, err)
	relabelled, err := base.ConfigFile()
	require.NoError(t, err)
	relabelled = relabelled.DeepCopy()
	relabelled.Config.Labels["ostree.final-diffid"] = "x"
	changed, err := mutate.ConfigFile(base, relabelled)
	require.NoError(t, err)
	for _, c := range []struct {
		name  string
		image v1.Image
		says  string
	}{
		{"fewer layers", withLayers(t, base, layers[0]), "the image has fewer layers than its base"},
		{"another layer in place of the base's", withLayers(t, base, layers[0], more), "layer 1 is sha256:"},
		{"no label of a bootable image", unlabelled, "neither the label containers.bootc nor ostree.bootable"},
		{"another label of ostree's", changed, "changes the base's label ostree.final-diffid"},
		{"no kernel", withLayers(t, base, append(layers[:len(layers):len(layers)], layerOf(t, 1,
			tar.Header{Name: "usr/lib/modules/6.1.0/.wh.vmlinuz", Mode: 0o644}))...), "the image has no kernel"},
		{"a layer that is no archive", withLayers(t, base, append(layers[:len(layers):len(layers)],
			static.NewLayer([]byte("no gzip at all"), types.DockerLayer))...), "layer"},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := buildtest.Request(t, reg, from, "FROM configs\nRUN true\n")
			ref := pushImageTo(t, r.Target+":engine", reg, c.image)
			e := &engine{changed: ref[strings.Index(ref, "@")+1:]}
			_, err := build.NewBuilder(build.BuilderOptions{Engine: e}).Build(t.Context(), r)
			require.NotNil(t, build.AsFailure(err), "%v", err)
			assert.Contains(t, err.Error(), c.says)
		})
	}
}
