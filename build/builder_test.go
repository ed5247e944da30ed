package build_test

import (
	"encoding/json"
	"net/http"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"dayone.dev/dayone/build"
	"dayone.dev/dayone/build/appendengine"
	"dayone.dev/dayone/build/basetree"
	"dayone.dev/dayone/build/buildtest"
	"dayone.dev/dayone/installconfig/report"
	"dayone.dev/dayone/registry/registrytest"
)

func builder(t *testing.T) *build.Builder {
	return build.NewBuilder(build.BuilderOptions{StateDir: t.TempDir(), RetryDelay: time.Millisecond})
}

// pull reads an image back with another client than the one that pushed it.
func pull(t *testing.T, r *registrytest.Registry, reference string) v1.Image {
	t.Helper()
	ref, err := name.NewDigest(reference)
	require.NoError(t, err)
	img, err := remote.Image(ref, remote.WithTransport(r.Transport(t)),
		remote.WithAuth(&authn.Basic{Username: r.Pull.Name, Password: r.Pull.Password}))
	require.NoError(t, err)
	return img
}

func treeOf(t *testing.T, r *registrytest.Registry, reference string) *basetree.Tree {
	t.Helper()
	client, err := appendengine.NewClient(appendengine.Access{CAFile: r.CAFile, AuthFile: r.PullAuthFile})
	require.NoError(t, err)
	defer client.Close()
	image, err := client.Read(t.Context(), reference, "linux/amd64")
	require.NoError(t, err)
	layers, err := image.Layers(0)
	require.NoError(t, err)
	tree, err := basetree.Read(t.Context(), layers)
	require.NoError(t, err)
	return tree
}

const inline = "FROM configs\nENV MODE=day1\nLABEL team=\"edge $MODE\" containers.bootc=2\n" +
	"COPY <<EOF /etc/inline.conf\nmode=$MODE\nEOF\nCOPY --chmod=0755 <<'EOF' /usr/bin/hello\n#!/bin/sh\necho $1\nEOF\n"

func TestAppend(t *testing.T) {
	for kind, base := range map[string]buildtest.Base{"OCI": {Layers: 3, LayerSize: 1000},
		"Docker": {Layers: 3, LayerSize: 1000, Docker: true}} {
		t.Run(kind, func(t *testing.T) {
			reg := registrytest.Start(t)
			from := buildtest.Push(t, reg, base)
			r := buildtest.Request(t, reg, from, inline)
			result, err := builder(t).Build(t.Context(), r)
			require.NoError(t, err)
			assert.Equal(t, build.EngineAppend, result.Engine)
			assert.Equal(t, "the Containerfile has only LABEL, ENV and COPY of inline files", result.Reason)
			assert.Equal(t, r.Target+"@"+result.Digest, result.Reference)

			before, after := pull(t, reg, from.Reference), pull(t, reg, result.Reference)
			old, err := before.Manifest()
			require.NoError(t, err)
			now, err := after.Manifest()
			require.NoError(t, err)
			assert.Equal(t, old.Layers, now.Layers[:len(old.Layers)], "the base's layers are its own, in order")
			assert.Len(t, now.Layers, len(old.Layers)+3, "config and two files")
			for i, from := range []string{"base", "base", "base", "base", "config", "containerfile", "containerfile"} {
				assert.Equal(t, from, result.Layers[i].From)
			}
			assert.Equal(t, old.MediaType, now.MediaType)
			file, err := after.ConfigFile()
			require.NoError(t, err)
			baseFile, err := before.ConfigFile()
			require.NoError(t, err)
			address, err := r.Address()
			require.NoError(t, err)
			assert.Equal(t, baseFile.Config.Labels["ostree.final-diffid"], file.Config.Labels["ostree.final-diffid"])
			for label, want := range map[string]string{
				"team": "edge day1", "containers.bootc": "2", "version": "1", build.LabelAddress: address,
				build.LabelPool:           "master",
				build.LabelRenderedConfig: "rendered-master-0123", build.LabelConfigHash: result.Inputs.ConfigHash,
				build.LabelBaseDigest: strings.Split(from.Reference, "@")[1],
			} {
				assert.Equal(t, want, file.Config.Labels[label], label)
			}
			assert.Contains(t, file.Config.Env, "MODE=day1")
			assert.Equal(t, baseFile.Created, file.Created, "the time is the base's")
			var empty, full int
			for _, h := range file.History {
				if h.EmptyLayer {
					empty++
				} else {
					full++
				}
			}
			assert.Equal(t, len(now.Layers), full, "one entry of history per layer")
			assert.Equal(t, 2, empty, "and one for LABEL and ENV each")
			layers, err := after.Layers()
			require.NoError(t, err)
			for i, l := range layers {
				diff, err := l.DiffID()
				require.NoError(t, err)
				assert.Equal(t, file.RootFS.DiffIDs[i], diff, "layer %d unpacks to what the configuration says", i)
			}

			tree := treeOf(t, reg, result.Reference)
			text := func(p string) string { c, _ := tree.Content(p); return string(c) }
			assert.Equal(t, "config\n", text("/etc/from-config"))
			assert.Equal(t, "mode=day1\n", text("/etc/inline.conf"))
			hello, _ := tree.Lookup("/usr/bin/hello")
			assert.Equal(t, int64(0o755), hello.Mode)
			link, _ := tree.Lookup("/etc/systemd/system/multi-user.target.wants/vendor.service")
			assert.Equal(t, "/usr/lib/systemd/system/vendor.service", link.Link)
			raw, err := json.Marshal(result)
			require.NoError(t, err)
			assert.NotContains(t, string(raw), reg.Push.Password)
		})
	}
}

