package build_test

import (
	"testing"
	"time"

	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"dayone.dev/dayone/build"
	"dayone.dev/dayone/build/buildtest"
)

const someDigest = "@sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"

func plainRequest(t *testing.T) build.Request {
	return build.Request{
		Pool: "master", Base: build.Image{Reference: "192.0.2.1:5000/os/base" + someDigest}, Config: buildtest.Config(t, nil),
		Containerfile: "FROM configs\n", Target: "192.0.2.1:5000/ocp/master-os", Platform: "linux/amd64",
	}
}

func TestAddress(t *testing.T) {
	base, err := plainRequest(t).Address()
	require.NoError(t, err)
	assert.Regexp(t, "^[0-9a-f]{64}$", base)
	other := build.Image{
		Reference: "192.0.2.1:5000/os/ext@sha256:1123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef",
	}
	created := time.Unix(1, 0)
	spec := func(r *build.Request, change func(*mcfgv1.MachineConfigSpec)) {
		r.Config = r.Config.DeepCopy()
		change(&r.Config.Spec)
	}
	for _, c := range []struct {
		name   string
		change func(*build.Request)
		same   bool
	}{
		{"the pool's name", func(r *build.Request) { r.Pool = "worker" }, true},
		{"the rendered config's name", func(r *build.Request) {
			r.Config = r.Config.DeepCopy()
			r.Config.Name = "rendered-master-9"
		}, true},
		{"the config's resource version", func(r *build.Request) {
			r.Config = r.Config.DeepCopy()
			r.Config.ResourceVersion = "7"
		}, true},
		{"the repository of the base", func(r *build.Request) {
			r.Base.Reference = "registry.example.com/x/y" +
				someDigest
		}, true},
		{"the target repository", func(r *build.Request) { r.Target = "registry.example.com/a/b" }, true},
		{"credentials", func(r *build.Request) { r.Registry = build.Access{CAFile: "a", AuthFile: "b"} },
			true},
		{"secrets and mounts", func(r *build.Request) {
			r.Options.Secrets = []build.Secret{{ID: "x", File: "y"}}
			r.Options.Mounts = []build.Mount{{Source: "/a", Target: "/b"}}
		}, true},
		{"limits and cache", func(r *build.Request) {
			r.Options.Timeout, r.Options.NoCache, r.Options.Rebuild = time.Minute, true, true
		}, true},
		{"an extensions image nobody needs", func(r *build.Request) { r.Extensions = &other }, true},
		{"osImageURL", func(r *build.Request) {
			spec(r,
				func(s *mcfgv1.MachineConfigSpec) { s.OSImageURL = "x" })
		}, true},
		{"the platform said or left out", func(r *build.Request) { r.Platform = "linux/amd64" }, true},
		{"the base's digest", func(r *build.Request) { r.Base = other }, false},
		{"the Containerfile", func(r *build.Request) { r.Containerfile += "#\n" }, false},
		{"the config's content", func(r *build.Request) {
			r.Config = buildtest.Config(t,
				map[string]string{"/etc/x": "y"})
		}, false},
		{"kernel arguments", func(r *build.Request) {
			spec(r, func(s *mcfgv1.MachineConfigSpec) { s.KernelArguments = []string{"x"} })
		}, false},
		{"the platform", func(r *build.Request) { r.Platform = "linux/arm64" }, false},
		{"the trust bundle", func(r *build.Request) { r.TrustBundle = []byte("pem") }, false},
		{"the engine", func(r *build.Request) { r.Options.Engine = build.EngineBuildah }, false},
		{"the time", func(r *build.Request) { r.Options.Created = &created }, false},
		{"build arguments", func(r *build.Request) { r.Options.BuildArgs = map[string]string{"A": "1"} }, false},
		{"further images", func(r *build.Request) { r.Options.Contexts = map[string]build.Image{"tools": other} }, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := plainRequest(t)
			c.change(&r)
			got, err := r.Address()
			require.NoError(t, err)
			assert.Equal(t, c.same, got == base)
		})
	}
	for name, asks := range map[string]func(*build.Request){
		"the config asks for an extension": func(r *build.Request) {
			spec(r, func(s *mcfgv1.MachineConfigSpec) { s.Extensions = []string{"usbguard"} })
		},
		"the config asks for a kernel": func(r *build.Request) {
			spec(r,
				func(s *mcfgv1.MachineConfigSpec) { s.KernelType = "realtime" })
		},
		"the Containerfile copies from it": func(
			r *build.Request) {
			r.Containerfile = "FROM configs\nCOPY --from=dayone-extensions /a /usr/a\n"
		},
		"the Containerfile mounts it": func(r *build.Request) {
			r.Containerfile = "FROM configs\nRUN --mount=type=bind,from=dayone-extensions,target=/x ls /x\n"
		},
		"a stage of the Containerfile does": func(r *build.Request) {
			r.Containerfile = "FROM dayone-extensions AS a\nFROM configs\nCOPY --from=a /a /usr/a\n"
		},
		"an argument may name it": func(r *build.Request) {
			r.Containerfile = "ARG X=dayone-extensions\nFROM $X AS a\nFROM configs\nCOPY --from=a /a /usr/a\n"
		},
	} {
		t.Run("extensions image: "+name, func(t *testing.T) {
			one, two := plainRequest(t), plainRequest(t)
			asks(&one)
			asks(&two)
			one.Extensions, two.Extensions = &other, &build.Image{Reference: "192.0.2.1:5000/os/ext" + someDigest}
			first, err := one.Address()
			require.NoError(t, err)
			second, err := two.Address()
			require.NoError(t, err)
			assert.NotEqual(t, first, second, "an extensions image that is used counts")
		})
	}
}

