package machineconfig

import (
	"bytes"
	"compress/gzip"
	"encoding/base64"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	ign35 "github.com/coreos/ignition/v2/config/v3_5/types"

	"dayone.dev/dayone/installconfig/report"
)

func TestNames(t *testing.T) {
	const text = "[Service]\nExecStart=/bin/true\n"
	unit := func(name, contents string) ign35.Config {
		return ign35.Config{Systemd: ign35.Systemd{Units: []ign35.Unit{{Name: name, Contents: &contents}}}}
	}
	file := func(path string) ign35.Config {
		return ign35.Config{Storage: ign35.Storage{Files: []ign35.File{{Node: ign35.Node{Path: path}}}}}
	}
	link := func(target string) ign35.Config {
		return ign35.Config{Storage: ign35.Storage{Links: []ign35.Link{{Node: ign35.Node{Path: "/etc/l"},
			LinkEmbedded1: ign35.LinkEmbedded1{Target: &target}}}}}
	}
	dropin := func(name string) ign35.Config {
		c := unit("a.service", text)
		c.Systemd.Units[0].Dropins = []ign35.Dropin{{Name: name}}
		return c
	}
	install := func(line string) ign35.Config { return unit("a.service", text+"[Install]\n"+line+"\n") }
	for _, c := range []struct {
		name     string
		config   ign35.Config
		severity report.Severity
		rule     string
		path     string
	}{
		{"a unit that leaves the folder", unit("../../evil.service", text), report.Error, ruleUnitName,
			"systemd.units[0].name"},
		{"a unit in another folder", unit("sub/a.service", text), report.Error, ruleUnitName, "systemd.units[0].name"},
		{"a unit with a NUL", unit("a\x00.service", text), report.Error, ruleUnitName, "systemd.units[0].name"},
		{"a unit of 256 bytes", unit(strings.Repeat("u", 248)+".service", text), report.Error, ruleUnitName,
			"systemd.units[0].name"},
		{"a unit with a blank", unit("my unit.service", text), report.Warning, ruleUnitName, "systemd.units[0].name"},
		{"a drop-in that leaves the folder", dropin("../../../evil.conf"), report.Error, ruleUnitName,
			"systemd.units[0].dropins[0].name"},
		{"a drop-in with a line break", dropin("a\nb.conf"), report.Error, ruleUnitName,
			"systemd.units[0].dropins[0].name"},
		{"an alias that leaves the folder", install("Alias=../../../tmp/x.service"), report.Warning, ruleUnitInstall,
			"systemd.units[0].contents"},
		{"an alias with a root", install("Alias=/etc/x.service"), report.Warning, ruleUnitInstall,
			"systemd.units[0].contents"},
		{"wanted by a folder", install("WantedBy=multi-user.target ../../cron.d/x"), report.Warning, ruleUnitInstall,
			"systemd.units[0].contents"},
		{"a path with a NUL", file("/etc/a\x00b"), report.Error, rulePath, "storage.files[0].path"},
		{"a path with a line break", file("/etc/a\nb"), report.Error, rulePath, "storage.files[0].path"},
		{"a path of 5,000 bytes", file("/etc" + strings.Repeat("/abcd", 1000)), report.Error, rulePath,
			"storage.files[0].path"},
		{"a name of 300 bytes", file("/etc/" + strings.Repeat("n", 300)), report.Error, rulePath,
			"storage.files[0].path"},
		{"a link's target with a NUL", link("/etc/\x00"), report.Error, rulePath, "storage.links[0].target"},
		{"a path with a tab", file("/etc/a\t"), "", "", ""},
		{"a drop-in with an escape character", dropin("a\x1b.conf"), "", "", ""},
		{"a unit with a tab", unit("a\tb.service", text), report.Warning, ruleUnitName, "systemd.units[0].name"},
		{"a plain file", file("/etc/" + strings.Repeat("n", 255)), "", "", ""},
		{"a template", install("WantedBy=multi-user.target\nAlias=b.service multi-user.target.wants/c.service"), "", "", ""},
		{"an escaped name", unit(`dev-disk-by\x2dlabel-a@b:c.service`, text), "", "", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			found := Names(c.config)
			if c.rule == "" {
				assert.Empty(t, found)
				return
			}
			require.Len(t, found, 1)
			assert.Equal(t, c.severity, found[0].Severity)
			assert.Equal(t, c.rule, found[0].Rule)
			assert.Equal(t, c.path, found[0].Path)
			assert.NotEmpty(t, found[0].Next)
			assert.NotContains(t, found[0].Error(), "\x00")
			assert.Less(t, len(found[0].Error()), 400)
		})
	}
}

// TestBudget takes packed files until their contents are too large together, though each may be unpacked alone.
func TestBudget(t *testing.T) {
	var packed bytes.Buffer
	w := gzip.NewWriter(&packed)
	_, err := w.Write(make([]byte, 40<<20))
	require.NoError(t, err)
	require.NoError(t, w.Close())
	source, kind := "data:;base64,"+base64.StdEncoding.EncodeToString(packed.Bytes()), "gzip"
	file := ign35.File{Node: ign35.Node{Path: "/etc/a"}}
	file.Contents = ign35.Resource{Source: &source, Compression: &kind}
	one := ign35.Config{Storage: ign35.Storage{Files: []ign35.File{file}}}
	var b Budget
	for range 3 {
		assert.Empty(t, b.Take(one))
	}
	found := b.Take(one)
	require.Len(t, found, 1)
	assert.Equal(t, "storage.files[0].contents", found[0].Path)
	assert.Contains(t, found[0].Message, "/etc/a")
	file.Append = []ign35.Resource{file.Contents, file.Contents, file.Contents}
	require.Len(t, (&Budget{}).Take(ign35.Config{Storage: ign35.Storage{Files: []ign35.File{file}}}), 1)
}

// TestEmptyCompression keeps what MCO keeps: it takes the mark away only where it merges.
func TestEmptyCompression(t *testing.T) {
	source, none := "data:,a", ""
	file := ign35.File{Node: ign35.Node{Path: "/etc/a"}}
	file.Contents = ign35.Resource{Source: &source, Compression: &none}
	config := ign35.Config{Ignition: ign35.Ignition{Version: Version}, Storage: ign35.Storage{Files: []ign35.File{file}}}
	var alone, both Merger
	alone.Add(config)
	both.Add(config)
	both.Add(ign35.Config{Ignition: ign35.Ignition{Version: Version}})
	assert.NotNil(t, alone.Result().Storage.Files[0].Contents.Compression)
	assert.Nil(t, both.Result().Storage.Files[0].Contents.Compression)
}
