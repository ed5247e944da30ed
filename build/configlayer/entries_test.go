package configlayer_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"dayone.dev/dayone/build/basetree"
)

// unitBase is a base with units: the vendor's, with drop-ins, those of /etc, masks, and links that enable some.
func unitBase() *basetree.Tree {
	t := base()
	put := func(p, text string) {
		t.Entries[p] = basetree.Entry{Kind: basetree.Regular, Mode: 0o644}
		t.Contents[p] = []byte(text)
	}
	link := func(p, text string) { t.Entries[p] = basetree.Entry{Kind: basetree.Symlink, Link: text} }
	const vendor, etc = "/usr/lib/systemd/system/", "/etc/systemd/system/"
	put(vendor+"v.service", "[Install]\nWantedBy=v.target\n")
	put(vendor+"dropped.service", "[Install]\nWantedBy=v.target\n")
	put(vendor+"dropped.service.d/10.conf", "[Install]\nWantedBy=hidden.target\n")
	put(vendor+"dropped.service.d/20.conf", "[Install]\nWantedBy=vendor.target\n")
	put(vendor+"dropped.service.d/note.txt", "[Install]\nWantedBy=text.target\n")
	put(etc+"dropped.service.d/10.conf", "[Install]\nWantedBy=etc.target\n")
	put(vendor+"t@.service", "[Install]\nWantedBy=%i.target\nDefaultInstance=d\n")
	put(vendor+"plain@.service", "[Install]\nWantedBy=%i.target\n")
	put(vendor+"also.service", "[Install]\nWantedBy=v.target\nAlso=v.service off.service also.service\n")
	put(vendor+"off.service", "[Install]\nWantedBy=off.target\n")
	put(vendor+"self.service", "[Install]\nAlias=self.service named.service\n")
	put(vendor+"comments.service",
		"[Install]\nWantedBy=a.target \\\n# remark\n; remark\n b.target\nRequiredBy=c.target \\")
	put(vendor+"linked.service", "[Install]\nWantedBy=v.target\n")
	put(etc+"own.service", "[Install]\nWantedBy=own.target\n")
	link(etc+"masked.service", "/dev/null")
	link(etc+"linked.service", "/usr/share/linked.service")
	link(etc+"v.target.wants/on.service", vendor+"on.service")
	link(etc+"v.target.requires/on.service", vendor+"on.service")
	link(etc+"v.target.upholds/on.service", vendor+"on.service")
	link(etc+"v.target.other/on.service", vendor+"on.service")
	link(etc+"v.target.wants/stays.service", vendor+"stays.service")
	link(etc+"v.target.wants/null.service", "/dev/null")
	link(etc+"alias.service", vendor+"on.service")
	link(etc+"deep/alias.service", vendor+"on.service")
	return t
}

// shipped are the files, links and removals of a layer below a folder; directories are left out.
func shipped(t *testing.T, config string, tree *basetree.Tree) map[string]string {
	t.Helper()
	layer, _, err := compile(t, config, tree)
	require.NoError(t, err)
	got := map[string]string{}
	for _, e := range layer.Entries {
		switch {
		case e.Whiteout:
			got[e.Path] = "gone"
		case e.Kind == basetree.Symlink:
			got[e.Path] = "-> " + e.Link
		case e.Kind == basetree.Regular:
			got[e.Path] = string(e.Content)
		}
	}
	return got
}

