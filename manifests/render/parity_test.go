package render_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"dayone.dev/dayone/manifests"
	"dayone.dev/dayone/manifests/render"
)

// parityDir is a collection of inputs with what MCO makes of them. It lies beside a checkout that has one; it is not
// part of the tree.
func parityDir(t *testing.T) string {
	t.Helper()
	dir, err := os.Getwd()
	require.NoError(t, err)
	for {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			break
		}
		parent := filepath.Dir(dir)
		require.NotEqual(t, dir, parent, "no go.mod above the package")
		dir = parent
	}
	found := filepath.Join(filepath.Dir(dir), "shared", "parity")
	if _, err := os.Stat(filepath.Join(found, "settings.json")); err != nil {
		t.Skipf("no parity collection beside the checkout: %s", err)
	}
	return found
}

func readJSON(t *testing.T, file string, into any) {
	t.Helper()
	raw, err := os.ReadFile(file)
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal(raw, into))
}

// wantedPool is what MCO renders for a pool.
type wantedPool struct {
	Name                 string
	OSImageURLOverridden bool
}

// TestParityWithMCO compares outcome, names, sources and the override mark of every case. The name covers every byte of
// the spec.
func TestParityWithMCO(t *testing.T) {
	dir := parityDir(t)
	var settings struct{ VersionRaw, VersionHash, PayloadVersion string }
	readJSON(t, filepath.Join(dir, "settings.json"), &settings)
	options := render.Options{ComponentsOnly: true, Versions: render.Versions{Raw: settings.VersionRaw,
		Hash: settings.VersionHash, Payload: settings.PayloadVersion}}
	cases, err := filepath.Glob(filepath.Join(dir, "*", "in"))
	require.NoError(t, err)
	require.NotEmpty(t, cases)
	for _, in := range cases {
		t.Run(filepath.Base(filepath.Dir(in)), func(t *testing.T) {
			var want struct {
				Outcome string
				Sources []string
				Pools   map[string]wantedPool
			}
			readJSON(t, filepath.Join(filepath.Dir(in), "want.json"), &want)
			set, err := manifests.ReadDir(in, manifests.ReadOptions{})
			var result *render.Result
			if err == nil {
				result, err = render.Render(set, options)
			}
			if want.Outcome == "refused" {
				require.Error(t, err)
				return
			}
			require.NoError(t, err)
			require.Len(t, result.Pools, len(want.Pools))
			for i, p := range result.Pools {
				assert.Equal(t, want.Pools[p.Name].Name, result.Configs[i].Name)
				assert.Equal(t, want.Pools[p.Name].OSImageURLOverridden,
					result.Configs[i].Annotations[manifests.AnnotationOSImageURLOverridden] == "true")
				var sources []string
				for _, s := range p.Spec.Configuration.Source {
					sources = append(sources, s.Name)
				}
				slices.Sort(sources)
				assert.Equal(t, want.Sources, sources)
			}
		})
	}
}
