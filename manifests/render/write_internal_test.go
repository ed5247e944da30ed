package render

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"dayone.dev/dayone/manifests"
)

// A folder that cannot be moved leaves all folders as they were.
func TestSwapGoesBack(t *testing.T) {
	dir := t.TempDir()
	staging := filepath.Join(dir, ".staging")
	for _, file := range []string{".staging/new/fresh", ".staging/known/fresh", "known/old", "last/old"} {
		require.NoError(t, os.MkdirAll(filepath.Join(dir, filepath.Dir(file)), 0o700))
		require.NoError(t, os.WriteFile(filepath.Join(dir, file), nil, 0o600))
	}
	for _, c := range []struct{ name, says string }{
		{"nothing to put in its place", "move rendered folder into place"},
		{"the old one stays where it is", "set old folder aside"},
	} {
		t.Run(c.name, func(t *testing.T) {
			require.ErrorContains(t, swap(dir, staging, []string{"known", "new", "last"}), c.says)
			assert.NoDirExists(t, filepath.Join(dir, "new"))
			for _, old := range []string{"known/old", "last/old"} {
				assert.FileExists(t, filepath.Join(dir, old))
			}
			assert.NoFileExists(t, filepath.Join(dir, "known/fresh"))
			require.NoError(t, os.WriteFile(filepath.Join(staging, "last.old"), nil, 0o600)) // a folder cannot go onto a file
		})
	}
}

// Write says what it cannot do, and leaves nothing of it behind.
func TestWriteFails(t *testing.T) {
	taken := filepath.Join(t.TempDir(), "file")
	require.NoError(t, os.WriteFile(taken, nil, 0o600))
	long := &mcfgv1.MachineConfigPool{ObjectMeta: metav1.ObjectMeta{Name: strings.Repeat("x", 300)}}
	dir := t.TempDir()
	for _, c := range []struct{ name, dir, says string }{
		{"below a file", filepath.Join(taken, "out"), "make destination directory"},
		{"where no file can be made", "/proc/self", "make staging directory"},
		{"a name that is no file's", dir, "write rendered object"},
	} {
		t.Run(c.name, func(t *testing.T) {
			err := Write(c.dir, &manifests.Set{}, &Result{Pools: []*mcfgv1.MachineConfigPool{long},
				Configs: []*mcfgv1.MachineConfig{{ObjectMeta: metav1.ObjectMeta{Name: "rendered-" + long.Name}}}})
			require.ErrorContains(t, err, c.says)
		})
	}
	left, err := os.ReadDir(dir)
	require.NoError(t, err)
	assert.Empty(t, left)
}
