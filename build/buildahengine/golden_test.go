package buildahengine_test

import (
	"os"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"dayone.dev/dayone/build"
	"dayone.dev/dayone/build/buildahengine"
	"dayone.dev/dayone/build/buildtest"
)

// TestGolden holds the bytes of the container engine: the same inputs gave these digests in commit d13be95.
func TestGolden(t *testing.T) {
	raw, err := os.ReadFile("../testdata/golden.ign")
	require.NoError(t, err)
	b := newBench(t, buildahengine.Options{})
	for _, c := range []struct {
		name   string
		docker bool
		digest string
	}{
		{name: "oci", digest: "sha256:771cdaaa76f5b6b07d7135cbb018e86a001c6ca5e093a2c4c1b0f2ee7d4a3d4f"},
		{name: "docker", docker: true,
			digest: "sha256:20c45781a015c90b49baf22aa8842428df3541a569e6e52bab29e4773bd91bf9"},
	} {
		t.Run(c.name, func(t *testing.T) {
			b.base = buildtest.Push(t, b.reg, buildtest.Base{Fixed: true, Docker: c.docker, Architecture: "amd64",
				Files: map[string]string{"/usr/lib/passwd": "daemon:x:2:2::/:/sbin/nologin\n"}})
			r := b.request("FROM base AS first\nFROM configs\nLABEL a=b\nENV X=y\n" +
				"COPY --from=first /etc/stock.conf /usr/lib/x\n" +
				"COPY <<EOF /etc/inline\n$X\nEOF\n")
			r.Platform, r.Options.Engine = "linux/amd64", build.EngineBuildah
			r.Config.Spec.Config.Raw = raw
			result, err := b.builder.Build(t.Context(), r)
			require.NoError(t, err)
			assert.Equal(t, build.EngineBuildah, result.Engine)
			assert.Equal(t, c.digest, result.Digest)
		})
	}
}
