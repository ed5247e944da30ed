package patch_test

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	v32 "github.com/coreos/ignition/v2/config/v3_2"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"dayone.dev/dayone/bootstrap/openshift/patch"
	"dayone.dev/dayone/installconfig"
	"dayone.dev/dayone/installconfig/report"
)

// original is a bootstrap.ign in the installer's form: compact, with empty objects, in its own order.
const original = `{"ignition":{"config":{"replace":{"verification":{}}},"proxy":{},"security":{"tls":{}},"timeouts":{},"version":"3.2.0"},` +
	`"passwd":{"users":[{"name":"core","sshAuthorizedKeys":["ssh-ed25519 AAAA a"]}]},` +
	`"storage":{"files":[{"overwrite":true,"path":"/usr/local/bin/bootkube.sh","user":{"name":"root"},"contents":{"source":"data:text/plain;charset=utf-8;base64,IyEvYmluL2Jhc2gK","verification":{}},"mode":365}]},` +
	`"systemd":{"units":[{"contents":"[Service]\nExecStart=/usr/local/bin/report-progress.sh\n[Install]\nWantedBy=multi-user.target\n","dropins":[{"contents":"[Unit]\n","name":"10-other.conf"}],"enabled":true,"name":"progress.service"},{"contents":"[Service]\nExecStart=/bin/true\n","name":"bootkube.service"}]}}`

var pointer = `{"ignition":{"config":{"merge":[{"source":"https://api-int.c.example.com:22623/config/master"}]},"security":{"tls":{"certificateAuthorities":[{"source":"data:,x"}]}},"version":"3.2.0"}}`

const bootstrapIgn = installconfig.BootstrapIgnition

func additions() patch.Additions {
	return patch.Additions{
		Files: []patch.File{{Path: "/etc/dayone/a", Mode: 0o600, Content: []byte(strings.Repeat("words ", 1000))},
			{Path: "/etc/dayone/b", Mode: 0o644, Content: []byte("b")},
			{Path: "/usr/local/bin/dayone", Mode: 0o755, URL: "https://files.example.com/dayone",
				SHA512: strings.Repeat("0", 128)}},
		Units: []patch.Unit{{Name: "dayone-a.service",
			Contents: "[Service]\nExecStart=/bin/true\n[Install]\nWantedBy=multi-user.target\n"}},
		DropIns: []patch.DropIn{{Unit: "progress.service", Name: "10-dayone.conf", Contents: "[Service]\n"},
			{Unit: "kubelet.service", Name: "10-dayone.conf", Contents: "[Unit]\n"}},
	}
}

func directory(t *testing.T, text string) string {
	t.Helper()
	dir := t.TempDir()
	put(t, dir, installconfig.BootstrapIgnition, text)
	put(t, dir, "master.ign", pointer)
	require.NoError(t, os.Chmod(filepath.Join(dir, installconfig.BootstrapIgnition), 0o640))
	return dir
}

func put(t *testing.T, dir, name, text string) {
	t.Helper()
	require.NoError(t, os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o755))
	require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600))
}

func get(t *testing.T, dir string) string {
	t.Helper()
	raw, err := os.ReadFile(filepath.Join(dir, installconfig.BootstrapIgnition))
	require.NoError(t, err)
	return string(raw)
}

