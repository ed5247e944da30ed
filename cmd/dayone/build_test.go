package main

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"dayone.dev/dayone/bootstrap/trialbuild"
	"dayone.dev/dayone/build/buildahengine"
	"dayone.dev/dayone/build/buildtest"
	"dayone.dev/dayone/build/sign"
	"dayone.dev/dayone/cmd/internal/cli"
	"dayone.dev/dayone/cmd/internal/cli/clitest"
	"dayone.dev/dayone/installconfig"
	"dayone.dev/dayone/installconfig/report"
	"dayone.dev/dayone/registry/registrytest"
	"dayone.dev/dayone/registry/transfer"
)

// The test program is its own build process, and with asProgram in its environment it is dayone, or
// tells whether dayone takes the command line.
func TestMain(m *testing.M) {
	if buildahengine.Init() {
		return
	}
	switch os.Getenv(asProgram) {
	case "":
	case acceptMode:
		os.Exit(acceptOnly(os.Args))
	default:
		main()
	}
	os.Exit(m.Run())
}

func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	return cli.Run(ctx, newRootCommand(), args, stdout, stderr)
}

// dayone runs the command line.
func dayone(t *testing.T, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	var out, errs bytes.Buffer
	code = run(t.Context(), args, &out, &errs)
	clitest.Conforms(t, args, out.String())
	return code, out.String(), errs.String()
}

func write(t *testing.T, name, text string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), name)
	require.NoError(t, os.WriteFile(file, []byte(text), 0o600))
	return file
}

func TestBuildLint(t *testing.T) {
	const mosc = "apiVersion: machineconfiguration.openshift.io/v1\nkind: MachineOSConfig\nmetadata:\n" +
		"  name: master\nspec:\n  containerFile:\n  - content: |\n      FROM configs\n      NOPE\n"
	for _, c := range []struct {
		name       string
		file, text string
		code       int
		says       string
	}{
		{"a good Containerfile", "Containerfile", "FROM configs\nRUN true\n", 0, "0 warnings"},
		{"a warning is no refusal", "Containerfile", "FROM configs\nRUN useradd x\n", 0, ":2: "},
		{"a bad one", "Containerfile", "FROM configs\nNOPE\n", 3,
			":2: unknown instruction NOPE [unknown-instruction]"},
		{"a MachineOSConfig", "mosc.yaml", mosc, 3,
			"spec.containerFile[0].content: unknown instruction NOPE"},
		{"a manifest without one", "mosc.yaml", "apiVersion: v1\nkind: Secret\nmetadata:\n  name: a\n", 3,
			"no-machineosconfig"},
		{"a file that is no manifest either", "mosc.yaml", "a: b\n", 3, "kind-missing"},
	} {
		t.Run(c.name, func(t *testing.T) {
			code, stdout, stderr := dayone(t, "build", "lint", write(t, c.file, c.text))
			assert.Equal(t, c.code, code, stderr)
			assert.Contains(t, stdout+stderr, c.says)
		})
	}
	code, _, _ := dayone(t, "build", "lint")
	assert.Equal(t, cli.ExitUsage, code)
	code, stdout, _ := dayone(t, "build", "lint", "-o", "json", write(t, "Containerfile", "FROM configs\nRUN useradd x\n"))
	assert.Equal(t, 0, code)
	var findings report.Report
	require.NoError(t, json.Unmarshal([]byte(stdout), &findings))
	assert.Equal(t, "account-command", findings.Findings[0].Rule)
}

