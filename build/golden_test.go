package build_test

import (
	"os"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"dayone.dev/dayone/build"
	"dayone.dev/dayone/build/buildtest"
	"dayone.dev/dayone/registry/registrytest"
)

// goldenBase has something for every part of testdata/golden.ign to meet.
func goldenBase(docker, encapsulated bool) buildtest.Base {
	return buildtest.Base{Fixed: true, Docker: docker, Encapsulated: encapsulated, Architecture: "amd64", Layers: 1,
		LayerSize: 100,
		Files: map[string]string{"/etc/known/file": "x\n", "/etc/appended": "base\n",
			"/etc/passwd": "root:x:0:0:root:/root:/bin/sh\n" +
				"core:x:1000:1000::/home/core:/bin/sh\n",
			"/usr/lib/passwd": "daemon:x:2:2::/:/sbin/nologin\n",
			"/usr/lib/systemd/system/stock.service": "[Service]\nExecStart=/bin/true\n" +
				"[Install]\nWantedBy=multi-user.target\n",
			"/usr/lib/systemd/system/vendor.service.d/50.conf": "[Install]\nWantedBy=graphical.target\n",
			"/usr/lib/bootc/kargs.d/00-base.toml":              "kargs = [\"quiet\"]\n"},
		Links: map[string]string{"/etc/localtime": "../usr/share/zoneinfo/Europe/Berlin",
			"/etc/systemd/system/unmasked.service":                      "/dev/null",
			"/etc/systemd/system/multi-user.target.wants/stock.service": "/usr/lib/systemd/system/stock.service"}}
}

// TestGolden holds the bytes: the same inputs gave these addresses and digests in commit d13be95. Who changes them on
// purpose raises the version of the address, or nodes reboot for nothing.
func TestGolden(t *testing.T) {
	raw, err := os.ReadFile("testdata/golden.ign")
	require.NoError(t, err)
	reg := registrytest.Start(t)
	for _, c := range []struct {
		name                 string
		docker, encapsulated bool
		containerfile        string
		address, digest      string
	}{
		{name: "config only",
			address: "1eeb1fddecc3798ae79f0f13f98d6d25dba44a1231497d1b6f28215fbbbde502",
			digest:  "sha256:db5f647c3c6341118df89063701f7126158d74146bf00792d6482110b4b84016"},
		{name: "docker", docker: true, containerfile: inline,
			address: "a0c0456ddba325c1b489957582a1bb8615221daa911c22e194b16a2538989fbb",
			digest:  "sha256:32f529d86ed8eee3dcd1583b0c2caf3351662c5c9c284e6c3246840971fa05bd"},
		{name: "ostree commit", encapsulated: true, containerfile: inline,
			address: "c7be049da9a34129c006e2d84aa0daa56cdf459ad5d7e9e913882188bea60d66",
			digest:  "sha256:3811eb0c7e8eff5a8b2fd13452c476c30184259f98f84dab10da26fee4e863db"},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := buildtest.Request(t, reg, buildtest.Push(t, reg, goldenBase(c.docker, c.encapsulated)), c.containerfile)
			r.Platform, r.TrustBundle = "linux/amd64", []byte("pem\n")
			r.Config.Spec.Config.Raw = raw
			r.Config.Spec.KernelArguments = []string{"nosmt quiet", "console=ttyS0"}
			r.Options.BuildArgs = map[string]string{"A": "1", "B": "2"}
			result, err := builder(t).Build(t.Context(), r)
			require.NoError(t, err)
			assert.Equal(t, c.address, result.Address)
			assert.Equal(t, c.digest, result.Digest)
		})
	}
}

// TestGoldenAddress covers what reaches the address and no image without a container.
func TestGoldenAddress(t *testing.T) {
	r := plainRequest(t)
	r.Containerfile = "FROM configs\nRUN --mount=type=bind,from=tools,target=/x true\n"
	r.Config.Spec.Extensions, r.Config.Spec.KernelType = []string{"usbguard"}, "realtime"
	r.Extensions = &build.Image{Reference: "192.0.2.1:5000/os/ext" + someDigest}
	r.TrustBundle = []byte("pem\n")
	r.Options = build.Options{Engine: build.EngineBuildah, BuildArgs: map[string]string{"A": "1"},
		Contexts: map[string]build.Image{"tools": r.Base, "more": r.Base}}
	address, err := r.Address()
	require.NoError(t, err)
	assert.Equal(t, "560c252543dcb225e0c30f48bce84aaed3cc7d6c454090a2b595566d94c2df9e", address)
	ground, err := r.Ground()
	require.NoError(t, err)
	assert.Equal(t, "1cf451094d3a10280c668aaa9b4a3d8f8c90728bcd296a2b1315a94ab7b4e0d4", ground)
}
