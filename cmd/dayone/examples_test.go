package main

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/spf13/cobra"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"dayone.dev/dayone/cmd/internal/cli"
)

// leaves gives the commands below root that do something; those of cobra and the help are not ours.
func leaves(root *cobra.Command) (out []*cobra.Command) {
	for _, c := range root.Commands() {
		if c.Hidden || c.Name() == "completion" || c.Name() == "help" {
			continue
		}
		if c.RunE != nil && c.Annotations == nil {
			out = append(out, c)
		}
		out = append(out, leaves(c)...)
	}
	return out
}

// lines gives the command lines of an example without comments and what the shell does with the output.
func lines(example string) (out [][]string) {
	for line := range strings.Lines(strings.ReplaceAll(example, "\\\n", " ")) {
		words := strings.Fields(line)
		if end := slices.IndexFunc(words, func(w string) bool { return w == "|" || w[0] == '>' }); end >= 0 {
			words = words[:end]
		}
		if len(words) > 0 && words[0] != "#" {
			out = append(out, words)
		}
	}
	return out
}

func TestHelpPages(t *testing.T) {
	for _, argv := range [][]string{{"dayone"}, {"kubectl-dayone"}} {
		commands := append(leaves(program(argv)), program(argv))
		require.Greater(t, len(commands), 10)
		for _, c := range commands {
			root := program(argv)
			args := append(strings.Fields(strings.TrimPrefix(c.CommandPath(), root.DisplayName())), "--help")
			var page bytes.Buffer
			require.Equal(t, cli.ExitOK, cli.Run(t.Context(), root, args, &page, &page), args)
			for line := range strings.Lines(page.String()) {
				if len(strings.Fields(line)) == 1 {
					continue // a path of this machine
				}
				assert.LessOrEqual(t, utf8.RuneCountInString(strings.TrimRight(line, "\n")), 80, "%v: %s", args, line)
			}
		}
	}
}

// Each example is a command line that its command takes: flags, arguments, what is required.
func TestExamplesAreAccepted(t *testing.T) {
	for _, argv := range [][]string{{"dayone"}, {"kubectl-dayone"}} {
		for _, c := range leaves(program(argv)) {
			assert.NotEmpty(t, c.Example, "%s has no example", c.CommandPath())
			for _, words := range lines(c.Example) {
				name := strings.Fields(program(argv).DisplayName())
				require.Equal(t, name, words[:len(name)], c.CommandPath())
				found, _, err := program(argv).Find(words[len(name):])
				require.NoError(t, err)
				require.Equal(t, c.CommandPath(), found.CommandPath(), words)
				require.NoError(t, accepted(append(slices.Clone(argv), words[len(name):]...)), words)
			}
		}
	}
	for _, e := range examples {
		found, _, err := program([]string{"dayone"}).Find(strings.Fields(e.command))
		require.NoError(t, err)
		assert.Equal(t, "dayone "+e.command, found.CommandPath(), "an example of no command")
	}
}

// needs says why an example does not run here, by how it begins; end-to-end tests run these commands.
var needs = map[string]string{
	"dayone prepare --dir cluster --check-registry": "a registry",
	"dayone build --dir":                            "root and a base image",
	"dayone bootstrap --dir cluster --base":         "root and a base image",
	"dayone bootstrap --dir cluster --kubeconfig":   "root and a base image",
	"dayone bootstrap hold":                         "a bootstrap",
	"dayone bootstrap carry":                        "a bootstrap in place",
	"dayone ignition":                               "the installer's bootstrap.ign",
	"dayone status --watch":                         "a bootstrap",
	"dayone status --url":                           "a bootstrap",
	"dayone handover":                               "a bootstrap and a cluster",
	"dayone render diff":                            "two rendered configs, whose names have hashes",
	"dayone render parity":                          "a cluster's dump",
	"dayone serve":                                  "a certificate; it does not end",
	"dayone gather":                                 "a bootstrap or a cluster",
	"dayone analyze":                                "a log bundle",
	"dayone registry serve":                         "it does not end",
	"dayone registry copy":                          "a registry",
	"dayone registry ls":                            "a registry's directory",
	"dayone registry du":                            "a registry's directory",
	"dayone registry status":                        "a registry's directory",
	"dayone registry verify":                        "a registry's directory",
	"dayone registry gc":                            "a registry's directory",
	"dayone registry rm":                            "a registry's directory",
	"dayone sign":                                   "an image",
	"dayone verify":                                 "an image",
	"dayone sbom":                                   "an image",
	"dayone diff":                                   "two images",
	"dayone cluster install --image":                "a cluster",
	"dayone cluster install --take-over":            "a cluster",
	"dayone cluster upgrade":                        "a cluster",
	"dayone cluster status":                         "a cluster",
	"dayone cluster logs":                           "a cluster",
	"dayone cluster plan":                           "a cluster, or a dump of one",
	"dayone cluster why":                            "a cluster",
	"dayone cluster policies":                       "a cluster's dump",
	"dayone cluster registry":                       "a cluster",
	"dayone cluster uninstall":                      "a cluster",
}

func TestExamplesRun(t *testing.T) {
	manifests, err := filepath.Abs(filepath.Join(cases, "a-layered-pool/in"))
	require.NoError(t, err)
	t.Chdir(t.TempDir())
	require.NoError(t, os.CopyFS("manifests", os.DirFS(manifests)))
	in, err := os.ReadFile("manifests/a.yaml")
	require.NoError(t, err)
	// As without a release.
	in = bytes.ReplaceAll(in, []byte("version: 1.0.0"), []byte("version: 0.0.1-snapshot"))
	in = bytes.ReplaceAll(in, []byte("generated-by-version: v1"), []byte(`generated-by-version: ""`))
	require.NoError(t, os.WriteFile("manifests/a.yaml", in, 0o600))
	unused, ran := make(map[string]bool), 0
	for begin := range needs {
		unused[begin] = true
	}
	for _, e := range examples {
		for _, words := range lines(e.text) {
			line := strings.Join(words, " ")
			left := false
			for begin := range needs {
				if strings.HasPrefix(line, begin) {
					left, unused[begin] = true, false
				}
			}
			if left {
				continue
			}
			code, _, stderr := dayone(t, words[1:]...)
			assert.Equal(t, cli.ExitOK, code, "%s: %s", line, stderr)
			if e.command == "manifests" {
				require.NoError(t, os.CopyFS("installed", os.DirFS("cluster")))
			}
			ran++
		}
	}
	assert.Greater(t, ran, 15)
	for begin, is := range unused {
		assert.False(t, is, "no example begins with %q", begin)
	}
}
