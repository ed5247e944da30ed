package build_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"dayone.dev/dayone/build"
	"dayone.dev/dayone/build/buildtest"
	"dayone.dev/dayone/registry/registrytest"
)

// engine stands in for the one that runs containers: it runs nothing and gives back the image of the rendered config.
// Like the real one it refuses a job without it. The real engine's tests are in buildahengine.
type engine struct {
	job     build.ContainerJob
	err     error
	taken   []build.BaseJob
	changed string // the digest of another image that it "built"
	unpack  func(build.Unpacked)
}

func (e *engine) BuildContainer(_ context.Context, job build.ContainerJob) (build.ContainerImage, error) {
	e.job = job
	if e.err != nil {
		return build.ContainerImage{}, e.err
	}
	configs, there := job.Contexts["configs"]
	if !there { // with extensions it is a stage of that name, from this image
		configs, there = job.Contexts["dayone-configs"]
	}
	if !there {
		return build.ContainerImage{}, errors.New("there is no image configs")
	}
	_, digest, _ := strings.Cut(configs.Reference, "@")
	if e.changed != "" {
		digest = e.changed
	}
	return build.ContainerImage{Digest: digest, CacheHits: 3, Log: "the/log", Isolation: "chroot"}, nil
}

func (e *engine) TakeInBase(_ context.Context, job build.BaseJob, layers build.Unpacked) error {
	e.taken = append(e.taken, job)
	if e.unpack != nil {
		e.unpack(layers)
	}
	return e.err
}

func TestBuildInAContainer(t *testing.T) {
	reg := registrytest.Start(t)
	base := buildtest.Push(t, reg, buildtest.Base{Fixed: true, Layers: 2, LayerSize: 100})
	helper := buildtest.Push(t, reg, buildtest.Base{Fixed: true, Repository: "tools/helper"})
	e := &engine{}
	b := build.NewBuilder(build.BuilderOptions{Engine: e, StateDir: t.TempDir()})
	r := buildtest.Request(t, reg, base, "FROM "+helper.Reference+" AS helper\nFROM configs\nRUN true\n")
	other := build.Image{Reference: helper.Reference}
	r.Options.Contexts = map[string]build.Image{"mine": other}
	result, err := b.Build(t.Context(), r)
	require.NoError(t, err)
	assert.Equal(t, build.EngineBuildah, result.Engine)
	assert.Contains(t, result.Reason, "2 stages")
	assert.Equal(t, result.Address, e.job.Address)
	assert.Equal(t, r.Target, e.job.Target)
	assert.Equal(t, base, e.job.Contexts["base"])
	assert.Equal(t, other, e.job.Contexts["mine"])
	assert.NotContains(t, e.job.Contexts, "extensions")
	assert.False(t, e.job.Docker)
	assert.Equal(t, strings.Count(e.job.Containerfile[:strings.Index(e.job.Containerfile, "FROM "+helper.Reference)],
		"\n"), e.job.Skip)
	made := pull(t, reg, base.Reference)
	manifest, err := made.Manifest()
	require.NoError(t, err)
	file, err := made.ConfigFile()
	require.NoError(t, err)
	require.Len(t, e.job.BaseLayers, len(manifest.Layers))
	for i, l := range e.job.BaseLayers {
		assert.Equal(t, build.BaseLayer{Digest: manifest.Layers[i].Digest.String(),
			DiffID: file.RootFS.DiffIDs[i].String()}, l)
	}
	sealed, err := pull(t, reg, result.Reference).ConfigFile()
	require.NoError(t, err)
	assert.Equal(t, result.Address, sealed.Config.Labels[build.LabelAddress], "the labels are those of a node's trust")
	assert.Equal(t, "master", sealed.Config.Labels[build.LabelPool])

	again, err := b.Build(t.Context(), r)
	require.NoError(t, err)
	assert.True(t, again.Reused)
}