func TestPatchIsIdempotentAndRemoveIsExact(t *testing.T) {
	dir := directory(t, original)
	first, err := patch.Apply(dir, additions())
	require.NoError(t, err)
	assert.True(t, first.Changed)
	once := get(t, dir)
	config, found, err := v32.Parse([]byte(once))
	require.NoError(t, err, "spec 3.2 reads it")
	assert.Empty(t, found.Entries, "and every key in it is one of spec 3.2: %s", found.String())
	assert.Len(t, config.Storage.Files, 5, "the installer's, three and the marker")
	require.Len(t, config.Systemd.Units, 4)
	assert.Len(t, config.Systemd.Units[0].Dropins, 2, "the drop-in joins the unit that is there")
	info, err := os.Stat(filepath.Join(dir, installconfig.BootstrapIgnition))
	require.NoError(t, err)
	assert.Equal(t, os.FileMode(0o640), info.Mode().Perm())

	again, err := patch.Apply(dir, additions())
	require.NoError(t, err)
	assert.False(t, again.Changed)
	assert.Equal(t, once, get(t, dir))

	other := additions()
	other.Files[1].Content = []byte("another")
	changed, err := patch.Apply(dir, other)
	require.NoError(t, err)
	assert.True(t, changed.Changed)
	assert.NotEqual(t, first.Digest, changed.Digest)

	removed, err := patch.Remove(dir, installconfig.BootstrapIgnition)
	require.NoError(t, err)
	assert.True(t, removed.Changed)
	assert.Equal(t, original, get(t, dir), "byte for byte")
	removed, err = patch.Remove(dir, installconfig.BootstrapIgnition)
	require.NoError(t, err)
	assert.False(t, removed.Changed, "twice is once")
	_, err = patch.Remove(t.TempDir(), installconfig.BootstrapIgnition)
	require.ErrorContains(t, err, "nothing to remove")
}

func TestRemoveKeepsWhatOthersAddedLater(t *testing.T) {
	dir := directory(t, original)
	_, err := patch.Apply(dir, additions())
	require.NoError(t, err)
	// openshift-install create cluster reads the file into its types and adds one of its own.
	later := strings.Replace(get(t, dir), `"storage":{"files":[`,
		`"storage":{"files":[{"path":"/opt/openshift/manifests/openshift-install.yaml","mode":420,"contents":{"source":"data:,x"}},`, 1)
	put(t, dir, installconfig.BootstrapIgnition, later)
	_, err = patch.Remove(dir, installconfig.BootstrapIgnition)
	require.NoError(t, err)
	got := get(t, dir)
	assert.Contains(t, got, "openshift-install.yaml")
	assert.NotContains(t, got, "dayone")
	assert.NotContains(t, got, "kubelet.service", "a unit that only the drop-in made is gone with it")
	var a, b map[string]any
	require.NoError(t, json.Unmarshal([]byte(got), &a))
	require.NoError(t, json.Unmarshal([]byte(original), &b))
	assert.Len(t, a["systemd"].(map[string]any)["units"], len(b["systemd"].(map[string]any)["units"].([]any)))
}

// single is a config of a bootstrap in place.
var single = strings.NewReplacer("/usr/local/bin/bootkube.sh", "/usr/local/bin/end.sh", "bootkube.service",
	"install.service").Replace(original)

func forSingle() patch.Additions {
	a := additions()
	a.Target = installconfig.InPlaceIgnition
	a.Moves = []patch.Move{{From: "/usr/local/bin/end.sh", To: "/usr/local/bin/end.installer.sh"}}
	a.Files = append(a.Files, patch.File{Path: "/usr/local/bin/end.sh", Mode: 0o555, Content: []byte("ours")})
	a.DropIns = append(a.DropIns, patch.DropIn{Unit: "install.service", Name: "10-dayone.conf", Contents: "[Service]\n",
		Required: true})
	return a
}

