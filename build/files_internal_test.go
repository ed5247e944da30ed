package build

import (
	"encoding/pem"
	"os"
	"path/filepath"
	"testing"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"dayone.dev/dayone/build/appendengine"
	"dayone.dev/dayone/build/basetree"
	"dayone.dev/dayone/build/configlayer"
)

// treeWith has regular files of these contents; a path that ends in a slash is a directory, and a content that begins
// with -> a symbolic link.
func treeWith(files map[string]string) *basetree.Tree {
	t := &basetree.Tree{Entries: map[string]basetree.Entry{}, Contents: map[string][]byte{}}
	for p, content := range files {
		switch {
		case p[len(p)-1] == '/':
			t.Entries[filepath.Clean(p)] = basetree.Entry{Kind: basetree.Directory, Mode: 0o755}
		case len(content) > 2 && content[:2] == "->":
			t.Entries[p] = basetree.Entry{Kind: basetree.Symlink, Link: content[2:]}
		default:
			t.Entries[p] = basetree.Entry{Kind: basetree.Regular, Mode: 0o644}
			t.Contents[p] = []byte(content)
		}
	}
	return t
}

func TestFileRules(t *testing.T) {
	before := treeWith(map[string]string{"/etc/passwd": "root", "/etc/issue": "old", "/etc/conf.d/": "",
		"/var/lib/known": "old", "/opt/known": "old", "/etc/group": "root"})
	cases := []struct {
		name, path, content, rule string
	}{
		{"new file in /var", "/var/lib/new", "x", "var-content"},
		{"new directory in /var", "/var/lib/dir/", "", ""},
		{"file of the base in /var", "/var/lib/known", "new", ""},
		{"temporary file", "/var/tmp/new", "x", ""},
		{"cache", "/var/cache/new", "x", ""},
		{"beside /var", "/variable", "x", ""},
		{"new file in /opt", "/opt/new", "x", "machine-content"},
		{"new directory in /opt", "/opt/dir/", "", "machine-content"},
		{"file of the base in /opt", "/opt/known", "new", ""},
		{"home of root", "/root/x", "x", "machine-content"},
		{"other homes", "/home/x", "x", "machine-content"},
		{"file becomes directory", "/etc/issue/", "", "file-and-directory"},
		{"directory becomes file", "/etc/conf.d", "x", "file-and-directory"},
		{"file stays a file", "/etc/issue", "new", ""},
		{"other accounts", "/etc/passwd", "root, me", "accounts"},
		{"same accounts", "/etc/group", "root", ""},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			findings := checkFiles(before, treeWith(map[string]string{c.path: c.content}), nil, "layering/worker.yaml")
			if c.rule == "" {
				assert.Empty(t, findings)
				return
			}
			require.Len(t, findings, 1)
			assert.Equal(t, c.rule, findings[0].Rule)
			assert.Contains(t, findings[0].Message, ": "+filepath.Clean(c.path))
			assert.Equal(t, "layering/worker.yaml", findings[0].File)
		})
	}
}

func TestOverriddenConfig(t *testing.T) {
	file := configlayer.Entry{Path: "/etc/a", Kind: basetree.Regular, Mode: 0o644, Content: []byte("a")}
	link := configlayer.Entry{Path: "/etc/l", Kind: basetree.Symlink, Mode: 0o777, Link: "a"}
	with := func(e configlayer.Entry, change func(*configlayer.Entry)) configlayer.Entry {
		change(&e)
		return e
	}
	cases := []struct {
		name   string
		config configlayer.Entry
		is     configlayer.Entry
		want   bool
	}{
		{"same file", file, file, false},
		{"other content", file, with(file, func(e *configlayer.Entry) { e.Content = []byte("b") }), true},
		{"content too large to keep", file, with(file, func(e *configlayer.Entry) { e.Content = nil }), false},
		{"other mode", file, with(file, func(e *configlayer.Entry) { e.Mode = 0o600 }), true},
		{"other owner", file, with(file, func(e *configlayer.Entry) { e.UID = 1 }), true},
		{"other group", file, with(file, func(e *configlayer.Entry) { e.GID = 1 }), true},
		{"other kind", file, with(link, func(e *configlayer.Entry) { e.Path = "/etc/a" }), true},
		{"removed", file, with(file, func(e *configlayer.Entry) { e.Path = "/etc/b" }), true},
		{"same link", link, with(link, func(e *configlayer.Entry) { e.Mode = 0 }), false},
		{"other link", link, with(link, func(e *configlayer.Entry) { e.Link = "b" }), true},
		{"removed by the config", with(file, func(e *configlayer.Entry) { e.Whiteout = true }),
			with(file, func(e *configlayer.Entry) { e.Content = []byte("b") }), false},
		{"directory", with(file, func(e *configlayer.Entry) { e.Kind = basetree.Directory }), file, false},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			after := &basetree.Tree{Entries: map[string]basetree.Entry{c.is.Path: c.is.InTree()},
				Contents: map[string][]byte{}}
			if c.is.Content != nil {
				after.Contents[c.is.Path] = c.is.Content
			}
			assert.Equal(t, c.want, overridden(c.config, after))
		})
	}
}

