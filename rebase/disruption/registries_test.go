package disruption_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"dayone.dev/dayone/rebase/disruption"
)

// reg writes one registry: its location, settings as TOML lines, and mirrors as "location pull-mode".
func reg(location, settings string, mirrors ...string) string {
	out := fmt.Sprintf("[[registry]]\nprefix = \"\"\nlocation = %q\n%s\n", location, settings)
	for _, m := range mirrors {
		at, pull, _ := strings.Cut(m, " ")
		out += fmt.Sprintf("[[registry.mirror]]\nlocation = %q\n", at)
		if pull == "insecure" {
			out += "insecure = true\npull-from-mirror = \"digest-only\"\n"
		} else if pull != "" {
			out += fmt.Sprintf("pull-from-mirror = %q\n", pull)
		}
	}
	return out
}

const (
	search = "unqualified-search-registries = ['a.io']\n"
	dig    = " digest-only"
	tag    = " tag-only"
)

func TestCompareMirrors(t *testing.T) {
	for _, c := range []struct {
		name          string
		before, after string
		kinds         []disruption.MirrorKind
		unsafe        bool
	}{
		{"nothing", search, search, nil, false},
		{"another form of the same", reg("a.io", "", "m.io"+dig),
			"[[registry]]\n  location='a.io'\n  [[registry.mirror]]\n    pull-from-mirror='digest-only'\n    location='m.io'\n",
			nil, false},
		{"the old word for by digest only", reg("a.io", "", "m.io"+dig), reg("a.io", "mirror-by-digest-only = true",
			"m.io"), nil, false},
		{"other order of registries", reg("a.io", "", "m.io"+dig) + reg("b.io", "", "m.io"+dig),
			reg("b.io", "", "m.io"+dig) + reg("a.io", "", "m.io"+dig), nil, false},
		{"file added, digest mirrors", "", reg("a.io", "", "m.io"+dig),
			[]disruption.MirrorKind{disruption.DigestMirrors}, false},
		{"file removed, digest mirrors", reg("a.io", "", "m.io"+dig), "",
			[]disruption.MirrorKind{disruption.DigestMirrors}, true},
		{"first mirror set brings the search list", "", search + reg("a.io", "", "m.io"+dig),
			[]disruption.MirrorKind{disruption.DigestMirrors, disruption.DigestMirrors}, false},
		{"last mirror set takes the search list", search + reg("a.io", "", "m.io"+dig), "",
			[]disruption.MirrorKind{disruption.DigestMirrors, disruption.DigestMirrors}, true},
		{"last sets of two kinds go", search + reg("a.io", "", "m.io"+dig) + reg("b.io", "", "m.io"+tag), "",
			[]disruption.MirrorKind{disruption.TagMirrors, disruption.DigestMirrors, disruption.TagMirrors}, true},
		{"blocked registry and search list removed", search + reg("a.io", "blocked = true"), "",
			[]disruption.MirrorKind{disruption.ImageSettings, disruption.ImageSettings}, true},
		{"file added, tag mirrors", "", reg("a.io", "", "m.io"+tag),
			[]disruption.MirrorKind{disruption.TagMirrors}, true},
		{"file added, mirrors for both", "", reg("a.io", "", "m.io"),
			[]disruption.MirrorKind{disruption.TagMirrors}, true},
		{"digest mirror added", reg("a.io", "", "m.io"+dig), reg("a.io", "", "m.io"+dig, "n.io"+dig),
			[]disruption.MirrorKind{disruption.DigestMirrors}, false},
		{"digest mirror added in front", reg("a.io", "", "m.io"+dig), reg("a.io", "", "n.io"+dig, "m.io"+dig),
			[]disruption.MirrorKind{disruption.DigestMirrors}, false},
		{"tag mirror added", reg("a.io", "", "m.io"+dig), reg("a.io", "", "m.io"+dig, "n.io"+tag),
			[]disruption.MirrorKind{disruption.TagMirrors}, true},
		{"insecure digest mirror added", reg("a.io", "", "m.io"+dig),
			reg("a.io", "", "m.io"+dig, "n.io insecure"), []disruption.MirrorKind{disruption.DigestMirrors}, true},
		{"one of two digest mirrors removed", reg("a.io", "", "m.io"+dig, "n.io"+dig), reg("a.io", "", "m.io"+dig),
			[]disruption.MirrorKind{disruption.DigestMirrors}, true},
		{"last digest mirror removed", reg("a.io", "", "m.io"+dig), reg("a.io", ""),
			[]disruption.MirrorKind{disruption.DigestMirrors}, true},
		{"one of two tag mirrors removed", reg("a.io", "", "m.io"+tag, "n.io"+tag), reg("a.io", "", "m.io"+tag),
			[]disruption.MirrorKind{disruption.TagMirrors}, true},
		{"digest mirrors in other order", reg("a.io", "", "m.io"+dig, "n.io"+dig),
			reg("a.io", "", "n.io"+dig, "m.io"+dig), []disruption.MirrorKind{disruption.DigestMirrors}, false},
		{"tag mirrors in other order", reg("a.io", "", "m.io"+tag, "n.io"+tag),
			reg("a.io", "", "n.io"+tag, "m.io"+tag), []disruption.MirrorKind{disruption.TagMirrors}, true},
		{"a mirror becomes for digests only", reg("a.io", "", "m.io"+tag), reg("a.io", "", "m.io"+dig),
			[]disruption.MirrorKind{disruption.TagMirrors}, false},
		{"a mirror becomes for tags", reg("a.io", "", "m.io"+dig), reg("a.io", "", "m.io"+tag),
			[]disruption.MirrorKind{disruption.TagMirrors}, true},
		{"a mirror becomes insecure", reg("a.io", "", "m.io"+dig), reg("a.io", "", "m.io insecure"),
			[]disruption.MirrorKind{disruption.DigestMirrors}, true},
		{"registry blocked", reg("a.io", ""), reg("a.io", "blocked = true"),
			[]disruption.MirrorKind{disruption.ImageSettings}, true},
		{"registry no longer blocked", reg("a.io", "blocked = true"), reg("a.io", ""),
			[]disruption.MirrorKind{disruption.ImageSettings}, true},
		{"blocked registry added", "", reg("a.io", "blocked = true"),
			[]disruption.MirrorKind{disruption.ImageSettings}, true},
		{"blocked registry removed", reg("a.io", "blocked = true"), "",
			[]disruption.MirrorKind{disruption.ImageSettings}, true},
		{"a set that never contacts the source added", reg("b.io", "", "m.io"+dig),
			reg("b.io", "", "m.io"+dig) + reg("a.io", "blocked = true", "m.io"+dig),
			[]disruption.MirrorKind{disruption.DigestMirrors}, false},
		{"the first set, and it never contacts the source", "", search + reg("a.io", "blocked = true", "m.io"+dig),
			[]disruption.MirrorKind{disruption.DigestMirrors, disruption.DigestMirrors}, false},
		{"a set that never contacts the source removed", reg("a.io", "blocked = true", "m.io"+dig), "",
			[]disruption.MirrorKind{disruption.DigestMirrors}, true},
		{"a set contacts the source no more", reg("a.io", "", "m.io"+dig), reg("a.io", "blocked = true", "m.io"+dig),
			[]disruption.MirrorKind{disruption.DigestMirrors}, false},
		{"a set contacts the source again", reg("a.io", "blocked = true", "m.io"+dig), reg("a.io", "", "m.io"+dig),
			[]disruption.MirrorKind{disruption.DigestMirrors}, true},
		{"blocked, and its mirrors go", reg("a.io", "", "m.io"+dig), reg("a.io", "blocked = true"),
			[]disruption.MirrorKind{disruption.ImageSettings, disruption.DigestMirrors}, true},
		{"a tag set that never contacts the source added", "", reg("a.io", "blocked = true", "m.io"+tag),
			[]disruption.MirrorKind{disruption.TagMirrors}, true},
		{"a tag set contacts the source no more", reg("a.io", "", "m.io"+tag), reg("a.io", "blocked = true", "m.io"+tag),
			[]disruption.MirrorKind{disruption.TagMirrors}, true},
		{"registry insecure", reg("a.io", ""), reg("a.io", "insecure = true"),
			[]disruption.MirrorKind{disruption.ImageSettings}, true},
		{"insecure registry added", "", reg("a.io", "insecure = true"),
			[]disruption.MirrorKind{disruption.ImageSettings}, true},
		{"registry without mirrors added", "", reg("a.io", ""), []disruption.MirrorKind{disruption.ImageSettings},
			true},
		{"another location for a prefix", "[[registry]]\nprefix='a.io'\nlocation='b.io'",
			"[[registry]]\nprefix='a.io'\nlocation='c.io'", []disruption.MirrorKind{disruption.ImageSettings}, true},
		{"a prefix that leads elsewhere added", "",
			"[[registry]]\nprefix='a.io'\nlocation='b.io'\n[[registry.mirror]]\nlocation='m.io'\npull-from-mirror='digest-only'",
			[]disruption.MirrorKind{disruption.DigestMirrors}, true},
		{"wildcard prefix added with digest mirrors", "",
			"[[registry]]\nprefix='*.a.io'\n[[registry.mirror]]\nlocation='m.io'\npull-from-mirror='digest-only'",
			[]disruption.MirrorKind{disruption.DigestMirrors}, false},
		{"wildcard prefix removed", "[[registry]]\nprefix='*.a.io'\nblocked=true", "",
			[]disruption.MirrorKind{disruption.ImageSettings}, true},
		{"search list longer", search, "unqualified-search-registries = ['a.io', 'b.io']",
			[]disruption.MirrorKind{disruption.ImageSettings}, false},
		{"search list longer in front", search, "unqualified-search-registries = ['b.io', 'a.io']",
			[]disruption.MirrorKind{disruption.ImageSettings}, true},
		{"search list shorter", search, "", []disruption.MirrorKind{disruption.ImageSettings}, true},
		{"short names", search + "short-name-mode='enforcing'", search +
			"short-name-mode='permissive'", []disruption.MirrorKind{disruption.ImageSettings}, true},
		{"other settings", "credential-helpers = ['a']", "credential-helpers = ['b']",
			[]disruption.MirrorKind{disruption.ImageSettings}, true},
		{"a file that cannot be read", "", "[[registry", []disruption.MirrorKind{disruption.ImageSettings},
			true},
		{"a present file that cannot be read", "[[registry", "", []disruption.MirrorKind{disruption.ImageSettings},
			true},
	} {
		t.Run(c.name, func(t *testing.T) {
			changes := disruption.CompareMirrors([]byte(c.before), []byte(c.after))
			var kinds []disruption.MirrorKind
			unsafe := false
			for _, m := range changes {
				kinds = append(kinds, m.Kind)
				unsafe = unsafe || m.Unsafe
			}
			assert.Equal(t, c.kinds, kinds, "%+v", changes)
			assert.Equal(t, c.unsafe, unsafe, "%+v", changes)
		})
	}
}

func TestParseMirrorPolicy(t *testing.T) {
	p, err := disruption.ParseMirrorPolicy("ImageContentSourcePolicy=None, Image=Drain")
	require.NoError(t, err)
	assert.Equal(t, disruption.MirrorPolicy{disruption.DigestMirrors: true, disruption.ImageSettings: false}, p)
	for _, s := range []string{"", "Image", "Image=Reload", "Mirror=None", "Image=None,"} {
		_, err := disruption.ParseMirrorPolicy(s)
		assert.Error(t, err, s)
	}
}

func FuzzCompareMirrors(f *testing.F) {
	f.Add(reg("a.io", "", "m.io"+dig), reg("a.io", "blocked=true", "m.io"))
	f.Fuzz(func(t *testing.T, a, b string) {
		for _, m := range disruption.CompareMirrors([]byte(a), []byte(b)) {
			if m.What == "" {
				t.Fatal("a change without words")
			}
		}
	})
}
