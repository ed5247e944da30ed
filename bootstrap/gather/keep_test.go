package gather_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"dayone.dev/dayone/bootstrap/gather"
)

// TestKeepForTheInstallersBundle: what installer-gather.sh takes has journal, logs, nodes and MachineOSConfigs, and no
// secret.
func TestKeepForTheInstallersBundle(t *testing.T) {
	root, state, install, to := t.TempDir(), t.TempDir(), t.TempDir(), filepath.Join(t.TempDir(), "dayone.d")
	const canary = "canary-password-91f3"
	for name, content := range map[string]string{
		state + "/journal.json":                   `{"version":1,"phases":[]}`,
		state + "/nodes.json":                     `{"version":1,"nodes":[{"address":"a","reason":"` + canary + `"}]}`,
		state + "/identity/dayone-node.password":  canary,
		state + "/build/master/logs/a.log":        "STEP: RUN echo " + canary + "\n",
		install + "/layering/master.yaml":         "kind: MachineOSConfig\nmetadata: {name: master}\n",
		install + "/layering/secrets.yaml":        "kind: Secret\nstringData: {a: " + canary + "}\n",
		state + "/rendered/machine-pools/p.yaml":  "metadata: {name: p}\n",
		root + "/var/log/openshift/bootkube.json": "[]",
	} {
		require.NoError(t, os.MkdirAll(filepath.Dir(name), 0o700))
		require.NoError(t, os.WriteFile(name, []byte(content), 0o600))
	}
	// What an earlier version has left, for its owner alone.
	require.NoError(t, os.MkdirAll(filepath.Join(to, "layering"), 0o700))
	require.NoError(t, os.WriteFile(filepath.Join(to, "journal.json"), []byte(`{"version":1,"phases":[]}`), 0o600))
	before := unix.Umask(0o077) // dayone-bootstrap.service's
	defer unix.Umask(before)
	o := gather.Options{Root: root, StateDir: state, InstallDir: install}
	for range 2 {
		require.NoError(t, gather.Keep(t.Context(), o, to))
	}
	var have []string
	require.NoError(t, filepath.WalkDir(to, func(name string, e fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := e.Info()
		require.NoError(t, err)
		if e.IsDir() {
			assert.Equal(t, fs.FileMode(0o755), info.Mode().Perm(), name)
			return nil
		}
		assert.Equal(t, fs.FileMode(0o644), info.Mode().Perm(), "the installer packs as core: %s", name)
		raw, err := os.ReadFile(name)
		assert.NotContains(t, string(raw), canary, name)
		inside, _ := filepath.Rel(to, name)
		have = append(have, inside)
		return err
	}))
	assert.Equal(t, []string{"build-logs/master/logs/a.log", "journal.json", "layering/master.yaml", "nodes.json",
		"rendered/rendered/machine-pools/p.yaml", "status.json"}, have)
}
