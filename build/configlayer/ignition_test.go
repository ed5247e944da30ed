package configlayer_test

import (
	"archive/tar"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"dayone.dev/dayone/build/basetree"
	"dayone.dev/dayone/build/buildtest"
	"dayone.dev/dayone/build/configlayer"
	"dayone.dev/dayone/manifests/machineconfig"
)

// ignition is where Debian's package ignition puts the program.
const ignition = "/usr/lib/dracut/modules.d/30ignition/ignition"

// firstBoot runs what a first boot runs: Ignition's fetch and files stages on the root, then systemd's preset run over
// all units. Debian's Ignition insists on SELinux labels: it gets an empty policy and a setfiles that labels nothing.
const firstBoot = `set -eu
mount --make-rprivate /
mkdir -p "$RUN/bin"; printf '#!/bin/sh\ncat >/dev/null\n' >"$RUN/bin/setfiles"; chmod 0755 "$RUN/bin/setfiles"; PATH="$RUN/bin:$PATH"
mkdir -p "$RUN/se/targeted/contexts/files" "$ROOT/etc/selinux"
printf 'SELINUX=disabled\nSELINUXTYPE=targeted\n' >"$RUN/se/config"; : >"$RUN/se/targeted/contexts/files/file_contexts"
mount --bind "$RUN/se" "$ROOT/etc/selinux"
"$IGNITION" --platform=file --stage=fetch --config-cache="$RUN/cache.json" --state-file="$RUN/state" --neednet="$RUN/neednet" --log-to-stdout
"$IGNITION" --platform=file --stage=files --root="$ROOT" --config-cache="$RUN/cache.json" --state-file="$RUN/state" --log-to-stdout
umount "$ROOT/etc/selinux"; rmdir "$ROOT/etc/selinux"
printf "$INSTANCES" >>"$ROOT/etc/systemd/system-preset/20-ignition.preset"
systemctl --root="$ROOT" preset-all --preset-mode=enable-only
`

// state is what a merge of /etc compares: type, mode, owner, link text, content. Directories count for mode and owner
// too.
type state struct {
	Kind     string
	Mode     string
	UID, GID int
	Text     string
}