func TestUnits(t *testing.T) {
	const etc, vendor = "/etc/systemd/system/", "/usr/lib/systemd/system/"
	cases := []struct {
		name, units string
		want        map[string]string
	}{
		{"a unit and a drop-in", `{"name":"a.service","contents":"A","dropins":[{"name":"1.conf","contents":"D"},` +
			`{"name":"2.conf"}]}`, map[string]string{etc + "a.service": "A", etc + "a.service.d/1.conf": "D"}},
		{"a mask", `{"name":"v.service","mask":true,"enabled":true}`,
			map[string]string{etc + "v.service": "-> /dev/null"}},
		{"mask: false of a mask", `{"name":"masked.service","mask":false}`,
			map[string]string{etc + "masked.service": "gone"}},
		{"mask: false of another link", `{"name":"linked.service","mask":false}`, map[string]string{}},
		{"mask: false of a file", `{"name":"own.service","mask":false}`, map[string]string{}},
		{"mask: false of nothing", `{"name":"none.service","mask":false}`, map[string]string{}},
		{"the vendor's", `{"name":"v.service","enabled":true}`,
			map[string]string{etc + "v.target.wants/v.service": "-> " + vendor + "v.service"}},
		{"the vendor's whose mask is taken away", `{"name":"masked.service","enabled":true,"mask":false}`,
			map[string]string{etc + "masked.service": "gone"}},
		{"one of /etc", `{"name":"own.service","enabled":true}`,
			map[string]string{etc + "own.target.wants/own.service": "-> " + etc + "own.service"}},
		{"one that the base masks", `{"name":"masked.service","enabled":true}`, map[string]string{}},
		{"one that is a link in the base", `{"name":"linked.service","enabled":true}`, map[string]string{}},
		{"drop-ins of the base and of the config", `{"name":"dropped.service","enabled":true,` +
			`"dropins":[{"name":"30.conf","contents":"[Install]\nWantedBy=config.target\n"}]}`, map[string]string{
			etc + "dropped.service.d/30.conf":           "[Install]\nWantedBy=config.target\n",
			etc + "v.target.wants/dropped.service":      "-> " + vendor + "dropped.service",
			etc + "etc.target.wants/dropped.service":    "-> " + vendor + "dropped.service",
			etc + "vendor.target.wants/dropped.service": "-> " + vendor + "dropped.service",
			etc + "config.target.wants/dropped.service": "-> " + vendor + "dropped.service"}},
		{"a template's instance", `{"name":"t@one.service","enabled":true}`,
			map[string]string{etc + "one.target.wants/t@one.service": "-> " + vendor + "t@.service"}},
		{"a template with a default", `{"name":"t@.service","enabled":true}`,
			map[string]string{etc + "d.target.wants/t@d.service": "-> " + vendor + "t@.service"}},
		{"a template without one", `{"name":"plain@.service","enabled":true}`, map[string]string{}},
		{"Also=, but not what the config disables", `{"name":"also.service","enabled":true},` +
			`{"name":"off.service","enabled":false}`, map[string]string{
			etc + "v.target.wants/also.service": "-> " + vendor + "also.service",
			etc + "v.target.wants/v.service":    "-> " + vendor + "v.service"}},
		{"an alias of its own name", `{"name":"self.service","enabled":true}`,
			map[string]string{etc + "named.service": "-> " + vendor + "self.service"}},
		{"disabled", `{"name":"on.service","enabled":false}`, map[string]string{
			etc + "v.target.wants/on.service": "gone", etc + "v.target.requires/on.service": "gone",
			etc + "v.target.upholds/on.service": "gone", etc + "alias.service": "gone"}},
		{"disabled where the base has a mask", `{"name":"null.service","enabled":false}`, map[string]string{}},
		{"comments between the parts of a line", `{"name":"comments.service","enabled":true}`, map[string]string{
			etc + "a.target.wants/comments.service":    "-> " + vendor + "comments.service",
			etc + "b.target.wants/comments.service":    "-> " + vendor + "comments.service",
			etc + "c.target.requires/comments.service": "-> " + vendor + "comments.service"}},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			assert.Equal(t, c.want, shipped(t, `"systemd":{"units":[`+c.units+`]}`, unitBase()))
		})
	}
}

// Debian before 13 writes /lib in its enablement links.
func TestLinksOfABaseThatSaysLib(t *testing.T) {
	const etc = "/etc/systemd/system/"
	const lib, usr = "-> /lib/systemd/system/v.service", "-> /usr/lib/systemd/system/v.service"
	for _, c := range []struct{ name, lib, link, want string }{
		{"it says /lib", "usr/lib", "/lib/systemd/system/a.service", lib},
		{"it says /usr/lib", "usr/lib", "/usr/lib/systemd/system/a.service", usr},
		{"its /lib is no link", "", "/lib/systemd/system/a.service", usr},
		{"it has no link of units", "usr/lib", "", usr},
	} {
		t.Run(c.name, func(t *testing.T) {
			tree := base()
			tree.Entries["/lib"] = basetree.Entry{Kind: basetree.Symlink, Link: c.lib}
			if c.lib == "" {
				tree.Entries["/lib"] = basetree.Entry{Kind: basetree.Directory, Mode: 0o755}
			}
			if c.link != "" {
				tree.Entries[etc+"x.target.wants/a.service"] = basetree.Entry{Kind: basetree.Symlink, Link: c.link}
			}
			tree.Contents["/usr/lib/systemd/system/v.service"] = []byte("[Install]\nWantedBy=v.target\n")
			assert.Equal(t, map[string]string{etc + "v.target.wants/v.service": c.want},
				shipped(t, `"systemd":{"units":[{"name":"v.service","enabled":true}]}`, tree))
		})
	}
}