func TestInvalidRequests(t *testing.T) {
	for _, c := range []struct {
		name   string
		change func(*build.Request)
		says   string
	}{
		{"no config", func(r *build.Request) { r.Config = nil }, "config: "},
		{"a base by tag", func(r *build.Request) { r.Base.Reference = "192.0.2.1:5000/os/base:v1" }, "base: "},
		{"a target with a tag", func(r *build.Request) { r.Target += ":v1" }, "target: "},
		{"an engine nobody knows", func(r *build.Request) { r.Options.Engine = "kaniko" }, "options.engine: "},
		{"a context by tag", func(
			r *build.Request) {
			r.Options.Contexts = map[string]build.Image{"a": {Reference: "x/y:1"}}
		},
			"options.contexts[a]: "},
		{"a Containerfile that takes from an extensions image that there is not", func(r *build.Request) {
			r.Containerfile = "FROM configs\nCOPY --from=dayone-extensions /a /usr/a\n"
		}, "extensions: the Containerfile"},
		{"extensions without image", func(r *build.Request) { r.Config.Spec.Extensions = []string{"usbguard"} },
			"extensions: "},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := plainRequest(t)
			c.change(&r)
			_, err := build.NewBuilder(build.BuilderOptions{}).Build(t.Context(), r)
			f := build.AsFailure(err)
			require.NotNil(t, f)
			assert.Equal(t, build.ClassUser, f.Class)
			assert.Contains(t, f.Message, c.says)
			assert.NotEmpty(t, f.Next)
		})
	}
}

func TestGround(t *testing.T) {
	ground := func(change func(*build.Request)) string {
		r := plainRequest(t)
		change(&r)
		g, err := r.Ground()
		require.NoError(t, err)
		return g
	}
	same := ground(func(*build.Request) {})
	assert.Equal(t, same, ground(func(r *build.Request) {
		r.Config = buildtest.Config(t,
			map[string]string{"/etc/x": "y"})
	}))
	assert.NotEqual(t, same, ground(func(r *build.Request) { r.Containerfile += "RUN true\n" }))
	assert.NotEqual(t, same, ground(func(r *build.Request) {
		r.Base = build.Image{
			Reference: "192.0.2.1:5000/os/base@sha256:1123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef",
		}
	}))
	address, err := plainRequest(t).Address()
	require.NoError(t, err)
	assert.NotEqual(t, same, address)
}

func TestNewRequest(t *testing.T) {
	const base, packages = "registry.example.com/os/base", "registry.example.com/os/ext"
	controller := &mcfgv1.ControllerConfigSpec{AdditionalTrustBundle: []byte("pem"),
		BaseOSExtensionsContainerImage: packages + someDigest}
	plain, extended := buildtest.Config(t, nil), buildtest.Config(t, nil)
	extended.Spec.Extensions = []string{"usbguard"}
	spec := build.Spec{Pool: "master", Config: extended, Controller: controller, Base: base + someDigest,
		Target: "registry.example.com/os/master", Platform: "linux/amd64"}
	address := func(spec build.Spec) string {
		request, err := build.NewRequest(spec)
		require.NoError(t, err)
		out, err := request.Address()
		require.NoError(t, err)
		return out
	}
	want := address(spec)

	copied := spec
	copied.Copies = map[string]string{base + someDigest: "10.0.0.1:5000/os/base" + someDigest,
		packages + someDigest: "10.0.0.1:5000/os/ext" + someDigest}
	copied.Target = "10.0.0.1:5000/os/master"
	assert.Equal(t, want, address(copied), "a copy has the same bytes")

	unneeded := spec
	unneeded.Config = plain
	request, err := build.NewRequest(unneeded)
	require.NoError(t, err)
	assert.Nil(t, request.Extensions, "the config asks for none")
	assert.Equal(t, []byte("pem"), request.TrustBundle)

	untrusted := spec
	untrusted.Controller = &mcfgv1.ControllerConfigSpec{BaseOSExtensionsContainerImage: packages + someDigest}
	assert.NotEqual(t, want, address(untrusted), "the trust bundle reaches the image")

	unrendered := spec
	unrendered.Config = nil
	_, err = build.NewRequest(unrendered)
	require.ErrorContains(t, err, "render the pool first")
	uncontrolled := spec
	uncontrolled.Controller = nil
	_, err = build.NewRequest(uncontrolled)
	require.ErrorContains(t, err, "controller: ")
}
