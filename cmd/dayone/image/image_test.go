package image

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"dayone.dev/dayone/build"
	"dayone.dev/dayone/build/buildtest"
	"dayone.dev/dayone/build/sbom"
	"dayone.dev/dayone/cmd/internal/cli/clitest"
	"dayone.dev/dayone/registry/registrytest"
)

func status(version string) map[string]string {
	return map[string]string{"/usr/lib/os-release": "ID=debian\nVERSION_ID=12\n",
		"/var/lib/dpkg/status": "Package: bash\nStatus: install ok installed\nArchitecture: amd64\n" +
			"Version: " + version + "\n"}
}

func TestCommands(t *testing.T) {
	reg := registrytest.Start(t)
	push := func(version string) build.Image {
		return buildtest.Push(t, reg, buildtest.Base{Files: status(version), Repository: "os/base" + version})
	}
	base, newer := push("1"), push("2")
	r := buildtest.Request(t, reg, base, "FROM configs\nCOPY <<x /etc/motd\nhello\nx\n")
	result, err := build.NewBuilder(build.BuilderOptions{StateDir: t.TempDir()}).Build(t.Context(), r)
	require.NoError(t, err)
	run := func(args ...string) (int, string, string) {
		return clitest.Run(t, Commands("v1"), append(args, "--ca", reg.CAFile, "--authfile", reg.PullAuthFile)...)
	}

	t.Run("sbom", func(t *testing.T) {
		code, out, stderr := run("sbom", result.Reference)
		require.Zero(t, code, stderr)
		assert.Contains(t, out, "pkg:deb/debian/bash@1?arch=amd64")
		assert.Contains(t, out, `"fileName":"./etc/motd"`)
		assert.NotContains(t, out, `"fileName":"./usr/lib/os-release"`, "it is the base's")
		assert.Contains(t, out, strings.SplitN(base.Reference, "@", 2)[1], "the base's digest")
		code, out, stderr = run("sbom", result.Reference, "--format", "cyclonedx")
		require.Zero(t, code, stderr)
		assert.Contains(t, out, `"bomFormat"`)
	})
	t.Run("diff", func(t *testing.T) {
		code, out, stderr := run("diff", base.Reference, newer.Reference)
		require.Zero(t, code, stderr)
		assert.Equal(t, "bash.amd64  1  2\n1 packages differ; files: 0 added, 0 removed, 1 changed\n", out)
		code, out, stderr = run("diff", base.Reference, result.Reference, "-o", "json")
		require.Zero(t, code, stderr)
		var d sbom.Difference
		require.NoError(t, json.Unmarshal([]byte(out), &d))
		assert.Empty(t, d.Packages)
		assert.Contains(t, d.Files, sbom.FileChange{Path: "/etc/motd", Change: "added"})
	})
	t.Run("refusals", func(t *testing.T) {
		code, _, stderr := run("sbom", result.Reference, "--format", "xml")
		assert.Equal(t, 2, code)
		assert.Contains(t, stderr, "must be spdx or cyclonedx")
		code, _, stderr = run("sbom", reg.Addr+"/os/none:v1")
		assert.Equal(t, 1, code)
		assert.Contains(t, stderr, "os/none")
	})
	t.Run("a layer whose bytes rotted", func(t *testing.T) {
		layer := result.Layers[len(result.Layers)-1].Digest
		hex := strings.TrimPrefix(layer, "sha256:")
		file := filepath.Join(t.TempDir(), "oci")
		code, _, stderr := clitest.Run(t, Commands("v1"), "sbom", "oci:"+file)
		assert.Equal(t, 1, code)
		assert.Contains(t, stderr, "oci")
		code, _, stderr = run("sbom", result.Reference)
		require.Zero(t, code, stderr)
		data := filepath.Join(reg.Options.Root, "docker/registry/v2/blobs/sha256", hex[:2], hex, "data")
		raw, err := os.ReadFile(data)
		require.NoError(t, err)
		raw[len(raw)-1] ^= 1
		require.NoError(t, os.WriteFile(data, raw, 0o600))
		code, out, _ := run("sbom", result.Reference)
		assert.Equal(t, 1, code)
		assert.Empty(t, out)
	})
}
