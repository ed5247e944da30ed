package render_test

import (
	"strings"
	"testing"

	ign35 "github.com/coreos/ignition/v2/config/v3_5/types"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"dayone.dev/dayone/manifests"
	"dayone.dev/dayone/manifests/machineconfig"
	"dayone.dev/dayone/manifests/render"
)

// CRI-O reads its drop-ins in the order of their names, and the last one that names a runtime decides.
func TestRuncDropIn(t *testing.T) {
	const runc, crun = "[crio.runtime]\ndefault_runtime = \"runc\"\n", "[crio.runtime]\ndefault_runtime = \"crun\"\n"
	type dropIn struct{ name, text string }
	for _, c := range []struct {
		name    string
		dropIns []dropIn
		want    string
	}{
		{"none", nil, ""},
		{"another runtime", []dropIn{{"10-a", crun}}, ""},
		{"runc", []dropIn{{"10-a", runc}}, "10-a"},
		{"the last one by name, wherever it stands", []dropIn{{"90-z", crun}, {"10-a", runc}}, ""},
		{"one that names no runtime decides nothing", []dropIn{{"10-a", runc}, {"90-z", "[crio]\n"}}, "10-a"},
		{"one that cannot be read decides nothing", []dropIn{{"10-a", runc}, {"90-z", crun + "]"}}, "10-a"},
	} {
		t.Run(c.name, func(t *testing.T) {
			var config ign35.Config
			for _, d := range c.dropIns {
				var f ign35.File
				f.Path, f.Contents = "/etc/crio/crio.conf.d/"+d.name, machineconfig.Inline([]byte(d.text))
				config.Storage.Files = append(config.Storage.Files, f)
			}
			assert.Equal(t, c.want, strings.TrimPrefix(render.RuncDropIn(config), "/etc/crio/crio.conf.d/"))
		})
	}
}

// Two MachineConfigs give one path a unit and something else: the finding names the one with the other thing.
func TestUnitAndSomethingElse(t *testing.T) {
	const at = "/etc/systemd/system/a.service"
	for _, c := range []struct{ name, storage string }{
		{"file", `files: [{path: ` + at + `, contents: {source: "data:,"}}, {path: /etc/b, contents: {source: "data:,"}}]`},
		{"directory", "directories: [{path: " + at + "}, {path: /etc/d}]"},
		{"link", "links: [{path: " + at + ", target: /etc/d}, {path: /etc/l, target: /etc/d}]"},
	} {
		t.Run(c.name, func(t *testing.T) {
			config := func(name, rest string) string {
				return machineConfig(name, "master", "spec: {config: {ignition: {version: 3.4.0}, "+rest+"}}\n")
			}
			_, found := renderWith(t, config("60-b", "storage: {"+c.storage+"}")+
				config("70-c", `systemd: {units: [{name: a.service, contents: "[Unit]"}]}`)+
				config("80-d", "storage: {directories: [{path: /etc/e}], links: [{path: /etc/f, target: /etc/d}]}"))
			require.Len(t, found, 1)
			assert.Equal(t, "unit-and-file", found[0].Rule)
			assert.Contains(t, found[0].Message, at+" of MachineConfig 60-b is a unit in systemd.units, too")
		})
	}
}

// A list of features that does not enable streams turns them off, whatever else it enables.
func TestFeaturesWithoutStreams(t *testing.T) {
	set, err := manifests.ReadDir("testdata/a-stream-without-the-feature-gate/in", manifests.ReadOptions{})
	require.NoError(t, err)
	options := render.Options{Versions: render.Versions{Raw: "v1", Hash: "h", Payload: "1.0.0"}}
	off, err := render.Render(set, options)
	require.NoError(t, err)
	details := &set.FeatureGates[0].Object.Status.FeatureGates[0]
	details.Enabled = append(details.Enabled, details.Disabled[0])
	details.Enabled[0].Name = "SomethingElse"
	got, err := render.Render(set, options)
	require.NoError(t, err)
	assert.Equal(t, off.Configs, got.Configs)
	details.Enabled[0].Name, details.Disabled[0].Name = "OSStreams", "SomethingElse"
	on, err := render.Render(set, options)
	require.NoError(t, err)
	assert.NotEqual(t, off.Configs, on.Configs)
}