func TestReuse(t *testing.T) {
	reg := registrytest.Start(t)
	r := buildtest.Request(t, reg, buildtest.Push(t, reg, buildtest.Base{}), inline)
	b := builder(t)
	first, err := b.Build(t.Context(), r)
	require.NoError(t, err)
	assert.False(t, first.Reused)
	again, err := b.Build(t.Context(), r)
	require.NoError(t, err)
	assert.True(t, again.Reused)
	assert.Equal(t, first.Digest, again.Digest)
	assert.Equal(t, []string{"6.1.0"}, first.Kernels)
	assert.Equal(t, first.Kernels, again.Kernels, "a reused image has its kernels, too")
	assert.Equal(t, first.Engine, again.Engine, "a reused image tells the engine that made it")
	assert.Equal(t, first.Layers, again.Layers, "and where its layers come from")
	assert.Equal(t, first.Size, again.Size)
	assert.Equal(t, first.Inputs, again.Inputs)

	renamed := r
	renamed.Config = r.Config.DeepCopy()
	renamed.Config.Name = "rendered-master-other"
	same, err := b.Build(t.Context(), renamed)
	require.NoError(t, err)
	assert.True(t, same.Reused, "another name for the same content is no reason to build")

	r.Options.Rebuild = true
	forced, err := b.Build(t.Context(), r)
	require.NoError(t, err)
	assert.False(t, forced.Reused)
	assert.Equal(t, first.Digest, forced.Digest, "and gives the same image")

	r.Options.Rebuild = false
	manifest, err := pull(t, reg, first.Reference).Manifest()
	require.NoError(t, err)
	for what, digest := range map[string]string{"layer": first.Layers[len(first.Layers)-1].Digest,
		"configuration": manifest.Config.Digest.String()} {
		removeBlob(t, reg, r.Target, digest)
		healed, err := b.Build(t.Context(), r)
		require.NoError(t, err, what)
		assert.False(t, healed.Reused, "an image that lost its %s is built again", what)
		assert.Equal(t, first.Digest, healed.Digest)
		again, err := b.Build(t.Context(), r)
		require.NoError(t, err, what)
		assert.True(t, again.Reused, "and is whole then")
	}
}

// removeBlob deletes a layer as an administrator's mistake would.
func removeBlob(t *testing.T, reg *registrytest.Registry, target, digest string) {
	t.Helper()
	repository := strings.TrimPrefix(target, reg.Addr+"/")
	req, err := http.NewRequestWithContext(t.Context(), http.MethodDelete, reg.URL()+"/v2/"+repository+"/blobs/"+digest,
		nil)
	require.NoError(t, err)
	req.SetBasicAuth(reg.Push.Name, reg.Push.Password)
	resp, err := reg.Transport(t).RoundTrip(req)
	require.NoError(t, err)
	require.NoError(t, resp.Body.Close())
	require.Less(t, resp.StatusCode, 300, "deletion of a blob")
}