func scan(t *testing.T, root string) map[string]state {
	t.Helper()
	out := map[string]state{}
	require.NoError(t, filepath.WalkDir(root, func(p string, d fs.DirEntry, err error) error {
		if err != nil || p == root {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		st := info.Sys().(*syscall.Stat_t)
		s := state{Mode: fmt.Sprintf("%04o", st.Mode&0o7777), UID: int(st.Uid), GID: int(st.Gid)}
		switch {
		case info.IsDir():
			s.Kind = "directory"
		case info.Mode()&fs.ModeSymlink != 0:
			s.Kind, s.Mode = "link", ""
			s.Text, err = os.Readlink(p)
		default:
			s.Kind = "file"
			var b []byte
			b, err = os.ReadFile(p)
			s.Text = string(b)
		}
		out[strings.TrimPrefix(p, root)] = s
		return err
	}))
	return out
}

func stateOf(e configlayer.Entry) state {
	s := state{Mode: fmt.Sprintf("%04o", e.Mode), UID: e.UID, GID: e.GID}
	switch e.Kind {
	case basetree.Directory:
		s.Kind = "directory"
	case basetree.Symlink:
		s.Kind, s.Mode, s.Text = "link", "", e.Link
	default:
		s.Kind, s.Text = "file", string(e.Content)
	}
	return s
}

// put writes a file of the first system.
func put(t *testing.T, root, p, text string, mode fs.FileMode) {
	t.Helper()
	full := filepath.Join(root, p)
	require.NoError(t, os.MkdirAll(filepath.Dir(full), 0o755))
	require.NoError(t, os.WriteFile(full, []byte(text), mode))
	require.NoError(t, os.Chmod(full, mode))
}

func symlink(t *testing.T, root, p, text string) {
	t.Helper()
	full := filepath.Join(root, p)
	require.NoError(t, os.MkdirAll(filepath.Dir(full), 0o755))
	require.NoError(t, os.Symlink(text, full))
}

// stock makes a small root like an ostree host's: vendor units, presets, links into /var.
func stock(t *testing.T) string {
	t.Helper()
	root := t.TempDir()
	require.NoError(t, os.Chmod(root, 0o755))
	for _, d := range []string{"var/home", "var/usrlocal/bin", "var/roothome", "usr/bin", "etc/systemd/system"} {
		require.NoError(t, os.MkdirAll(filepath.Join(root, d), 0o755))
	}
	symlink(t, root, "home", "var/home")
	symlink(t, root, "root", "var/roothome")
	symlink(t, root, "usr/local", "../var/usrlocal")
	symlink(t, root, "etc/alternatives-dir", "real-dir")
	require.NoError(t, os.MkdirAll(filepath.Join(root, "etc/real-dir"), 0o750))
	require.NoError(t, os.Chmod(filepath.Join(root, "etc/real-dir"), 0o750))
	require.NoError(t, os.Chown(filepath.Join(root, "etc/real-dir"), 0, 42))
	put(t, root, "etc/passwd", "root:x:0:0::/root:/bin/sh\nchrony:x:994:992::/:/sbin/nologin\n", 0o644)
	put(t, root, "etc/group", "root:x:0:\nchrony:x:992:\n", 0o644)
	put(t, root, "etc/stock.conf", "stock\n", 0o644)
	put(t, root, "etc/keep.conf", "kept\n", 0o640)
	put(t, root, "etc/os-release", "ID=test\nVERSION_ID=1\n", 0o644)
	put(t, root, "usr/lib/systemd/system-preset/99-default-disable.preset", "disable *\n", 0o644)
	unit := func(name, install string) {
		put(t, root, "usr/lib/systemd/system/"+name,
			"[Unit]\nDescription="+name+"\n[Service]\nExecStart=/bin/true\n[Install]\n"+install, 0o644)
	}
	unit("vendor.service", "WantedBy=multi-user.target\nAlias=vendor-alias.service\n")
	unit("vendor@.service", "WantedBy=multi-user.target\nDefaultInstance=main\n")
	unit("stock-on.service", "WantedBy=multi-user.target\nAlias=stock-on-alias.service\n")
	unit("also.socket", "WantedBy=sockets.target\n")
	unit("with-also.service", "WantedBy=multi-user.target\nAlso=also.socket\n")
	unit("already.service", "WantedBy=multi-user.target\n")
	put(t, root, "usr/lib/systemd/system/multi-user.target", "[Unit]\n", 0o644)
	put(t, root, "usr/lib/systemd/system/sockets.target", "[Unit]\n", 0o644)
	symlink(t, root, "etc/systemd/system/multi-user.target.wants/stock-on.service",
		"/usr/lib/systemd/system/stock-on.service")
	symlink(t, root, "etc/systemd/system/stock-on-alias.service", "/usr/lib/systemd/system/stock-on.service")
	symlink(t, root, "etc/systemd/system/multi-user.target.wants/already.service",
		"/usr/lib/systemd/system/already.service")
	symlink(t, root, "etc/systemd/system/masked-in-stock.service", "/dev/null")
	return root
}

// treeOf reads a root as the one layer of a base.
func treeOf(t *testing.T, root string) *basetree.Tree {
	t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for p, s := range scan(t, root) {
		h := &tar.Header{Name: p[1:], Uid: s.UID, Gid: s.GID}
		_, err := fmt.Sscanf(s.Mode, "%o", &h.Mode)
		if s.Mode != "" {
			require.NoError(t, err)
		}
		switch s.Kind {
		case "directory":
			h.Typeflag = tar.TypeDir
		case "link":
			h.Typeflag, h.Linkname = tar.TypeSymlink, s.Text
		default:
			h.Typeflag, h.Size = tar.TypeReg, int64(len(s.Text))
		}
		require.NoError(t, w.WriteHeader(h))
		if h.Size > 0 {
			_, err = io.WriteString(w, s.Text)
			require.NoError(t, err)
		}
	}
	require.NoError(t, w.Close())
	tree, err := basetree.Read(t.Context(), []basetree.Layer{func(context.Context) (io.ReadCloser,
		error) {
		return io.NopCloser(&b), nil
	}})
	require.NoError(t, err)
	return tree
}

type object = map[string]any

func file(p, source string, more object) object {
	f := object{"path": p, "overwrite": true, "contents": object{"source": source}}
	maps.Copy(f, more)
	return f
}

// withoutInstances takes enabled instances of templates out of a config: for them Ignition asks a running systemd for
// its version, which a test has not. The lines that Ignition writes into its preset file (systemd.preset(5)) come from
// the caller instead.
func withoutInstances(t *testing.T, raw []byte) []byte {
	t.Helper()
	var config object
	require.NoError(t, json.Unmarshal(raw, &config))
	var kept []any
	systemd := config["systemd"].(object)
	for _, u := range systemd["units"].([]any) {
		name := u.(object)["name"].(string)
		if !strings.Contains(name, "@") || strings.Contains(name, "@.") {
			kept = append(kept, u)
		}
	}
	systemd["units"] = kept
	out, err := json.Marshal(config)
	require.NoError(t, err)
	return out
}

// wideConfig uses every kind of entry that both Ignition 2.14 (spec 3.3) and an image can carry.
func wideConfig(t *testing.T) []byte {
	t.Helper()
	unit := func(text string) string { return "[Service]\nExecStart=/bin/true\n[Install]\n" + text }
	raw, err := json.Marshal(object{
		"ignition": object{"version": "3.3.0"},
		"storage": object{
			"files": []object{
				file("/etc/plain", "data:,one%20line%0A", nil),
				file("/etc/no-newline", "data:,x", object{"mode": 0o600}),
				file("/etc/empty", "data:,", nil),
				file("/etc/base64", "data:text/plain;charset=utf-8;base64,aMOpbGxvCg==", object{"mode": 0o644}),
				file("/etc/zipped", "data:;base64,"+zipped("zipped\n"), nil),
				file("/etc/deep/er/than/stock", "data:,d", object{"mode": 0o440, "user": object{"id": 12},
					"group": object{"id": 34}}),
				file("/etc/owner-name", "data:,n", object{"user": object{"name": "chrony"}, "group": object{"name": "chrony"}}),
				file("/etc/stock.conf", "data:,replaced%0A", nil),
				file("/etc/alternatives-dir/through-link", "data:,l", nil),
				file("/etc/hashed", "data:,hashed", object{"contents": object{"source": "data:,hashed",
					"verification": object{"hash": "sha512-" + sha512hex("hashed")}}}),
				{"path": "/etc/keep.conf", "mode": 0o600, "append": []object{{"source": "data:,appended%0A"}}},
				{"path": "/etc/only-append", "append": []object{{"source": "data:,a"}, {"source": "data:,b"}}},
				{"path": "/etc/no-contents"},
				file("/etc/linked", "data:,target", object{"mode": 0o640, "group": object{"id": 34}}),
			},
			"directories": []object{
				{"path": "/etc/dir-default"},
				{"path": "/etc/dir-0700", "mode": 0o700, "user": object{"id": 5}, "group": object{"id": 6}},
				{"path": "/etc/real-dir", "user": object{"id": 9}},
			},
			"links": []object{
				{"path": "/etc/link", "target": "/etc/plain", "overwrite": true},
				{"path": "/etc/link-rel", "target": "../etc/plain"},
				{"path": "/etc/link-owner", "target": "nowhere", "user": object{"id": 3}, "group": object{"id": 4}},
				{"path": "/etc/sub/hard", "target": "/etc/linked", "hard": true},
			},
		},
		"systemd": object{"units": []object{
			{"name": "on.service", "enabled": true,
				"contents": unit("WantedBy=multi-user.target other.target\nRequiredBy=strict.target\nAlias=on-alias.service\n")},
			{"name": "off.service", "enabled": false, "contents": unit("WantedBy=multi-user.target\n")},
			{"name": "unsaid.service", "contents": unit("WantedBy=multi-user.target\n")},
			{"name": "empty.service", "contents": ""},
			{"name": "templ@.service", "contents": unit("WantedBy=wanted-%i.target\n")},
			{"name": "templ@one.service", "enabled": true},
			{"name": "templ@two.service", "enabled": true},
			{"name": "masked.service", "mask": true},
			{"name": "both.service", "mask": true, "enabled": true},
			{"name": "masked-in-stock.service", "mask": false},
			{"name": "vendor.service", "enabled": true,
				"dropins": []object{{"name": "10-a.conf", "contents": "[Service]\nEnvironment=A=1\n"}, {"name": "20-none.conf"},
					{"name": "30-empty.conf", "contents": ""}}},
			{"name": "vendor@x.service", "enabled": true},
			{"name": "with-also.service", "enabled": true},
			{"name": "already.service", "enabled": true},
			{"name": "stock-on.service", "enabled": false},
			{"name": "dropin-install.service", "enabled": true, "contents": "[Service]\nExecStart=/bin/true\n",
				"dropins": []object{{"name": "install.conf", "contents": "[Install]\nWantedBy=basic.target\n"}}},
			{"name": "cont.service", "enabled": true,
				"contents": "[Service]\nExecStart=/bin/true\n[Install]\nWantedBy=a.target \\\n" +
					" b.target\nRequiredBy=dropped.target\nRequiredBy=\n"},
			{"name": "nowhere.service", "enabled": true},
		}},
	})
	require.NoError(t, err)
	return raw
}

// TestEqualsRealIgnition compares the layer with what Ignition and systemd themselves make of the same config on the
// same root.
func TestEqualsRealIgnition(t *testing.T) {
	buildtest.Need(t, true, ignition, "systemctl", "unshare")
	root, run := stock(t), t.TempDir()
	tree := treeOf(t, root)
	before := scan(t, root)
	raw := wideConfig(t)

	config, err := machineconfig.Parse(raw)
	require.NoError(t, err)
	layer, findings, err := configlayer.Compile(config, configlayer.Options{Tree: tree})
	require.NoError(t, err)
	for _, f := range findings {
		t.Log(f.Error())
	}

	source := filepath.Join(run, "config.ign")
	require.NoError(t, os.WriteFile(source, withoutInstances(t, raw), 0o600))
	cmd := exec.Command("unshare", "-m", "sh", "-c", firstBoot)
	cmd.Env = append(os.Environ(), "IGNITION_CONFIG_FILE="+source, "IGNITION="+ignition, "ROOT="+root, "RUN="+run,
		`INSTANCES=enable templ@.service one two\nenable vendor@.service x\n`)
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, "%s", tail(out))
	after := scan(t, root)

	want := map[string]state{}
	for p, s := range after {
		if before[p] != s {
			want[p] = s
		}
	}
	for _, p := range []string{"/etc/systemd/system-preset/20-ignition.preset", "/etc/systemd/system-preset",
		"/etc/.ignition-result.json"} {
		delete(want, p) // of the first boot only: written in random order, or with the date
	}
	got, gone := map[string]state{}, map[string]bool{}
	for _, e := range layer.Entries {
		switch s := stateOf(e); {
		case e.Whiteout:
			gone[e.Path] = true
		case before[e.Path] != s:
			got[e.Path] = s
		}
	}
	assert.Equal(t, want, got)
	for p := range before {
		_, still := after[p]
		assert.Equal(t, !still, gone[p], "%s is removed by Ignition and by the layer alike", p)
	}
	assert.Greater(t, len(got), 35, "the comparison covers the config")
}

func tail(out []byte) string {
	lines := strings.Split(strings.TrimSpace(string(out)), "\n")
	return strings.Join(lines[max(0, len(lines)-15):], "\n")
}
