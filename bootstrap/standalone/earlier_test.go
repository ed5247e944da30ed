package standalone_test

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sirupsen/logrus"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"dayone.dev/dayone/bootstrap/day1"
	"dayone.dev/dayone/bootstrap/journal"
	"dayone.dev/dayone/bootstrap/phasetest"
	"dayone.dev/dayone/bootstrap/standalone"
	"dayone.dev/dayone/installconfig"
	"dayone.dev/dayone/manifests/render"
)

// TestResumeStateOfEarlierVersion goes on from a journal and a state directory that commit d13be95 wrote
// (testdata/d13be95/README.md). The source of its base image is gone.
func TestResumeStateOfEarlierVersion(t *testing.T) {
	if os.Geteuid() != 0 {
		require.Empty(t, os.Getenv("CI"), "needs root")
		t.Skip("needs root, as every bootstrap does")
	}
	motd := func(t *testing.T, install string) {
		file := filepath.Join(install, "openshift/10-master-motd.yaml")
		raw, err := os.ReadFile(file)
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(file, bytes.Replace(raw, []byte("A%20master"), []byte("Another%20master"), 1), 0o600))
	}
	for _, c := range []struct {
		name   string
		change func(t *testing.T, install string)
		// settings keeps pullSecret and sshKey in install-config.yaml, which that version brought to no node.
		settings bool
		reused   []string
		// kept are rendered configs that have the same name.
		kept []string
	}{
		// The final rendering's record says nothing of some inputs: it is done again, with the same result.
		{"same inputs", func(*testing.T, string) {}, false, []string{"base", "build-master"},
			[]string{"rendered-master-349410227d512fa261f8126d1cce3cf4",
				"rendered-worker-89a90ad7be0c37c5ec084e85d1fc39bc"}},
		{"settings that reach the nodes now", func(*testing.T, string) {}, true, []string{"base"}, nil},
		{"another MachineConfig", motd, false, []string{"base"},
			[]string{"rendered-worker-89a90ad7be0c37c5ec084e85d1fc39bc"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := t.TempDir()
			require.NoError(t, os.CopyFS(dir, os.DirFS("testdata/d13be95")))
			reachable(t, dir, c.settings)
			c.change(t, filepath.Join(dir, "install"))
			reused, err := resume(t, dir)
			require.NoError(t, err)
			assert.Equal(t, c.reused, reused)
			j, err := journal.Open(filepath.Join(dir, "state"))
			require.NoError(t, err)
			for _, r := range j.Records {
				assert.Equal(t, journal.StatusDone, r.Status, r.Name)
			}
			for _, name := range c.kept {
				assert.FileExists(t, filepath.Join(dir, "state/rendered-first/machine-configs", name+".yaml"))
			}
			assert.FileExists(t, standalone.PointerFile(filepath.Join(dir, "state"), "master"))
		})
	}
}

// reachable gives the bootstrap host an address that nodes can reach, and its user a key that is one: that version took
// 127.0.0.1 and any text. Without settings it removes what that version did not bring to the nodes.
func reachable(t *testing.T, dir string, settings bool) {
	words := strings.NewReplacer("127.0.0.1", phasetest.HostAddress(t),
		"IEFub3RoZXJTYW1wbGVLZXlGb3JEYXlvbmVEZW1vMDE", "ILaofmw0DPom6sKyqmPLNu7RPSBkcAmEUZL/N8RmDDFI")
	for _, name := range []string{"install/install-config.yaml", "state/journal.json"} {
		raw, err := os.ReadFile(filepath.Join(dir, name))
		require.NoError(t, err)
		text := words.Replace(string(raw))
		if !settings && filepath.Base(name) == installconfig.FileName {
			text, _, _ = strings.Cut(text, "pullSecret:") // and sshKey, the last line
		}
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600))
	}
}

// resume runs the bootstrap until it serves and returns the phases whose results it took from the journal.
func resume(t *testing.T, dir string) (reused []string, err error) {
	self, err := os.Executable()
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	log := logrus.New()
	log.SetOutput(t.Output())
	err = standalone.Run(ctx, standalone.Options{
		Options: day1.Options{Dir: filepath.Join(dir, "install"), StateDir: filepath.Join(dir, "state"),
			Platform: "linux/amd64", NewEngine: phasetest.Engine, Log: logrus.NewEntry(log),
			Observe: func(e journal.Event) {
				if e.Kind == journal.EventReused {
					reused = append(reused, e.Record.Name)
				}
				if e.Record.Name == "serve" && e.Kind == journal.EventRecorded {
					cancel()
				}
			}},
		BaseSource: "oci:/tmp/dayone-base", DaemonBinary: self,
		RegistryListen: phasetest.HostAddress(t) + ":24871", ConfigListen: "127.0.0.1:24872",
		Versions: render.Versions{Raw: "test", Hash: "test", Payload: "test"},
	})
	return reused, err
}