func TestEqualRequestsAtOnce(t *testing.T) {
	reg := registrytest.Start(t)
	r := buildtest.Request(t, reg, buildtest.Push(t, reg, buildtest.Base{}), inline)
	state := t.TempDir()
	results := make([]*build.Result, 4)
	var wait sync.WaitGroup
	for i := range results {
		wait.Go(func() {
			b := build.NewBuilder(build.BuilderOptions{StateDir: state}) // as another process would
			result, err := b.Build(t.Context(), r)
			assert.NoError(t, err)
			results[i] = result
		})
	}
	wait.Wait()
	built := 0
	for _, result := range results {
		require.NotNil(t, result)
		assert.Equal(t, results[0].Digest, result.Digest)
		if !result.Reused {
			built++
		}
	}
	assert.Equal(t, 1, built)
}

func TestDigestIgnoresRegistryAndState(t *testing.T) {
	var digests []string
	for range 2 {
		reg := registrytest.Start(t)
		result, err := builder(t).Build(t.Context(), buildtest.Request(t, reg, buildtest.Push(t, reg, buildtest.Base{}),
			inline))
		require.NoError(t, err)
		digests = append(digests, result.Digest)
	}
	assert.Equal(t, digests[0], digests[1])
}

func TestBaseFailures(t *testing.T) {
	reg := registrytest.Start(t)
	good := buildtest.Push(t, reg, buildtest.Base{})
	for _, c := range []struct {
		name   string
		change func(*build.Request)
		class  build.Class
		step   string
		says   string
	}{
		{"wrong architecture", func(r *build.Request) {
			r.Base = buildtest.Push(t, reg, buildtest.Base{Architecture: "s390x", Repository: "os/z"})
		}, build.ClassPolicy, "base", "linux/s390x"},
		{"not bootable", func(r *build.Request) {
			r.Base = buildtest.Push(t, reg, buildtest.Base{NotBootable: true, Repository: "os/n"})
		}, build.ClassPolicy, "base", "ostree.bootable"},
		{"missing", func(r *build.Request) {
			r.Base.Reference = reg.Addr + "/os/base" +
				someDigest
		}, build.ClassInfrastructure, "base", "read image"},
		{"wrong pull secret", func(r *build.Request) { r.Registry.AuthFile = wrongAuth(t, reg) },
			build.ClassInfrastructure, "request", "read image"},
		{"pull account pushes", func(r *build.Request) { r.Registry.AuthFile = reg.PullAuthFile },
			build.ClassInfrastructure, "push", "may pull only"},
		{"no CA", func(r *build.Request) { r.Registry.CAFile = "" }, build.ClassInfrastructure,
			"request", "x509"},
		{"auth file is no JSON", func(r *build.Request) { r.Registry.AuthFile = r.Registry.CAFile },
			build.ClassInfrastructure, "request", "auth.json form"},
		{"a config that cannot be in an image", func(r *build.Request) {
			r.Config = buildtest.Config(t,
				map[string]string{"/usr/bin/x": "a"})
		}, build.ClassUser, "config", "/usr/bin/x"},
		{"append asked for a RUN", func(r *build.Request) {
			r.Containerfile, r.Options.Engine = "FROM configs\nRUN true\n", build.EngineAppend
		}, build.ClassUser, "request", "line 2 is RUN"},
		{"a RUN and no engine for it", func(r *build.Request) { r.Containerfile = "FROM configs\nRUN true\n" },
			build.ClassInfrastructure, "containerfile", "no engine"},
		{"the kernel's label overwritten", func(
			r *build.Request) {
			r.Containerfile = "FROM configs\nLABEL ostree.final-diffid=x\n"
		}, build.ClassUser, "check",
			"ostree.final-diffid"},
		{"COPY onto a directory", func(
			r *build.Request) {
			r.Containerfile = "FROM configs\nCOPY <<EOF /etc\nx\nEOF\n"
		}, build.ClassUser, "containerfile",
			"is a directory"},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := buildtest.Request(t, reg, good, "")
			c.change(&r)
			_, err := builder(t).Build(t.Context(), r)
			f := build.AsFailure(err)
			require.NotNil(t, f, "%v", err)
			assert.Equal(t, c.class, f.Class, f.Error())
			assert.Equal(t, c.step, f.Step)
			assert.Contains(t, f.Error(), c.says)
			assert.NotContains(t, f.Error(), reg.Push.Password)
			assert.Equal(t, 1, max(1, f.Attempts), "only transient failures are tried again")
			_, err = builder(t).Build(t.Context(), r)
			require.NotNil(t, build.AsFailure(err), "what was refused once is refused again: %v", err)
			assert.Equal(t, c.step, build.AsFailure(err).Step)
		})
	}
}

