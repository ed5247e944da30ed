package configlayer_test

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/sha512"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"dayone.dev/dayone/build/basetree"
	"dayone.dev/dayone/build/configlayer"
	"dayone.dev/dayone/installconfig/report"
	"dayone.dev/dayone/manifests/machineconfig"
)

func zipped(s string) string {
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	_, _ = io.WriteString(w, s)
	_ = w.Close()
	return base64.StdEncoding.EncodeToString(b.Bytes())
}

func sha512hex(s string) string { sum := sha512.Sum512([]byte(s)); return hex.EncodeToString(sum[:]) }

// base is a tree in memory.
func base() *basetree.Tree {
	t := &basetree.Tree{Entries: map[string]basetree.Entry{}, Contents: map[string][]byte{}}
	dir := func(p string, mode int64) { t.Entries[p] = basetree.Entry{Kind: basetree.Directory, Mode: mode} }
	dir("/etc", 0o755)
	dir("/usr", 0o755)
	dir("/var", 0o755)
	dir("/etc/full", 0o711)
	t.Entries["/etc/full/x"] = basetree.Entry{Kind: basetree.Regular, Mode: 0o644}
	for p, link := range map[string]string{"/home": "var/home", "/root": "var/roothome", "/usr/local": "../var/usrlocal",
		"/opt": "var/opt"} {
		t.Entries[p] = basetree.Entry{Kind: basetree.Symlink, Link: link}
	}
	t.Entries["/etc/large"] = basetree.Entry{Kind: basetree.Regular, Mode: 0o644}
	t.Entries["/usr/lib/systemd/system/leaving.service"] = basetree.Entry{Kind: basetree.Regular, Mode: 0o644}
	t.Contents["/usr/lib/systemd/system/leaving.service"] = []byte("[Install]\nWantedBy=../../cron.d/x\n")
	t.Contents["/etc/passwd"] = []byte("root:x:0:0::/:/bin/sh\ncore:x:1000:1000::/:/bin/sh\n")
	return t
}

func compile(t *testing.T, storage string, tree *basetree.Tree) (*configlayer.Layer, []report.Finding, error) {
	t.Helper()
	config, err := machineconfig.Parse([]byte(`{"ignition":{"version":"3.5.0"},` + storage + `}`))
	require.NoError(t, err)
	return configlayer.Compile(config, configlayer.Options{Tree: tree, Created: time.Unix(1700000000, 0),
		Place: report.Finding{File: "mc.yaml", Path: "spec.config"}})
}