// What a request has decides what the engine is given, and the steps are told in their order.
func TestContainerJob(t *testing.T) {
	reg := registrytest.Start(t)
	base := buildtest.Push(t, reg, buildtest.Base{Fixed: true})
	packages := buildtest.Push(t, reg, buildtest.Base{Fixed: true, Repository: "os/extensions"})
	e := &engine{}
	var entered []string
	b := build.NewBuilder(build.BuilderOptions{Engine: e, StateDir: t.TempDir(), Progress: func(ev build.Event) {
		if len(entered) == 0 || entered[len(entered)-1] != ev.Phase {
			entered = append(entered, ev.Phase)
		}
	}})
	r := buildtest.Request(t, reg, base, "FROM configs\nLABEL a=b\n")
	r.Extensions, r.Options.Engine = &packages, build.EngineBuildah
	result, err := b.Build(t.Context(), r)
	require.NoError(t, err)
	assert.Equal(t, "the request asks for it", result.Reason)
	assert.NotContains(t, e.job.Contexts, "dayone-extensions", "nothing uses them")
	assert.Empty(t, result.Inputs.Extensions)
	assert.Empty(t, e.job.Options.Mounts)
	assert.Subset(t, entered, []string{"request", "base", "config", "images", "push", "containerfile", "seal"})

	r.Config.Spec.Extensions = []string{"usbguard"}
	result, err = b.Build(t.Context(), r)
	require.NoError(t, err)
	assert.Equal(t, packages, e.job.Contexts["dayone-extensions"])
	assert.Equal(t, packages.Reference, result.Inputs.Extensions)
}

func TestBuilderRefuses(t *testing.T) {
	reg := registrytest.Start(t)
	r := buildtest.Request(t, reg, buildtest.Push(t, reg, buildtest.Base{Fixed: true}), "")
	_, err := build.NewBuilder(build.BuilderOptions{StateDir: reg.CAFile}).Build(t.Context(), r)
	require.ErrorContains(t, err, "make directory for locks")
	for _, c := range []struct {
		name, text, says string
		extensions       *build.Image
	}{
		{"extensions by tag", "FROM configs\n", "name the extensions image by digest",
			&build.Image{Reference: "quay.io/a/b:1"}},
		{"a copy from extensions that nobody names", "FROM configs\nCOPY --from=dayone-extensions /a /etc/a\n",
			"nothing names an extensions image", nil},
		{"their name in another place", "FROM configs\nLABEL from=dayone-extensions\n", "", nil},
	} {
		r := r
		r.Containerfile, r.Extensions = c.text, c.extensions
		err := r.Validate()
		if c.says == "" {
			require.NoError(t, err, c.name)
			continue
		}
		require.ErrorContains(t, err, c.says, c.name)
	}
	r.Target = ""
	_, err = builder(t).Build(t.Context(), r)
	require.NotNil(t, build.AsFailure(err), "%v", err)
	assert.Equal(t, "request", build.AsFailure(err).Step)
}

func TestDockerBaseAsksForDocker(t *testing.T) {
	reg := registrytest.Start(t)
	e := &engine{}
	b := build.NewBuilder(build.BuilderOptions{Engine: e})
	_, err := b.Build(t.Context(), buildtest.Request(t, reg, buildtest.Push(t, reg, buildtest.Base{Fixed: true,
		Docker: true}), "FROM configs\nRUN true\n"))
	require.NoError(t, err)
	assert.True(t, e.job.Docker)
}