func wrongAuth(t *testing.T, reg *registrytest.Registry) string {
	file := filepath.Join(t.TempDir(), "auth.json")
	user := reg.Push
	user.Password = "not-the-password"
	registrytest.WriteAuthFile(t, file, reg.Addr, user)
	return file
}

func TestRetry(t *testing.T) {
	reg := registrytest.Start(t)
	r := buildtest.Request(t, reg, buildtest.Push(t, reg, buildtest.Base{}), "")
	r.Options.Attempts = 3
	reg.Stop(t)
	_, err := builder(t).Build(t.Context(), r)
	f := build.AsFailure(err)
	require.NotNil(t, f)
	assert.Equal(t, build.ClassTransient, f.Class, f.Error())
	assert.Equal(t, 3, f.Attempts)
	reg.Restart(t)
	_, err = builder(t).Build(t.Context(), r)
	assert.NoError(t, err)
}

func TestLintFindings(t *testing.T) {
	reg := registrytest.Start(t)
	r := buildtest.Request(t, reg, buildtest.Push(t, reg, buildtest.Base{}), "FROM configs\nNOPE\nCOPY a /etc/a\n")
	r.ContainerfileName = "mosc.yaml"
	_, err := builder(t).Build(t.Context(), r)
	f := build.AsFailure(err)
	require.NotNil(t, f)
	assert.Equal(t, build.ClassUser, f.Class)
	assert.Equal(t, 2, f.Line)
	findings := report.Of(err)
	require.Len(t, findings, 2)
	assert.Equal(t, "mosc.yaml", findings[0].File)
}

func TestReuseWithoutBase(t *testing.T) {
	reg := registrytest.Start(t)
	base := buildtest.Push(t, reg, buildtest.Base{Layers: 2, LayerSize: 100})
	r := buildtest.Request(t, reg, base, inline)
	b := builder(t)
	first, err := b.Build(t.Context(), r)
	require.NoError(t, err)
	repository, digest, _ := strings.Cut(strings.TrimPrefix(base.Reference, reg.Addr+"/"), "@")
	req, err := http.NewRequestWithContext(t.Context(), http.MethodDelete,
		reg.URL()+"/v2/"+repository+"/manifests/"+digest, nil)
	require.NoError(t, err)
	req.SetBasicAuth(reg.Push.Name, reg.Push.Password)
	resp, err := reg.Transport(t).RoundTrip(req)
	require.NoError(t, err)
	require.NoError(t, resp.Body.Close())
	require.Less(t, resp.StatusCode, 300, "deletion of the base")
	again, err := b.Build(t.Context(), r)
	require.NoError(t, err)
	assert.True(t, again.Reused)
	assert.Equal(t, first.Engine, again.Engine)
	assert.Equal(t, first.Layers, again.Layers)
}

// TestKernelArguments: they count in the address, and bootc finds them in the image.
func TestKernelArguments(t *testing.T) {
	reg := registrytest.Start(t)
	from := buildtest.Push(t, reg,
		buildtest.Base{Files: map[string]string{"/usr/lib/bootc/kargs.d/00-base.toml": "kargs = [\"quiet\"]\n"}})
	b := builder(t)
	r := buildtest.Request(t, reg, from, "")
	without, err := b.Build(t.Context(), r)
	require.NoError(t, err)
	r.Config.Spec.KernelArguments = []string{"nosmt quiet", "console=ttyS0"}
	with, err := b.Build(t.Context(), r)
	require.NoError(t, err)
	assert.NotEqual(t, without.Address, with.Address)
	text, _ := treeOf(t, reg, with.Reference).Content("/usr/lib/bootc/kargs.d/50-dayone-config.toml")
	assert.Equal(t, "kargs = [\"nosmt\", \"console=ttyS0\"]\n", string(text))
	r.Options.Rebuild = true
	again, err := builder(t).Build(t.Context(), r)
	require.NoError(t, err)
	assert.Equal(t, with.Digest, again.Digest)
}