func TestRefused(t *testing.T) {
	for _, c := range []struct {
		name               string
		config, rule, path string
	}{
		{"a remote file", `"storage":{"files":[{"path":"/etc/a","contents":{"source":"https://example.com/a"}}]}`, "remote-source", "spec.config.storage.files[0].contents.source"},
		{"a wrong hash", `"storage":{"files":[{"path":"/etc/a","contents":{"source":"data:,a","verification":{"hash":"sha256-` + strings.Repeat("0", 64) + `"}}}]}`, "contents", "spec.config.storage.files[0].contents"},
		{"an owner without a number", `"storage":{"files":[{"path":"/etc/a","user":{"name":"nobody-knows"},"contents":{"source":"data:,a"}}]}`, "owner-name", "spec.config.storage.files[0].user"},
		{"a passwd file", `"storage":{"files":[{"path":"/etc/passwd","overwrite":true,"contents":{"source":"data:,a"}}]}`, "machine-file", "spec.config.storage.files[0]"},
		{"a file in /usr", `"storage":{"files":[{"path":"/usr/bin/a","contents":{"source":"data:,a"}}]}`,
			"usr-read-only", "spec.config.storage.files[0]"},
		{"a file at the top", `"storage":{"files":[{"path":"/data/a","contents":{"source":"data:,a"}}]}`,
			"top-level", "spec.config.storage.files[0]"},
		{"a file that the base has", `"storage":{"files":[{"path":"/etc/full/x","contents":{"source":"data:,a"}}]}`,
			"exists-in-base", "spec.config.storage.files[0]"},
		{"a file in place of a directory", `"storage":{"files":[{"path":"/etc/full","overwrite":true,"contents":{"source":"data:,a"}}]}`, "directory-to-file", "spec.config.storage.files[0]"},
		{"a link in place of a directory", `"storage":{"links":[{"path":"/etc/full","overwrite":true,"target":"/x"}]}`,
			"directory-to-file", "spec.config.storage.links[0]"},
		{"an append to a file not kept", `"storage":{"files":[{"path":"/etc/large","append":[{"source":"data:,a"}]}]}`,
			"base-content", "spec.config.storage.files[0]"},
		{"a hard link to nothing", `"storage":{"links":[{"path":"/etc/h","hard":true,"target":"/etc/none"}]}`,
			"hard-link", "spec.config.storage.links[0]"},
		{"a directory that would be wiped", `"storage":{"directories":[{"path":"/etc/full","overwrite":true}]}`,
			"overwrite-directory", "spec.config.storage.directories[0]"},
		{"a file below a file of the base", `"storage":{"files":[{"path":"/etc/full/x/y","contents":{"source":"data:,a"}}]}`,
			"path-below-file", "spec.config.storage"},
		{"a reference to another config", `"ignition":{"version":"3.5.0","config":{"merge":[{"source":"https://example.com/x"}]}}`, "nested-config", "spec.config.ignition.config"},
		{"a unit outside of systemd's folder", `"systemd":{"units":[{"name":"../../evil.service","contents":"[Unit]\n"}]}`,
			"unit-name", "spec.config.systemd.units[0].name"},
		{"a drop-in outside of it", `"systemd":{"units":[{"name":"a.service","dropins":[{"name":"../../../evil.conf","contents":"[Unit]\n"}]}]}`,
			"unit-name", "spec.config.systemd.units[0].dropins[0].name"},
		{"an alias outside of it", `"systemd":{"units":[{"name":"a.service","enabled":true,"contents":"[Install]\nAlias=../../x.service\n"}]}`,
			"unit-install", "spec.config.systemd.units[0].contents"},
		{"a unit of the base with such an alias", `"systemd":{"units":[{"name":"leaving.service","enabled":true}]}`,
			"unit-install", "spec.config.systemd.units[0]"},
		{"a path with a NUL", `"storage":{"files":[{"path":"/etc/a\u0000","contents":{"source":"data:,a"}}]}`,
			"path", "spec.config.storage.files[0].path"},
		{"a passwd file through usr's link", `"storage":{"links":[{"path":"/etc/shadow","target":"/x"}]}`, "machine-file",
			"spec.config.storage.links[0]"},
	} {
		t.Run(c.name, func(t *testing.T) {
			layer, findings, err := compile(t, c.config, base())
			require.Error(t, err)
			assert.Nil(t, layer)
			require.NotEmpty(t, findings)
			f := report.Of(err)[0]
			assert.Equal(t, c.rule, f.Rule)
			assert.Equal(t, c.path, f.Path)
			assert.Equal(t, "mc.yaml", f.File)
			assert.NotEmpty(t, f.Next, "every refusal says what to do")
		})
	}
}

func TestPlacedElsewhere(t *testing.T) {
	layer, findings, err := compile(t, `"storage":{
		"files":[{"path":"/home/core/x","contents":{"source":"data:,a"}},{"path":"/usr/local/bin/tool","mode":493,"contents":{"source":"data:,a"}},{"path":"/etc/in","contents":{"source":"data:,a"}}],
		"directories":[{"path":"/var/lib/a b","mode":448,"user":{"name":"core"}},{"path":"/opt/100%"}],
		"links":[{"path":"/var/lib/l","target":"/usr/share/l"}],
		"disks":[{"device":"/dev/sda"}],"filesystems":[{"device":"/dev/sdb","format":"xfs","path":"/var/data"}]},
		"passwd":{"groups":[{"name":"ops","gid":900}],"users":[{"name":"core","sshAuthorizedKeys":["ssh-ed25519 AAAA"]},
			{"name":"svc","uid":901,"primaryGroup":"ops","gecos":"a \"b\" 5%","homeDir":"/var/svc","shell":"/bin/false","groups":["wheel","adm"],"passwordHash":"$6$x"}]},
		"kernelArguments":{"shouldExist":["quiet"]}`, base())
	require.NoError(t, err)
	where := map[string]string{}
	for _, p := range layer.Placements {
		where[p.Path] = p.Where
	}
	assert.Equal(t, map[string]string{
		"/var/home/core/x": "first-boot", "/var/usrlocal/bin/tool": "first-boot", "/var/lib/a b": "tmpfiles.d",
		"/var/opt/100%": "tmpfiles.d",
		"/var/lib/l":    "tmpfiles.d", "storage.disks": "first-boot", "storage.filesystems": "first-boot",
		"kernelArguments": "first-boot",
		"group ops":       "sysusers.d", "user svc": "sysusers.d", "SSH keys of core": "first-boot",
		"password of svc": "first-boot",
	}, where)
	text := map[string]string{}
	for _, e := range layer.Entries {
		text[e.Path] = string(e.Content)
		assert.False(t, strings.HasPrefix(e.Path, "/var") || strings.HasPrefix(e.Path, "/home"), "%s must not ship", e.Path)
	}
	assert.Equal(t,
		"L /var/lib/l - - - - /usr/share/l\nd \"/var/lib/a b\" 0700 1000 0 - -\nd /var/opt/100%% 0755 0 0 - -\n",
		text["/usr/lib/tmpfiles.d/50-dayone-config.conf"])
	assert.Equal(t, "g ops 900\nu svc 901:ops \"a \\\"b\\\" 5%%\" /var/svc /bin/false\nm svc adm\nm svc wheel\n",
		text["/usr/lib/sysusers.d/50-dayone-config.conf"])
	assert.NotContains(t, string(layer.Tar), "$6$x", "a password hash is not in the layer")
	rules := map[string]int{}
	for _, f := range findings {
		assert.Equal(t, report.Warning, f.Severity)
		rules[f.Rule]++
	}
	assert.Equal(t, 6, rules["first-boot"])
}

