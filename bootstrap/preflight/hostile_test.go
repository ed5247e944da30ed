package preflight

import (
	"bytes"
	"compress/gzip"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"unicode/utf16"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"dayone.dev/dayone/installconfig/report"
)

// machineConfigOf is a MachineConfig of the masters with an Ignition config around the given sections.
func machineConfigOf(t *testing.T, sections map[string]any) string {
	t.Helper()
	sections["ignition"] = map[string]any{"version": "3.4.0"}
	raw, err := json.Marshal(map[string]any{
		"apiVersion": "machineconfiguration.openshift.io/v1", "kind": "MachineConfig",
		"metadata": map[string]any{"name": "99-hostile", "labels": map[string]any{
			"machineconfiguration.openshift.io/role": "master"}},
		"spec": map[string]any{"config": sections},
	})
	require.NoError(t, err)
	return string(raw)
}

func filesOf(list ...map[string]any) map[string]any {
	return map[string]any{"storage": map[string]any{"files": list}}
}

// TestHostileNames goes through names that no machine can hold or that lead out of their folder: each is refused with
// its file, object and field before anything starts.
func TestHostileNames(t *testing.T) {
	unit := func(u map[string]any) map[string]any {
		return map[string]any{"systemd": map[string]any{"units": []any{u}}}
	}
	file := func(path string) map[string]any {
		return filesOf(map[string]any{"path": path, "contents": map[string]any{"source": "data:,a"}})
	}
	const text = "[Service]\nExecStart=/bin/true\n[Install]\n"
	for _, c := range []struct {
		name     string
		sections map[string]any
		rule, at string
	}{
		{"a unit", unit(map[string]any{"name": "../../evil.service", "contents": text}), "unit-name", "units[0].name"},
		{"a drop-in", unit(map[string]any{"name": "a.service", "dropins": []any{map[string]any{
			"name": "../../../evil.conf", "contents": "[Unit]\n"}}}), "unit-name", "dropins[0].name"},
		{"an alias", unit(map[string]any{"name": "a.service", "enabled": true,
			"contents": text + "Alias=../../x.service\n"}), "unit-install", "units[0].contents"},
		{"a wanting unit", unit(map[string]any{"name": "a.service", "contents": text + "WantedBy=../../x\n"}),
			"unit-install", "units[0].contents"},
		{"a NUL", file("/etc/a\x00b"), "path", "files[0].path"},
		{"a line break", file("/etc/a\nb"), "path", "files[0].path"},
		{"5,000 bytes", file("/etc" + strings.Repeat("/abcd", 1000)), "path", "files[0].path"},
		{"a name of 300 bytes", file("/etc/" + strings.Repeat("n", 300)), "path", "files[0].path"},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := sample(t)
			put(t, dir, "openshift/99_hostile.json", machineConfigOf(t, c.sections))
			_, err := Load(dir, platform)
			require.Error(t, err)
			var rules []string
			for _, f := range report.Of(err) {
				rules = append(rules, f.Rule)
				assert.Equal(t, "openshift/99_hostile.json", f.File)
				assert.Contains(t, f.Path, c.at)
				assert.Contains(t, f.Message, "99-hostile")
				assert.NotEmpty(t, f.Next)
			}
			assert.Equal(t, []string{c.rule}, rules)
		})
	}
}

// TestUnpackedInputIsBounded has one MachineConfig of 20 small files that unpack to 64 MiB each.
func TestUnpackedInputIsBounded(t *testing.T) {
	var packed bytes.Buffer
	w := gzip.NewWriter(&packed)
	_, err := w.Write(make([]byte, 64<<20))
	require.NoError(t, err)
	require.NoError(t, w.Close())
	source := "data:;base64," + base64.StdEncoding.EncodeToString(packed.Bytes())
	var list []map[string]any
	for i := range 20 {
		list = append(list, map[string]any{"path": fmt.Sprintf("/etc/bomb-%d", i),
			"contents": map[string]any{"source": source, "compression": "gzip"}})
	}
	dir := sample(t)
	put(t, dir, "openshift/99_bombs.json", machineConfigOf(t, filesOf(list...)))
	_, err = Load(dir, platform)
	found := report.Of(err)
	require.Len(t, found, 1, "%v", err)
	assert.Equal(t, "contents-too-large", found[0].Rule)
	assert.Equal(t, "openshift/99_bombs.json", found[0].File)
	assert.Contains(t, found[0].Message, "/etc/bomb-")
}

// TestUTF16IsCalledByItsName writes each kind of input as editors of other systems do.
func TestUTF16IsCalledByItsName(t *testing.T) {
	for _, c := range []struct {
		name, file string
		order      binary.AppendByteOrder
		mark       string
	}{
		{"install-config with a mark", "install-config.yaml", binary.LittleEndian, "\ufeff"},
		{"install-config", "install-config.yaml", binary.BigEndian, ""},
		{"a manifest with a mark", "layering/master.yaml", binary.LittleEndian, "\ufeff"},
		{"a manifest", "layering/master.yaml", binary.LittleEndian, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := sample(t)
			raw, err := os.ReadFile(filepath.Join(dir, c.file))
			require.NoError(t, err)
			var wide []byte
			for _, unit := range utf16.Encode([]rune(c.mark + string(raw))) {
				wide = c.order.AppendUint16(wide, unit)
			}
			put(t, dir, c.file, string(wide))
			_, err = Load(dir, platform)
			found := report.Of(err)
			require.Len(t, found, 1, "%v", err)
			assert.Equal(t, "utf-16", found[0].Rule)
			assert.Equal(t, c.file, found[0].File)
		})
	}
}