// TestPatchTakesAPlace: a file of ours takes the place of one of the installer's, which stays beside it.
func TestPatchTakesAPlace(t *testing.T) {
	for _, c := range []struct{ name, config, rule string }{
		{"the installer's own", single, ""},
		{"without the file", strings.Replace(single, "end.sh", "other.sh", 1), "bootstrap-ign-other"},
		{"without the unit", strings.Replace(single, "install.service", "other.service", 1), "bootstrap-ign-other"},
		{"a file at the new path", strings.Replace(single, `"files":[`,
			`"files":[{"path":"/etc/dayone/b","contents":{"source":"data:,"}},`, 1), "bootstrap-ign-taken"},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := directory(t, original)
			put(t, dir, installconfig.InPlaceIgnition, c.config)
			read := func() string {
				raw, err := os.ReadFile(filepath.Join(dir, installconfig.InPlaceIgnition))
				require.NoError(t, err)
				return string(raw)
			}
			_, err := patch.Apply(dir, forSingle())
			if c.rule != "" {
				found := report.Of(err)
				require.Len(t, found, 1, "%v", err)
				assert.Equal(t, c.rule, found[0].Rule)
				assert.Equal(t, installconfig.InPlaceIgnition, found[0].File)
				assert.Equal(t, c.config, read())
				return
			}
			require.NoError(t, err)
			once := read()
			config, _, err := v32.Parse([]byte(once))
			require.NoError(t, err)
			sources := map[string]string{}
			for _, f := range config.Storage.Files {
				sources[f.Path] = *f.Contents.Source
			}
			assert.Equal(t, "data:text/plain;charset=utf-8;base64,IyEvYmluL2Jhc2gK", sources["/usr/local/bin/end.installer.sh"])
			assert.Contains(t, sources["/usr/local/bin/end.sh"], "b3Vycw==")
			_, err = patch.Apply(dir, forSingle())
			require.NoError(t, err)
			assert.Equal(t, once, read())
			assert.Equal(t, original, get(t, dir), "the other file is not touched")

			later := strings.Replace(once, `"passwd":{`, `"passwd":{"groups":[{"name":"later"}],`, 1)
			put(t, dir, installconfig.InPlaceIgnition, later)
			_, err = patch.Remove(dir, installconfig.InPlaceIgnition)
			require.NoError(t, err)
			assert.NotContains(t, read(), "dayone")
			assert.NotContains(t, read(), "end.installer.sh")
			assert.Contains(t, read(), "later")

			put(t, dir, installconfig.InPlaceIgnition, single)
			_, err = patch.Apply(dir, forSingle())
			require.NoError(t, err)
			_, err = patch.Remove(dir, installconfig.InPlaceIgnition)
			require.NoError(t, err)
			assert.Equal(t, single, read(), "byte for byte")
		})
	}
}

// TestPatchLiveImage: the live image of the agent-based installer is there already, whatever lies beside its config.
func TestPatchLiveImage(t *testing.T) {
	a := additions()
	a.Target, a.Needs = installconfig.AgentIgnition, "bootkube.service"
	for _, c := range []struct{ name, config, rule string }{
		{"a live image", original, ""},
		{"another config", strings.Replace(original, "bootkube.service", "other.service", 1), "bootstrap-ign-other"},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := directory(t, original)
			put(t, dir, "openshift/99_x.yaml", "a: b")
			put(t, dir, installconfig.AgentIgnition, c.config)
			_, err := patch.Apply(dir, a)
			if c.rule != "" {
				found := report.Of(err)
				require.Len(t, found, 1, "%v", err)
				assert.Equal(t, []string{c.rule, installconfig.AgentIgnition}, []string{found[0].Rule, found[0].File})
				return
			}
			require.NoError(t, err)
			_, err = patch.Remove(dir, installconfig.AgentIgnition)
			require.NoError(t, err)
			raw, err := os.ReadFile(filepath.Join(dir, installconfig.AgentIgnition))
			require.NoError(t, err)
			assert.Equal(t, c.config, string(raw), "byte for byte")
		})
	}
}