func TestSameConfigSameBytes(t *testing.T) {
	raw := wideConfig(t)
	var any map[string]any
	require.NoError(t, json.Unmarshal(raw, &any))
	config, err := machineconfig.Parse(raw)
	require.NoError(t, err)
	tree := base()
	first, _, err := configlayer.Compile(config, configlayer.Options{Tree: tree})
	require.Error(t, err, "the small tree has no user chrony")
	require.Nil(t, first)
	tree.Contents["/etc/passwd"] = []byte("chrony:x:1:1:::\n")
	tree.Contents["/etc/group"] = []byte("chrony:x:1:\n")
	first, _, err = configlayer.Compile(config, configlayer.Options{Tree: tree})
	require.NoError(t, err)
	for range 20 { // maps are walked in another order each time
		again, _, err := configlayer.Compile(config, configlayer.Options{Tree: tree})
		require.NoError(t, err)
		require.Equal(t, first.DiffID, again.DiffID)
		require.Equal(t, first.Gzip(), again.Gzip())
	}
}

func TestGzip(t *testing.T) {
	for name, size := range map[string]int{"empty": 0, "one byte": 1, "a full block": 65535, "a block and a byte": 65536,
		"several": 300000} {
		t.Run(name, func(t *testing.T) {
			l := configlayer.Layer{Tar: bytes.Repeat([]byte{'x'}, size)}
			r, err := gzip.NewReader(bytes.NewReader(l.Gzip()))
			require.NoError(t, err)
			r.Multistream(false)
			back, err := io.ReadAll(r)
			require.NoError(t, err)
			assert.Equal(t, size, len(back))
		})
	}
}

func TestTarHeaders(t *testing.T) {
	layer, _, err := compile(t,
		`"storage":{"files":[{"path":"/etc/full/new","user":{"name":"core"},"contents":{"source":"data:,a"}}]}`, base())
	require.NoError(t, err)
	r := tar.NewReader(bytes.NewReader(layer.Tar))
	names := []string{}
	for {
		h, err := r.Next()
		if err == io.EOF {
			break
		}
		require.NoError(t, err)
		names = append(names, h.Name)
		assert.Empty(t, h.Uname+h.Gname)
		assert.Equal(t, int64(1700000000), h.ModTime.Unix())
		if h.Name == "etc/full/" {
			assert.Equal(t, int64(0o711), h.Mode, "a parent keeps the base's mode")
		}
		if h.Name == "etc/full/new" {
			assert.Equal(t, 1000, h.Uid)
		}
	}
	assert.Equal(t, []string{"etc/", "etc/full/", "etc/full/new"}, names, "parents come first")
}

func FuzzCompile(f *testing.F) {
	f.Add([]byte(
		`{"ignition":{"version":"3.5.0"},"storage":{"files":[{"path":"/etc/a","contents":{"source":"data:,x"}}]}}`))
	f.Add([]byte(
		`{"ignition":{"version":"3.5.0"},"systemd":{"units":[{"name":"a@b.service","enabled":true,"contents":"[Install]\nWantedBy=%i.target\nAlso=a@b.service\n"}]}}`))
	f.Fuzz(func(t *testing.T, raw []byte) {
		config, err := machineconfig.Parse(raw)
		if err != nil {
			return
		}
		layer, _, err := configlayer.Compile(config, configlayer.Options{Tree: base()})
		if err != nil {
			return
		}
		for _, e := range layer.Entries {
			if !strings.HasPrefix(e.Path, "/etc") && !strings.HasPrefix(e.Path, "/usr") {
				t.Fatalf("%s left /etc and /usr", e.Path)
			}
		}
	})
}