func TestHardLinks(t *testing.T) {
	tree := base()
	for p, kind := range map[string]basetree.Kind{"/etc/f": basetree.Regular, "/etc/l": basetree.Symlink} {
		tree.Entries[p] = basetree.Entry{Kind: kind, Mode: 0o640, UID: 7, Link: "f"}
		tree.Contents[p] = []byte("base")
	}
	tree.Entries["/etc/loop"] = basetree.Entry{Kind: basetree.Symlink, Link: "loop"}
	hard := func(target string) string {
		return fmt.Sprintf(`"storage":{"links":[{"path":"/etc/h","hard":true,"target":%q}],`+
			`"files":[{"path":"/etc/mine","contents":{"source":"data:,mine"}}]}`, target)
	}
	assert.Equal(t, map[string]string{"/etc/mine": "mine", "/etc/h": "mine"}, shipped(t, hard("/etc/mine"), tree))
	assert.Equal(t, map[string]string{"/etc/mine": "mine", "/etc/h": "base"}, shipped(t, hard("/etc/f"), tree))
	for target, rule := range map[string]string{"/etc/l": "hard-link", "/etc/large": "hard-link", "/etc/none": "hard-link",
		"/etc/loop/x": "path"} {
		_, findings, err := compile(t, hard(target), tree)
		require.Error(t, err, target)
		assert.Equal(t, rule, findings[0].Rule, target)
	}
}

// What the base has is left alone, unless the config says overwrite.
func TestLinksOverTheBase(t *testing.T) {
	tree := base()
	tree.Entries["/etc/l"] = basetree.Entry{Kind: basetree.Symlink, Link: "/x"}
	tree.Entries["/etc/f"] = basetree.Entry{Kind: basetree.Regular, Mode: 0o644}
	link := func(p, more string) string {
		return fmt.Sprintf(`"storage":{"links":[{"path":%q,%s}]}`, p, more)
	}
	assert.Equal(t, map[string]string{"/etc/l": "-> /x"}, shipped(t, link("/etc/l", `"target":"/x"`), tree))
	assert.Equal(t, map[string]string{"/etc/l": "-> /y"},
		shipped(t, link("/etc/l", `"target":"/y","overwrite":true`), tree))
	for _, refused := range []string{link("/etc/l", `"target":"/y"`), link("/etc/f", `"target":"/y"`)} {
		_, findings, err := compile(t, refused, tree)
		require.Error(t, err)
		assert.Equal(t, "exists-in-base", findings[0].Rule)
	}
}

// A file that keeps the base's content keeps its mode and owner, too, and gets what is appended.
func TestAppendToTheBase(t *testing.T) {
	tree := base()
	tree.Entries["/etc/f"] = basetree.Entry{Kind: basetree.Regular, Mode: 0o640, UID: 7, GID: 8}
	tree.Contents["/etc/f"] = []byte("base ")
	tree.Entries["/etc/s"], tree.Contents["/etc/s"] = basetree.Entry{Kind: basetree.Regular, Mode: 0o4755}, nil
	layer, findings, err := compile(t, `"storage":{"files":[{"path":"/etc/f","append":[{"source":"data:,more"}]},`+
		`{"path":"/etc/s","append":[{"source":"data:,s"}]}]}`, tree)
	require.NoError(t, err)
	got := map[string]string{}
	for _, e := range layer.Entries {
		got[e.Path] = fmt.Sprintf("%o %d:%d %s", e.Mode, e.UID, e.GID, e.Content)
	}
	assert.Equal(t, "640 7:8 base more", got["/etc/f"])
	assert.Equal(t, "4755 0:0 s", got["/etc/s"])
	require.Len(t, findings, 1)
	assert.Equal(t, "special-mode", findings[0].Rule)
	assert.Equal(t, "spec.config.storage.files[1].mode", findings[0].Path)
}

// The base's number of a group wins. The draft reports a user or group that shall not exist or has no number.
func TestAccounts(t *testing.T) {
	tree := base()
	tree.Contents["/etc/group"] = []byte("wheel:x:10:\nbad line\nno:x:number:\n")
	layer, findings, err := compile(t, `"passwd":{"groups":[{"name":"wheel","gid":99},{"name":"free"},
		{"name":"gone","shouldExist":false},{"name":"no","gid":77}],"users":[{"name":"core","uid":5,"groups":["wheel"]},
		{"name":"old","shouldExist":false},{"name":"new"}]},
		"storage":{"files":[{"path":"/etc/w","group":{"name":"wheel"},"user":{"name":"core"}},
			{"path":"/etc/n","group":{"name":"no"},"user":{"name":""}}]}`, tree)
	require.NoError(t, err)
	got := map[string]string{}
	for _, e := range layer.Entries {
		got[e.Path] = fmt.Sprintf("%d:%d %s", e.UID, e.GID, e.Content)
	}
	assert.Equal(t, "1000:10 ", got["/etc/w"])
	assert.Equal(t, "0:77 ", got["/etc/n"])
	assert.Equal(t, "0:0 g free -\ng no 77\nm core wheel\nu new - - /home/new /bin/bash\n",
		got["/usr/lib/sysusers.d/50-dayone-config.conf"])
	where := map[string]string{}
	for _, p := range layer.Placements {
		where[p.Path] = p.Where
	}
	assert.Equal(t, map[string]string{"group free": "sysusers.d", "group gone": "first-boot", "group no": "sysusers.d",
		"user old": "first-boot", "user new": "sysusers.d"}, where)
	require.Len(t, findings, 1)
	assert.Equal(t, "user-id", findings[0].Rule)
}
