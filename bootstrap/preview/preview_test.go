package preview_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"dayone.dev/dayone/bootstrap/preflight"
	"dayone.dev/dayone/bootstrap/preview"
	"dayone.dev/dayone/installconfig"
	"dayone.dev/dayone/manifests/assets"
	"dayone.dev/dayone/manifests/render"
	"dayone.dev/dayone/rebase/disruption"
)

// plan is that of the sample install directory with pieces of one file replaced.
func plan(t *testing.T, file string, replace ...string) *preview.Plan {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "cluster")
	require.NoError(t, assets.WriteSample(dir))
	if file != "" {
		raw, err := os.ReadFile(filepath.Join(dir, file))
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(filepath.Join(dir, file), []byte(strings.NewReplacer(replace...).
			Replace(string(raw))), 0o600))
	}
	in, err := preflight.Load(dir, "linux/amd64")
	require.NoError(t, err)
	p, err := preview.Of(in, render.VersionsOf("v1"))
	require.NoError(t, err)
	return p
}

func TestPlanNamesOrigins(t *testing.T) {
	p := plan(t, "")
	assert.Equal(t, "demo.example.com", p.Cluster)
	master, found := p.Pool("master")
	require.True(t, found)
	assert.Equal(t, 3, master.Nodes)
	assert.Equal(t, 2, master.Boots)
	assert.Empty(t, master.Later)
	assert.Equal(t, "bootstrap", master.Image.BuildAt)
	by := map[string]render.Entry{}
	for _, e := range master.Content {
		by[e.Kind+" "+e.Name] = e
	}
	assert.Equal(t, render.Source{MachineConfig: "10-master-motd", File: "openshift/10-master-motd.yaml"},
		by["file /etc/motd"].From)
	assert.Equal(t, "onClusterLayering.baseImage", by["field osImageURL"].From.MachineConfig)
	assert.NotContains(t, by, "field baseOSExtensionsContainerImage", "nobody set it")
	worker, _ := p.Pool("worker")
	assert.Equal(t, []disruption.Action{{Type: disruption.Drain}, {Type: disruption.Reboot}}, worker.Later)
}

func TestEqualInputHasEqualTargets(t *testing.T) {
	rules, err := disruption.Defaults()
	require.NoError(t, err)
	one := plan(t, "")
	for _, c := range []struct {
		name  string
		other *preview.Plan
		level disruption.Level
		image disruption.ImageChange
	}{
		{"the same", plan(t, ""), disruption.LevelNothing, disruption.ImageSame},
		{"a file", plan(t, "openshift/10-master-motd.yaml", "data:,", "data:,x"),
			disruption.LevelReboot, disruption.ImageConfig},
		{"a Containerfile", plan(t, "layering/master.yaml", "RUN ", "RUN true && "), disruption.LevelReboot,
			disruption.ImageContent},
		{"where the image goes", plan(t, "layering/master.yaml", "ocp/master-os:", "ocp/other-os:"),
			disruption.LevelReboot, disruption.ImageContent},
		{"the base image", plan(t, "install-config.yaml", "base-os:1", "base-os:2"), disruption.LevelReboot,
			disruption.ImageContent},
		{"a kernel argument, not in image", plan(t, "openshift/40-master-kernel-arguments.yaml", "quiet", "loud"),
			disruption.LevelReboot, disruption.ImageConfig},
	} {
		t.Run(c.name, func(t *testing.T) {
			f, known, err := c.other.Change("master", one, disruption.Settings{Policies: rules})
			require.NoError(t, err)
			require.True(t, known)
			assert.Equal(t, c.level, f.Plan.Level)
			if c.level == disruption.LevelNothing {
				assert.Empty(t, f.Plan.Transitions)
				return
			}
			require.Len(t, f.Plan.Transitions, 1)
			assert.Equal(t, c.image, f.Plan.Transitions[0].Change)
			assert.Equal(t, 3, f.Plan.Nodes)
			worker, known, err := c.other.Change("gpu", one, disruption.Settings{Policies: rules})
			assert.False(t, known, "%v %v", worker, err)
		})
	}
}

func TestPlanOfAnUnpreparedDirectory(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "cluster")
	require.NoError(t, assets.WriteSample(dir))
	warnings := func() string {
		d, err := preview.Read(dir, "linux/amd64", render.VersionsOf("v1"))
		require.NoError(t, err)
		return strings.Join(d.Forecast(time.Unix(0, 0)).Install.Warnings, "\n")
	}
	assert.Contains(t, warnings(), "run dayone prepare --dir "+dir)

	layering, err := preflight.Layering(dir)
	require.NoError(t, err)
	_, err = preflight.PrepareSigning(dir, layering.Config.Signing)
	require.NoError(t, err)
	_, err = installconfig.Prepare(dir)
	require.NoError(t, err)
	assert.Empty(t, warnings())
}
