package nodedisk_test

import (
	"os"
	"path/filepath"
	"testing"

	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"dayone.dev/dayone/rebase/nodedisk"
)

func named(config, image string) nodedisk.Current {
	return nodedisk.Current{Config: &mcfgv1.MachineConfig{ObjectMeta: metav1.ObjectMeta{Name: config}}, Image: image}
}

func names(t *testing.T, root string) (out []string) {
	pending, err := nodedisk.ReadPending(root)
	require.NoError(t, err)
	for _, c := range pending {
		out = append(out, c.Config.Name+"@"+c.Image)
	}
	return out
}

func TestPendingKeepsWhatWasBegun(t *testing.T) {
	root := t.TempDir()
	assert.Empty(t, names(t, root))
	require.NoError(t, nodedisk.AddPending(root, named("c0", ""), named("c1", "")))
	require.NoError(t, nodedisk.AddPending(root, named("c0", ""), named("c1", "")))
	assert.Equal(t, []string{"c0@", "c1@"}, names(t, root), "the same again is the same")
	require.NoError(t, nodedisk.AddPending(root, named("c0", ""), named("c2", "")))
	require.NoError(t, nodedisk.AddPending(root, named("c0", ""), named("c2", "i")))
	assert.Equal(t, []string{"c1@", "c2@", "c0@", "c2@i"}, names(t, root), "the latest one last")
	require.NoError(t, nodedisk.EndPending(root))
	require.NoError(t, nodedisk.EndPending(root))
	assert.Empty(t, names(t, root))
}

func TestPendingOfAnAgentThatKnewOne(t *testing.T) {
	root := t.TempDir()
	at := filepath.Join(root, nodedisk.PendingPath)
	require.NoError(t, nodedisk.WriteFile(at, []byte(`{"Config":{"metadata":{"name":"c1"}},"Image":"i"}`), 0o600))
	assert.Equal(t, []string{"c1@i"}, names(t, root))
	require.NoError(t, nodedisk.AddPending(root, named("c2", "")))
	assert.Equal(t, []string{"c1@i", "c2@"}, names(t, root))
	raw, err := os.ReadFile(at)
	require.NoError(t, err)
	assert.Contains(t, string(raw), `{"Config":{"metadata":{"name":"c2"`, "an agent of before reads the latest one there")
	require.NoError(t, os.WriteFile(at, []byte("{"), 0o600))
	_, err = nodedisk.ReadPending(root)
	require.ErrorContains(t, err, nodedisk.PendingPath)
}

func TestSweepRemovesUnfinishedRecords(t *testing.T) {
	root := t.TempDir()
	dir := filepath.Join(root, nodedisk.Dir)
	require.NoError(t, os.MkdirAll(dir, 0o755))
	for _, name := range []string{".currentconfig-123", ".currentimage456", "currentconfig", ".currentconfig.bak"} {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), nil, 0o600))
	}
	require.NoError(t, nodedisk.Sweep(root))
	left, err := os.ReadDir(dir)
	require.NoError(t, err)
	require.Len(t, left, 2)
	assert.Equal(t, ".currentconfig.bak", left[0].Name())
	assert.Equal(t, "currentconfig", left[1].Name())
}
