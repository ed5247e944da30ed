package main

import (
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"dayone.dev/dayone/bootstrap/journal"
	"dayone.dev/dayone/cmd/internal/cli"
)

// TestWrongPathsAreToldInSentences goes through the sub-commands with files that are missing, empty, of another kind,
// or a directory.
func TestWrongPathsAreToldInSentences(t *testing.T) {
	t.Setenv("KUBECONFIG", filepath.Join(t.TempDir(), "none"))
	t.Setenv("HOME", t.TempDir())
	t.Chdir(t.TempDir())
	require.NoError(t, os.Mkdir("empty", 0o755))
	require.NoError(t, os.WriteFile("void", nil, 0o644))
	require.NoError(t, os.WriteFile("bytes", []byte{0, 1, 2, 3}, 0o644))
	for args, want := range map[string]string{
		"analyze gone":                             "there is no gone",
		"analyze void":                             "not a log bundle (name a log-bundle-*.tar.gz",
		"analyze bytes":                            "not a log bundle (name a log-bundle-*.tar.gz",
		"prepare --dir gone":                       "give it with --dir",
		"prepare --dir void":                       "a directory is wanted",
		"manifests --dir gone":                     "give it with --dir",
		"plan --dir gone":                          "give it with --dir",
		"ignition --dir gone":                      "give it with --dir",
		"ignition --dir empty --remove":            "there is nothing to remove",
		"build --dir gone --pool master":           "give it with --dir",
		"bootstrap --dir gone":                     "give it with --dir",
		"bootstrap --flow sideways":                "write standalone or openshift",
		"status --state-dir void":                  "a directory is wanted",
		"status --url nowhere":                     "write https://HOST:PORT",
		"status --url https://a:1 --ca gone":       "there is no gone",
		"status --url https://a:1 --ca empty":      "empty is a directory, and a file is wanted",
		"status --url https://a:1 --ca void":       "void has no certificate",
		"gather --out void --state-dir empty":      "name another one with --out",
		"gather --every 1ms --state-dir empty":     "use one second or more",
		"gather --dir gone":                        "is --dir right? it may be left out",
		"gather --dir void":                        "is --dir right? it may be left out",
		"serve --server-basedir void":              "void is a file, and a directory is wanted",
		"registry copy oci:a oci:b --dest-ca gone": "there is no gone",
		"gather --receive here":                    "write HOST:PORT or :PORT",
		"gather --receive :9999 --stdout":          "pass it without",
		"gather --cluster":                         "there is no kubeconfig: set KUBECONFIG or pass --kubeconfig",
		"gather --cluster --kubeconfig gone":       "there is no gone",
		"gather --cluster --kubeconfig empty":      "empty is a directory, and a file is wanted",
		"gather --cluster --kubeconfig void":       "void names no cluster",
		"handover":                                 "--kubeconfig is needed",
		"handover --kubeconfig a --state-dir gone": "dayone bootstrap has not rendered",
		"sample --dir void":                        "a directory is wanted",
		"render --manifest-dir gone --dest-dir o":  "there is no gone",
		"render --manifest-dir void --dest-dir o":  "a directory is wanted",
		"render diff gone gone":                    "there is no gone",
		"render diff empty empty":                  "empty is a directory, and a file is wanted",
		"cluster plan":                             "there is no kubeconfig",
		"cluster plan --from gone":                 "(a directory of objects, or a kubeconfig): there is no gone",
		"cluster plan --from empty":                "there are no MachineConfigPools in it",
		"cluster plan --from void":                 "void names no cluster",
		"cluster plan --from bytes":                "bytes is not a kubeconfig",
		"cluster plan --from empty -f gone":        "there is no gone",
		"cluster plan --from empty -f empty":       "empty has no file that ends in .yaml, .yml or .json",
		"cluster status --kubeconfig gone":         "read the kubeconfig: there is no gone",
		"cluster why n --from gone":                "there is no gone",
		"cluster policies --from gone":             "there is no gone",
		"registry ls --root gone":                  "it is not the root of a registry",
		"registry serve --root void --listen :0":   "a directory is wanted",
		"registry copy oci:gone oci:o":             "there is no",
	} {
		t.Run(args, func(t *testing.T) {
			code, _, stderr := dayone(t, strings.Fields(args)...)
			assert.NotEqual(t, cli.ExitOK, code)
			assert.Contains(t, stderr, want)
			for _, raw := range []string{"stat ", "no such file", "is a directory\n", "not a directory", "KUBERNETES_MASTER",
				"error loading config file"} {
				if !strings.Contains(want, "give it with --dir") {
					assert.NotContains(t, stderr, raw)
				}
			}
		})
	}
}

func TestTakenPort(t *testing.T) {
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, taken.Close()) })
	_, port, err := net.SplitHostPort(taken.Addr().String())
	require.NoError(t, err)
	for _, args := range [][]string{
		{"serve", "--server-basedir", t.TempDir(), "--bind", "127.0.0.1", "--insecure-port", port},
		{"registry", "serve", "--root", t.TempDir(), "--listen", "127.0.0.1:" + port},
		{"gather", "--receive", "127.0.0.1:" + port, "--out", t.TempDir()},
	} {
		code, _, stderr := dayone(t, args...)
		assert.Equal(t, cli.ExitFailed, code)
		assert.Contains(t, stderr, "another program has the port: stop it", "%v", args)
	}
	_, _, stderr := dayone(t, "serve", "--server-basedir", t.TempDir(), "--bind", "192.0.2.1", "--insecure-port", port)
	assert.Contains(t, stderr, "this host does not have that address")
}

func TestStatusOfARunThatWasRefused(t *testing.T) {
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, journal.OutcomeFile),
		[]byte(`{"ended":"2026-01-02T03:04:05Z","error":"install-config.yaml: pools: no pool is named"}`), 0o600))
	code, stdout, stderr := dayone(t, "status", "--state-dir", dir)
	require.Equal(t, cli.ExitFailed, code, stderr)
	assert.Contains(t, stdout,
		"ended before its first phase, at 2026-01-02T03:04:05Z: install-config.yaml: pools: no pool is named")
}

// A host on which nothing has run has no process.
func TestStatusWhereNothingHasRun(t *testing.T) {
	dir := t.TempDir()
	code, stdout, stderr := dayone(t, "status", "--state-dir", dir, "-o", "json")
	require.Equal(t, cli.ExitOK, code, stderr)
	assert.JSONEq(t, `{"apiVersion":"dayone.dev/v1","kind":"BootstrapStatus","version":1,"phases":[],"running":false,
		"board":{"notes":["no bootstrap has run here; start one with dayone bootstrap"]}}`, stdout)
}

func TestTheInstallDirectoryIsNoFile(t *testing.T) {
	t.Chdir(t.TempDir())
	require.NoError(t, os.WriteFile("void", nil, 0o644))
	for _, command := range []string{"prepare", "plan", "manifests"} {
		code, _, stderr := dayone(t, command, "--dir", "void")
		assert.Equal(t, cli.ExitRefused, code, "as a directory that is not there")
		assert.Contains(t, stderr, "it is a file, and a directory is wanted")
	}
}