func TestRefusals(t *testing.T) {
	big := additions()
	for i := range 200 {
		raw := make([]byte, 1000)
		for j := range raw {
			raw[j] = byte(i*j*7919 ^ j*j)
		}
		big.Files = append(big.Files, patch.File{Path: fmt.Sprintf("/etc/dayone/f%d", i), Mode: 0o600, Content: raw})
	}
	state := func(text string) string {
		raw, err := json.Marshal(map[string]any{"*installconfig.ClusterID": map[string]string{"UUID": "x"}, "*list": []int{1},
			"*machine.Master": map[string]any{"Config": nil, "File": map[string]string{"Filename": "master.ign",
				"Data": base64.StdEncoding.EncodeToString([]byte(text))}}})
		require.NoError(t, err)
		return string(raw)
	}
	for _, c := range []struct {
		name  string
		files map[string]string
		with  patch.Additions
		rule  string
	}{
		{name: "a unit of that name is there", files: map[string]string{bootstrapIgn: strings.Replace(original,
			"bootkube.service", "dayone-a.service", 1)}, rule: "bootstrap-ign-taken"},
		{name: "a drop-in of that name is there", files: map[string]string{bootstrapIgn: strings.Replace(original,
			"10-other.conf", "10-dayone.conf", 1)}, rule: "bootstrap-ign-taken"},
		{name: "a file is there", files: map[string]string{bootstrapIgn: strings.Replace(original,
			"/usr/local/bin/bootkube.sh", "/etc/dayone/a", 1)}, rule: "bootstrap-ign-taken"},
		{name: "no JSON", files: map[string]string{installconfig.BootstrapIgnition: "{"}, rule: "bootstrap-ign"},
		{name: "a spec of the future", files: map[string]string{bootstrapIgn: strings.Replace(original,
			"3.2.0", "3.9.0", 1)}, rule: "bootstrap-ign"},
		{name: "a field of the future", files: map[string]string{bootstrapIgn: strings.Replace(original,
			`"passwd":{`, `"future":{"x":1},"passwd":{`, 1)}, rule: "bootstrap-ign-fields"},
		{name: "manifests that the installer would take", files: map[string]string{"openshift/99_x.yaml": "a: b"},
			rule: "ignition-input-left"},
		{name: "an install-config.yaml again", files: map[string]string{"install-config.yaml": "a: b"},
			rule: "ignition-input-left"},
		{name: "an edited pointer, by its form", files: map[string]string{"master.ign": strings.Replace(pointer,
			`"version":"3.2.0"}`, `"version":"3.2.0"},"storage":{"files":[{"path":"/etc/x"}]}`, 1)}, rule: "pointer-edited"},
		{name: "an edited pointer, by the state", files: map[string]string{stateName: state(strings.Replace(pointer,
			"api-int", "api", 1))}, rule: "pointer-edited"},
		{name: "too much", with: big, rule: "bootstrap-ign-size"},
		{name: "bootstrap in place", files: map[string]string{installconfig.BootstrapIgnition: "",
			installconfig.InPlaceIgnition: "{}"}, rule: "bootstrap-ign-missing"},
		{name: "too early", files: map[string]string{installconfig.BootstrapIgnition: ""},
			rule: "bootstrap-ign-missing"},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := directory(t, original)
			for file, text := range c.files {
				put(t, dir, file, text)
				if text == "" {
					require.NoError(t, os.Remove(filepath.Join(dir, file)))
				}
			}
			with := c.with
			if with.Files == nil {
				with = additions()
			}
			before, _ := os.ReadFile(filepath.Join(dir, installconfig.BootstrapIgnition))
			_, err := patch.Apply(dir, with)
			found := report.Of(err)
			require.NotEmpty(t, found, "%v", err)
			assert.Equal(t, c.rule, found[0].Rule, "%v", err)
			assert.NotEmpty(t, found[0].Next)
			after, _ := os.ReadFile(filepath.Join(dir, installconfig.BootstrapIgnition))
			assert.Equal(t, string(before), string(after))
		})
	}
	dir := directory(t, original)
	put(t, dir, stateName, state(pointer))
	_, err := patch.Apply(dir, additions())
	require.NoError(t, err, "an untouched pointer")
}

const stateName = ".openshift_install_state.json"

func FuzzApplyAndRemove(f *testing.F) {
	f.Add([]byte(original))
	f.Add([]byte(`{"ignition":{"version":"3.1.0"}}`))
	f.Fuzz(func(t *testing.T, raw []byte) {
		dir := t.TempDir()
		require.NoError(t, os.WriteFile(filepath.Join(dir, installconfig.BootstrapIgnition), raw, 0o600))
		if _, err := patch.Apply(dir, additions()); err != nil {
			return
		}
		_, err := patch.Remove(dir, installconfig.BootstrapIgnition)
		require.NoError(t, err)
		got, err := os.ReadFile(filepath.Join(dir, installconfig.BootstrapIgnition))
		require.NoError(t, err)
		require.Equal(t, string(raw), string(got))
	})
}