// demandSignature lets an install directory demand a signature of its base image, and gives the key and the image's own
// repository.
func demandSignature(t *testing.T, dir string) (vendor *sign.Key, repository string) {
	t.Helper()
	vendor, err := sign.LoadOrCreate(t.TempDir())
	require.NoError(t, err)
	file := filepath.Join(dir, installconfig.FileName)
	raw, err := os.ReadFile(file)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(file, bytes.Replace(raw, []byte("  pools:\n"),
		[]byte("  signing: {baseImagePolicy: base.json}\n  pools:\n"), 1), 0o600))
	_, rest, _ := strings.Cut(string(raw), "baseImage: ")
	image, _, _ := strings.Cut(rest, "\n")
	repository = installconfig.Repository(image)
	require.NoError(t, os.WriteFile(filepath.Join(dir, "base.json"), fmt.Appendf(nil, `{"default":[{"type":"reject"}],`+
		`"transports":{"docker":{%q:[{"type":"sigstoreSigned","keyData":%q,"signedIdentity":{"type":"matchRepository"}}]}}}`,
		repository, base64.StdEncoding.EncodeToString(vendor.Public)), 0o600))
	return vendor, repository
}

func TestBuildOnALaptop(t *testing.T) {
	buildtest.Need(t, true, "busybox")
	reg := registrytest.Start(t)
	base := buildtest.Push(t, reg, buildtest.Base{})
	final := registrytest.Start(t)
	dir := filepath.Join(t.TempDir(), "cluster")
	code, _, stderr := dayone(t, "sample", "--dir", dir)
	require.Equal(t, 0, code, stderr)
	mosc := filepath.Join(dir, "layering", "master.yaml")
	text, err := os.ReadFile(mosc)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(mosc, bytes.ReplaceAll(text, []byte("registry.example.com/"), []byte(final.Addr+"/")),
		0o600))
	args := []string{"build", "--dir", dir, "--pool", "master", "--state-dir", t.TempDir(), "--base", base.Reference,
		"--base-ca", reg.CAFile, "--base-auth", reg.PullAuthFile, "-o", "json"}

	vendor, repository := demandSignature(t, dir)
	code, _, stderr = dayone(t, args...)
	require.NotZero(t, code)
	assert.Contains(t, stderr, "of baseImagePolicy: ")
	_, err = vendor.Sign(t.Context(), sign.Image{Repository: repository, Endpoint: transfer.Endpoint{
		Reference: base.Reference, CAFile: reg.CAFile, AuthFile: reg.PushAuthFile}})
	require.NoError(t, err)

	var first, second, third trialbuild.Outcome
	code, stdout, stderr := dayone(t, args...)
	require.Equal(t, 0, code, stderr)
	require.NoError(t, json.Unmarshal([]byte(stdout), &first))
	assert.False(t, first.Reused)

	code, stdout, stderr = dayone(t, append(args, "--push", "--push-ca", final.CAFile, "--push-auth",
		final.PushAuthFile)...)
	require.Equal(t, 0, code, stderr)
	require.NoError(t, json.Unmarshal([]byte(stdout), &second))
	assert.True(t, second.Reused, "nothing has changed")
	assert.Equal(t, first.Digest, second.Digest)
	assert.Equal(t, final.Addr+"/ocp/master-os@"+first.Digest, second.Pushed)

	code, stdout, stderr = dayone(t, append(args, "--check-reproducible")...)
	require.Equal(t, 0, code, stderr)
	require.NoError(t, json.Unmarshal([]byte(stdout), &third))
	require.NotNil(t, third.Reproducible)
	assert.True(t, *third.Reproducible)

	code, _, stderr = dayone(t, "build", "--dir", dir, "--pool", "infra")
	assert.Equal(t, cli.ExitUsage, code)
	assert.Contains(t, stderr, "there are: master, worker")
	for _, flag := range []string{"--engine=kaniko", "--isolation=vm", "--timeout=-1s"} {
		code, _, stderr = dayone(t, "build", "--dir", "nowhere", flag)
		assert.Equal(t, cli.ExitUsage, code, "%s is refused before anything is read: %s", flag, stderr)
	}
	for _, secret := range []string{reg.Pull.Password, final.Push.Password} {
		assert.False(t, strings.Contains(stdout+stderr, secret))
	}
}