// An image that the Containerfile names itself is asked for before the engine runs, which would not say why it cannot
// get one.
func TestImagesOfContainerfiles(t *testing.T) {
	reg := registrytest.Start(t)
	base := buildtest.Push(t, reg, buildtest.Base{Fixed: true})
	none := reg.Addr + "/tools/none:1"
	for _, c := range []struct {
		name, text string
		change     func(*build.Request)
		line       int
	}{
		{"one that is missing", "FROM " + none + " AS a\nFROM configs\nCOPY --from=a /x /etc/x\n", nil, 1},
		{"in a COPY", "FROM configs\nRUN true\nCOPY --from=" + none + " /x /etc/x\n", nil, 3},
		{"with mirrors", "FROM configs\nCOPY --from=" + none + " /x /etc/x\n", func(r *build.Request) {
			r.Options.RegistriesConf = "registries.conf"
		}, 0},
		{"one that is passed", "FROM configs\nCOPY --from=" + none + " /x /etc/x\n", func(r *build.Request) {
			r.Options.Contexts = map[string]build.Image{none: base}
		}, 0},
		{"completed by an ARG", "ARG V=1\nFROM configs\nCOPY --from=" + reg.Addr + "/tools/none:$V /x /etc/x\n", nil, 0},
		{"a stage", "FROM base AS a\nFROM configs\nCOPY --from=a /x /etc/x\n", nil, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			e := &engine{}
			r := buildtest.Request(t, reg, base, c.text)
			if c.change != nil {
				c.change(&r)
			}
			r.Options.Rebuild = true
			_, err := build.NewBuilder(build.BuilderOptions{Engine: e}).Build(t.Context(), r)
			f := build.AsFailure(err)
			if c.line == 0 {
				assert.NotEmpty(t, e.job.Target, "the engine is asked: %v", err)
				return
			}
			require.NotNil(t, f, "%v", err)
			assert.Empty(t, e.job.Target)
			assert.Equal(t, []any{build.ClassUser, c.line, none}, []any{f.Class, f.Line, f.Instruction}, f.Error())
			assert.Contains(t, f.Next, "check the name of the image")
		})
	}
	r := buildtest.Request(t, reg, base, "FROM configs\nCOPY --from="+none+" /x /etc/x\n")
	away := registrytest.Start(t)
	r.Containerfile = "FROM configs\nCOPY --from=" + away.Addr + "/a/b:1 /x /etc/x\n"
	away.Stop(t)
	_, err := build.NewBuilder(build.BuilderOptions{Engine: &engine{}}).Build(t.Context(), r)
	f := build.AsFailure(err)
	require.NotNil(t, f, "%v", err)
	assert.Equal(t, build.ClassTransient, f.Class)
	assert.Equal(t, 2, f.Line)
}

// With mirrors the engine looks for images. Where it does not say why it got none, each place is asked.
func TestWhyAnImageIsNotGot(t *testing.T) {
	reg, site := registrytest.Start(t), registrytest.Start(t)
	base := buildtest.Push(t, reg, buildtest.Base{Fixed: true})
	there := buildtest.Push(t, reg, buildtest.Base{Fixed: true, Repository: "site/tools"})
	_, digest, _ := strings.Cut(there.Reference, "@")
	away := registrytest.Start(t)
	away.Stop(t)
	notGot := &build.Failure{Class: build.ClassUser, Step: "containerfile", Message: "no stage or image found",
		Cause: build.ErrImageNotGot, Log: "the/log"}
	for _, c := range []struct {
		name, mirror string
		failed       error
		class        build.Class
		says         []string
	}{
		{"a mirror whose CA is unknown", site.Addr + "/site", notGot, build.ClassInfrastructure,
			[]string{site.Addr + "/site/tools", "x509", away.Addr, "connection refused", "pass the CA certificate"}},
		{"a mirror without the image", reg.Addr + "/none", notGot, build.ClassUser,
			[]string{reg.Addr + "/none/tools", "404", "check the name of the image"}},
		{"a mirror that has it by now", reg.Addr + "/site", notGot, build.ClassUser, []string{"no stage or image found"}},
		{"another failure", reg.Addr + "/none", &build.Failure{Class: build.ClassPolicy, Step: "containerfile",
			Message: "too long"}, build.ClassPolicy, []string{"too long"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := buildtest.Request(t, reg, base, "FROM configs\nCOPY --from="+away.Addr+"/site/tools@"+digest+" /x /etc/x\n")
			r.Options.RegistriesConf = filepath.Join(t.TempDir(), "registries.conf")
			require.NoError(t, os.WriteFile(r.Options.RegistriesConf, []byte("[[registry]]\nlocation = \""+away.Addr+
				"/site\"\n[[registry.mirror]]\nlocation = \""+c.mirror+"\"\n"), 0o600))
			_, err := build.NewBuilder(build.BuilderOptions{Engine: &engine{err: c.failed}}).Build(t.Context(), r)
			f := build.AsFailure(err)
			require.NotNil(t, f, "%v", err)
			assert.Equal(t, c.class, f.Class, f.Error())
			for _, says := range c.says {
				assert.Contains(t, f.Error(), says)
			}
			assert.Equal(t, errors.Is(c.failed, build.ErrImageNotGot), f.Log == "the/log")
		})
	}
}