func TestKernels(t *testing.T) {
	const six, seven = "/usr/lib/modules/6.1/", "/usr/lib/modules/7.0/"
	one := map[string]string{six + "vmlinuz": "k", six + "initramfs.img": "i"}
	bare := map[string]string{six + "vmlinuz": "k"}
	two := map[string]string{six + "vmlinuz": "k", six + "initramfs.img": "i", seven + "vmlinuz": "k",
		seven + "initramfs.img": "i"}
	cases := []struct {
		name          string
		before, after map[string]string
		want          string
	}{
		{"the same", one, one, ""},
		{"none before and none after", nil, nil, ""},
		{"removed", one, nil, "the image has no kernel in /usr/lib/modules"},
		{"a second one", one, two, "the image has more than one kernel: /usr/lib/modules/6.1, /usr/lib/modules/7.0"},
		{"two before, one after", two, one, ""},
		{"replaced", one, map[string]string{seven + "vmlinuz": "k", seven + "initramfs.img": "i"}, ""},
		{"replaced without initramfs", one, map[string]string{seven + "vmlinuz": "k"},
			"the kernel in /usr/lib/modules/7.0 has no initramfs.img beside it and would not boot"},
		{"the base's own has none", bare, bare, ""},
		{"a file of that name elsewhere", one, map[string]string{six + "vmlinuz": "k", six + "initramfs.img": "i",
			"/usr/lib/modules/x/build/vmlinuz": "k"}, ""},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			err := checkKernel(treeWith(c.before), treeWith(c.after))
			if c.want == "" {
				require.NoError(t, err)
				return
			}
			f := AsFailure(err)
			require.NotNil(t, f)
			assert.Equal(t, c.want, f.Message)
			assert.Equal(t, ClassUser, f.Class)
		})
	}
}

// The mounts of a trust bundle: over the CA files that the base has, once each, through its links.
func TestTrustMounts(t *testing.T) {
	const fedora, alias, debian = "/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem", "/etc/pki/tls/certs/ca-bundle.crt",
		"/etc/ssl/certs/ca-certificates.crt"
	bundle := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: []byte("ours")})
	files := map[string]string{fedora: "theirs\n", alias: "->../../ca-trust/extracted/pem/tls-ca-bundle.pem",
		"/etc/pki/tls/cert.pem": "->cert.pem", debian: "debian's", "/etc/ssl/cert.pem": "->/nowhere",
		"/etc/pki/ca-trust/source/anchors/": ""}
	from := source{input: input{Request: Request{TrustBundle: bundle}}, layer: &configlayer.Layer{},
		base: base{tree: treeWith(files)}}
	dir := t.TempDir()
	mounts, findings, err := trustMounts(from, dir)
	require.NoError(t, err)
	assert.Empty(t, findings)
	got := map[string]string{}
	for _, m := range mounts {
		content, err := os.ReadFile(m.Source)
		require.NoError(t, err)
		got[m.Target] = string(content)
	}
	anchor := "/etc/pki/ca-trust/source/anchors/dayone-additional-trust-bundle.pem"
	assert.Equal(t, map[string]string{anchor: string(bundle), fedora: "theirs\n" + string(bundle),
		debian: "debian's\n" + string(bundle)}, got)
	assert.Len(t, mounts, len(got), "each is mounted over once")

	from.Containerfile = "FROM configs\nRUN update-ca-trust\n"
	mounts, _, err = trustMounts(from, dir)
	require.NoError(t, err)
	require.Len(t, mounts, 1, "the command makes the other files itself")
	assert.Equal(t, anchor, mounts[0].Target)

	from.Containerfile = ""
	delete(from.base.tree.Contents, fedora)
	mounts, findings, err = trustMounts(from, dir)
	require.NoError(t, err)
	assert.Len(t, mounts, 2)
	require.Len(t, findings, 1)
	assert.Equal(t, "trust-bundle", findings[0].Rule)
	assert.Equal(t, fedora, findings[0].Path)

	_, _, err = trustMounts(from, "")
	require.ErrorContains(t, err, "a trust bundle needs a state directory")
	file := filepath.Join(t.TempDir(), "file")
	require.NoError(t, os.WriteFile(file, nil, 0o600))
	_, _, err = trustMounts(from, file)
	require.ErrorContains(t, err, "write trust bundle: ")
}

