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
	"dayone.dev/dayone/build/sign"
	"dayone.dev/dayone/cmd/internal/cli/clitest"
	"dayone.dev/dayone/registry/registrytest"
	"dayone.dev/dayone/registry/transfer"
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
		assert.Equal(t, "bash.amd64  1  2\n1 package differs; files: 0 added, 0 removed, 1 changed\n", out)
		code, out, stderr = run("diff", base.Reference, result.Reference, "-o", "json")
		require.Zero(t, code, stderr)
		var d sbom.Difference
		require.NoError(t, json.Unmarshal([]byte(out), &d))
		assert.Empty(t, d.Packages)
		assert.Contains(t, d.Files, sbom.FileChange{Path: "/etc/motd", Change: "added"})
		bare := buildtest.Push(t, reg, buildtest.Base{Repository: "os/bare"})
		code, out, stderr = run("diff", bare.Reference, bare.Reference)
		require.Zero(t, code, stderr)
		assert.Equal(t, "packages are not known; files: 0 added, 0 removed, 0 changed\n", out)
		assert.Contains(t, stderr, bare.Reference+" has no database of rpm or dpkg")
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

func TestProvenance(t *testing.T) {
	reg := registrytest.Start(t)
	base := buildtest.Push(t, reg, buildtest.Base{Files: status("1")})
	dir := t.TempDir()
	key, err := sign.LoadOrCreate(dir)
	require.NoError(t, err)
	r := buildtest.Request(t, reg, base, "FROM configs\nCOPY <<x /etc/motd\nhello\nx\n")
	result, err := build.NewBuilder(build.BuilderOptions{Keys: &sign.Keys{Key: key},
		BillsOfMaterials: sbom.Bills{Version: "v1"}}).Build(t.Context(), r)
	require.NoError(t, err)
	verify := func(more ...string) (int, string, string) {
		return clitest.Run(t, Commands("v1"), append([]string{"verify", result.Reference, "--ca", reg.CAFile,
			"--authfile", reg.PullAuthFile, "--key", filepath.Join(dir, sign.PublicFile)}, more...)...)
	}
	digest := strings.SplitN(base.Reference, "@", 2)[1]
	code, out, stderr := verify("--base-digest", digest, "--config-hash", result.Inputs.ConfigHash, "--address",
		result.Address)
	require.Zero(t, code, stderr+out)
	assert.Contains(t, out, "built by https://dayone.dev/builder")
	code, out, _ = verify("--base-digest", "sha256:"+strings.Repeat("0", 64))
	assert.Equal(t, 1, code)
	assert.Contains(t, out, digest+", and wanted is sha256:000")

	found, err := transfer.Documents(t.Context(), transfer.Endpoint{Reference: result.Reference, CAFile: reg.CAFile,
		AuthFile: reg.PullAuthFile}, "application/spdx+json")
	require.NoError(t, err)
	require.Len(t, found, 1)
	code, out, stderr = clitest.Run(t, Commands("v1"), "sbom", result.Reference, "--ca", reg.CAFile, "--authfile",
		reg.PullAuthFile)
	require.Zero(t, code, stderr)
	assert.Equal(t, out, string(found[0]), "what is attached is what the command writes")
}

func TestSigning(t *testing.T) {
	reg := registrytest.Start(t)
	image := buildtest.Push(t, reg, buildtest.Base{Files: status("1"), Repository: "os/worker"}).Reference
	dir := t.TempDir()
	run := func(args ...string) (int, string, string) { return clitest.Run(t, Commands("v1"), args...) }
	for _, key := range []string{"old", "new"} {
		code, out, stderr := run("keygen", filepath.Join(dir, key))
		require.Zero(t, code, stderr)
		assert.Contains(t, out, "key ")
	}
	signWith := func(key, image string, more ...string) (int, string, string) {
		key = filepath.Join(dir, key)
		return run(append([]string{"sign", image, "--ca", reg.CAFile, "--authfile", reg.PushAuthFile,
			"--key", filepath.Join(key, sign.KeyFile),
			"--passphrase-file", filepath.Join(key, sign.PassphraseFile)}, more...)...)
	}
	verifyWith := func(image string, more ...string) (int, string, string) {
		args := []string{"verify", image, "--ca", reg.CAFile, "--authfile", reg.PullAuthFile,
			"--key", filepath.Join(dir, "old", sign.PublicFile), "--key", filepath.Join(dir, "new", sign.PublicFile)}
		return run(append(args, more...)...)
	}
	code, out, stderr := verifyWith(image)
	assert.Equal(t, 1, code, stderr)
	assert.Contains(t, out, "NO")
	assert.Contains(t, out, "no signature exists")

	const final = "registry.example.com/os/worker"
	code, out, stderr = signWith("new", image, "--repository", final)
	require.Zero(t, code, stderr)
	assert.Contains(t, out, "signed as "+final)
	code, out, stderr = signWith("new", image, "--repository", final)
	require.Zero(t, code, stderr)
	assert.Contains(t, out, "was signed already")
	code, _, _ = verifyWith(image)
	assert.Equal(t, 1, code, "the signature is for another repository")
	code, out, stderr = verifyWith(image, "--repository", final, "-o", "json")
	require.Zero(t, code, stderr)
	var got verification
	require.NoError(t, json.Unmarshal([]byte(out), &got))
	assert.True(t, got.OK)
	assert.Equal(t, []bool{false, true}, []bool{got.Checks[0].OK, got.Checks[1].OK})

	for _, tc := range []struct {
		name    string
		code    int
		message string
		run     func() (int, string, string)
	}{
		{"sign by tag", 2, "by digest", func() (int, string, string) { return signWith("new", reg.Addr+"/os/worker:v1") }},
		{"sign without a key", 2, "--key", func() (int, string, string) { return run("sign", image) }},
		{"verify without a key", 2, "--key", func() (int, string, string) { return run("verify", image) }},
		{"no such image", 1, "os/none", func() (int, string, string) { return verifyWith(reg.Addr + "/os/none:v1") }},
		{"the passphrase of another key", 1, "the passphrase of this key?", func() (int, string, string) {
			require.NoError(t, os.Rename(filepath.Join(dir, "old", sign.PassphraseFile),
				filepath.Join(dir, "new", sign.PassphraseFile)))
			return signWith("new", image)
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			code, _, stderr := tc.run()
			assert.Equal(t, tc.code, code)
			assert.Contains(t, stderr, tc.message)
		})
	}
}