func TestEngineThatFails(t *testing.T) {
	reg := registrytest.Start(t)
	base := buildtest.Push(t, reg, buildtest.Base{Fixed: true})
	for _, c := range []struct {
		name  string
		e     engine
		class build.Class
		step  string
	}{
		{"by the user's command", engine{err: &build.Failure{Class: build.ClassUser, Step: "containerfile", ExitCode: 7}},
			build.ClassUser, "containerfile"},
		{"in another way", engine{err: errors.New("no user namespaces")}, build.ClassInfrastructure, "containerfile"},
		{"without pushing what it built", engine{changed: strings.TrimPrefix(someDigest, "@")}, build.ClassInfrastructure,
			"seal"},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := buildtest.Request(t, reg, base, "FROM configs\nRUN true\n")
			_, err := build.NewBuilder(build.BuilderOptions{Engine: &c.e}).Build(t.Context(), r)
			f := build.AsFailure(err)
			require.NotNil(t, f, "%v", err)
			assert.Equal(t, c.class, f.Class, f.Error())
			assert.Equal(t, c.step, f.Step)
		})
	}
}

// What a Containerfile needs of the base decides whether the engine takes it in.
func TestTakeIn(t *testing.T) {
	reg := registrytest.Start(t)
	base := buildtest.Push(t, reg, buildtest.Base{Fixed: true})
	for _, c := range []struct {
		name, text string
		takes      bool
	}{
		{"no Containerfile", "", false}, {"a RUN", "FROM configs\nRUN true\n", true},
		{"a RUN on the base", "FROM base\nRUN true\nFROM configs\n", true},
		{"labels only", "FROM configs\nLABEL a=b\n", false}, {"no Containerfile at all", "NOPE", false},
		{"another image", "FROM quay.io/a/b:1\nRUN true\n", false},
	} {
		t.Run(c.name, func(t *testing.T) {
			e := &engine{}
			job := build.BaseJob{Base: base, Containerfile: c.text,
				Registry: build.Access{CAFile: reg.CAFile, AuthFile: reg.PushAuthFile}}
			b := build.NewBuilder(build.BuilderOptions{Engine: e, StateDir: t.TempDir()})
			require.NoError(t, b.TakeIn(t.Context(), job))
			assert.Equal(t, c.takes, len(e.taken) == 1)
			e.err = errors.New("no room")
			err := b.TakeIn(t.Context(), job)
			assert.Equal(t, c.takes, err != nil)
			job.Base.Reference = reg.Addr + "/os/base" + someDigest
			require.ErrorContains(t, b.TakeIn(t.Context(), job), "read image")
			job.Registry.AuthFile = reg.CAFile
			require.Error(t, b.TakeIn(t.Context(), job))
		})
	}
}