func TestContainerOnBase(t *testing.T) {
	cases := []struct {
		name, text string
		want       bool
	}{
		{"no Containerfile", "", false},
		{"not a Containerfile", "FRM configs", false},
		{"inline files only", "FROM configs\nCOPY <<EOF /etc/a\na\nEOF\n", false},
		{"a command", "FROM configs\nRUN true\n", true},
		{"a copy from the base", "FROM scratch\nCOPY --from=base /etc/a /etc/a\nRUN true\n", true},
		{"another image alone", "FROM registry.example.com/tools:1\nRUN true\n", false},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) { assert.Equal(t, c.want, containerOnBase(c.text)) })
	}
}

func TestDifferences(t *testing.T) {
	now := time.Unix(1, 0)
	is := fileState{kind: '0', mode: 0o644, uid: 1, gid: 1, link: "l", time: now, sum: "s"}
	assert.Empty(t, is.differs(is))
	for what, other := range map[string]fileState{
		"content": {kind: '0', mode: 0o644, uid: 1, gid: 1, link: "l", time: now, sum: "t"},
		"link":    {kind: '0', mode: 0o644, uid: 1, gid: 1, link: "m", time: now, sum: "s"},
		"mode":    {kind: '0', mode: 0o600, uid: 1, gid: 1, link: "l", time: now, sum: "s"},
		"time":    {kind: '0', mode: 0o644, uid: 1, gid: 1, link: "l", time: time.Unix(2, 0), sum: "s"},
		"type":    {kind: '2', mode: 0o644, uid: 1, gid: 1, link: "l", time: now, sum: "s"},
	} {
		assert.Equal(t, what, is.differs(other))
	}
	other := is
	other.uid = 2
	assert.Equal(t, "owner", is.differs(other))
	other = is
	other.gid = 2
	assert.Equal(t, "owner", is.differs(other))

	image := &appendengine.Image{Config: &v1.ConfigFile{History: []v1.History{{CreatedBy: "a"},
		{CreatedBy: "ENV", EmptyLayer: true}, {CreatedBy: "b"}}}}
	assert.Equal(t, "a", createdBy(image, 0))
	assert.Equal(t, "b", createdBy(image, 1))
	assert.Empty(t, createdBy(image, 2))
}

// A directory may be known only by what is in it; a file is none.
func TestIsDirectory(t *testing.T) {
	tree := treeWith(map[string]string{"/etc/a/": "", "/etc/b": "file", "/usr/share/c/file": "x"})
	for path, want := range map[string]bool{"/etc/a": true, "/etc/b": false, "/usr/share/c": true, "/none": false} {
		assert.Equal(t, want, isDirectory(tree, path), path)
	}
}

func TestBootable(t *testing.T) {
	for _, label := range []string{"ostree.bootable", "containers.bootc"} {
		assert.True(t, bootable(map[string]string{label: "1"}), label)
	}
	assert.False(t, bootable(map[string]string{"other": "1"}))
}

func TestDefaultsOfABuilder(t *testing.T) {
	assert.Equal(t, defaultRetryDelay, NewBuilder(BuilderOptions{}).o.RetryDelay)
	assert.Equal(t, time.Minute, NewBuilder(BuilderOptions{RetryDelay: time.Minute}).o.RetryDelay)
}

// What the instructions of a Containerfile see: the base with what the config adds, replaces and removes.
func TestConfiguredTree(t *testing.T) {
	from := source{base: base{tree: treeWith(map[string]string{"/etc/kept": "kept", "/etc/a": "old", "/etc/b": "old",
		"/etc/gone": "old"})}, layer: &configlayer.Layer{Entries: []configlayer.Entry{
		{Path: "/etc/a", Kind: basetree.Regular, Content: []byte("new")},
		{Path: "/etc/b", Kind: basetree.Symlink, Link: "a"}, {Path: "/etc/gone", Whiteout: true}}}}
	tree := from.configured()
	content := func(path string) string { c, _ := tree.Content(path); return string(c) }
	assert.Equal(t, []string{"kept", "new", "", ""}, []string{content("/etc/kept"), content("/etc/a"), content("/etc/b"),
		content("/etc/gone")})
	link, _ := tree.Lookup("/etc/b")
	assert.Equal(t, "a", link.Link)
	_, there := tree.Lookup("/etc/gone")
	assert.False(t, there)
	_, kept := tree.Contents["/etc/b"]
	assert.False(t, kept, "a link has no content")
	assert.Equal(t, "old", string(from.base.tree.Contents["/etc/a"]), "the base's own tree stays")
}
