package main

import (
	"net/url"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"dayone.dev/dayone/build"
	"dayone.dev/dayone/build/buildtest"
	"dayone.dev/dayone/registry/registrytest"
)

// TestImagesAtMirrors builds in a cluster without a line to the base's own registry: what the nodes' registries.conf
// says holds for the base, and for images that the Containerfile names.
func TestImagesAtMirrors(t *testing.T) {
	const own = "registry.invalid/release/os"
	for _, c := range []struct {
		name, mirror string
		built        bool
		says         string
	}{
		{"the mirror has them", "os/base", true, ""},
		{"the mirror lacks them", "os/other", false, "mirror does not have the image"},
	} {
		t.Run(c.name, func(t *testing.T) {
			reg := registrytest.Start(t)
			in := podInput(t, reg, "")
			_, digest, _ := strings.Cut(in.Request.Base.Reference, "@")
			in.Request.Base.Reference = own + "@" + digest
			in.Request.Containerfile = "FROM configs\nRUN true\nCOPY --from=" + in.Request.Base.Reference +
				" /usr/bin/busybox /usr/lib/copied\n"
			conf := "[[registry]]\nlocation = \"" + own + "\"\n[[registry.mirror]]\nlocation = \"" + reg.Addr + "/" +
				c.mirror + "\"\npull-from-mirror = \"digest-only\"\n"
			in.Request.Config = buildtest.Config(t, map[string]string{
				"/etc/containers/registries.conf": url.PathEscape(conf)})
			p := newPod(t, reg, in)
			result, code := p.run()
			assert.Contains(t, p.out.String(), c.says)
			if !c.built {
				require.NotZero(t, code)
				require.NotNil(t, result.Failure)
				assert.Contains(t, result.Failure.Message, "registry.invalid")
				return
			}
			require.Zero(t, code, p.out.String())
			assert.Equal(t, build.EngineBuildah, result.Engine)
			image := in.Request.Target + "@" + result.Digest
			assert.Contains(t, files(t, reg, image).Entries, "/usr/lib/copied")
			read, err := client(t, reg).Read(t.Context(), image, "")
			require.NoError(t, err)
			assert.Equal(t, digest, read.Labels()[build.LabelBaseDigest])
		})
	}
}