// pushImage pushes an image under a tag and gives its reference by digest.
func pushImage(t *testing.T, reg *registrytest.Registry, tag string, image v1.Image) string {
	t.Helper()
	return pushImageTo(t, reg.Addr+"/os/compare:"+tag, reg, image)
}

func pushImageTo(t *testing.T, tag string, reg *registrytest.Registry, image v1.Image) string {
	t.Helper()
	ref, err := name.NewTag(tag)
	require.NoError(t, err)
	require.NoError(t, remote.Write(ref, image, reg.Pusher(t)...))
	digest, err := image.Digest()
	require.NoError(t, err)
	return ref.Context().Digest(digest.String()).String()
}

// Two images of what should be one are compared path by path.
func TestCompare(t *testing.T) {
	reg := registrytest.Start(t)
	b := builder(t)
	base := buildtest.Push(t, reg, buildtest.Base{Fixed: true})
	image := func(text string) string {
		result, err := b.Build(t.Context(), buildtest.Request(t, reg, base, text))
		require.NoError(t, err)
		return result.Reference
	}
	first := image("FROM configs\nCOPY <<EOF /etc/a\none\nEOF\n")
	access := build.Access{CAFile: reg.CAFile, AuthFile: reg.PullAuthFile}
	relabelled, err := mutate.Config(pull(t, reg, first), v1.Config{Labels: map[string]string{"a": "b"}})
	require.NoError(t, err)
	for _, c := range []struct {
		name, second string
		want         []string
	}{
		{"itself", first, nil},
		{"content", image("FROM configs\nCOPY <<EOF /etc/a\ntwo\nEOF\n"), []string{"/etc/a content"}},
		{"mode", image("FROM configs\nCOPY --chmod=0600 <<EOF /etc/a\none\nEOF\n"), []string{"/etc/a mode"}},
		{"mode and owner", image("FROM configs\nCOPY --chmod=0600 --chown=7:8 <<EOF /etc/a\none\nEOF\n"),
			[]string{"/etc/a mode, owner"}},
		{"another file", image("FROM configs\nCOPY <<EOF /etc/b\none\nEOF\n"),
			[]string{"/etc/a only in the first build", "/etc/b only in the second build"}},
		{"labels", pushImage(t, reg, "labels", relabelled), []string{" configuration or manifest"}},
		{"one layer more", image("FROM configs\nCOPY <<EOF /etc/a\none\nEOF\nCOPY <<EOF /etc/b\none\nEOF\n"),
			[]string{" number of layers: "}},
	} {
		t.Run(c.name, func(t *testing.T) {
			list, err := build.Compare(t.Context(), access, "linux/amd64", first, c.second)
			require.NoError(t, err)
			require.Len(t, list, len(c.want))
			for i, d := range list {
				assert.Contains(t, d.Path+" "+d.What, c.want[i])
				assert.Equal(t, d.Path == "", d.CreatedBy == "")
			}
		})
	}
	for _, missing := range []string{reg.Addr + "/os/base" + someDigest} {
		_, err := build.Compare(t.Context(), access, "linux/amd64", missing, first)
		require.ErrorContains(t, err, "read image")
		_, err = build.Compare(t.Context(), access, "linux/amd64", first, missing)
		require.ErrorContains(t, err, "read image")
	}
	_, err = build.Compare(t.Context(), build.Access{CAFile: "none"}, "linux/amd64", first, first)
	require.Error(t, err)
}

// A failure is one line for people: what it is, where, why and what next.
func TestFailureText(t *testing.T) {
	f := &build.Failure{Class: build.ClassUser, Step: "containerfile", Message: "it ends"}
	assert.Equal(t, "build failed (user) in containerfile: it ends", f.Error())
	f.Line, f.Instruction, f.ExitCode, f.Next, f.Log = 3, "RUN false", 1, "look there", "/l"
	assert.Equal(t, "build failed (user) in containerfile, line 3: RUN false: it ends (exit code 1); look there; "+
		"full log: /l", f.Error())
}
