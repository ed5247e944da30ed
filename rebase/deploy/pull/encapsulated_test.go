package pull

import (
	"archive/tar"
	"path/filepath"
	"testing"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"dayone.dev/dayone/rebase/deploy/deploytest"
)

// encapsulatedBase is the base of deploytest as one commit in three layers. SELinux labels are what such images have
// and archives cannot say.
func encapsulatedBase(t *testing.T) (plain v1.Image, e *deploytest.Encapsulated) {
	t.Helper()
	plain = deploytest.Image(t, deploytest.Options{}, deploytest.Layer(t, append(deploytest.Base("1"),
		deploytest.Entry{Name: "usr/bin/tool", Body: "#!/bin/sh\n", Mode: 0o4755},
		deploytest.Entry{Name: "usr/bin/owned", Body: "x", UID: 7, GID: 8},
		deploytest.Entry{Name: "usr/lib/empty"})...))
	return plain, deploytest.Encapsulate(t, plain, 2, func(dir string) {
		for name, label := range map[string]string{"bin": "system_u:object_r:bin_t:s0",
			"usr/bin/tool": "system_u:object_r:tool_exec_t:s0"} {
			require.NoError(t, unix.Lsetxattr(filepath.Join(dir, name), "security.selinux", append([]byte(label), 0), 0))
		}
	})
}

// TestEncapsulatedFixture holds the test's images against the real ostree: it reads them as a repository.
func TestEncapsulatedFixture(t *testing.T) {
	repo := deploytest.NewRepository(t)
	_, e := encapsulatedBase(t)
	deploytest.Run(t, "ostree", "pull-local", "--repo="+repo, e.Unpack(t), e.Commit)
	deploytest.Run(t, "ostree", "fsck", "--repo="+repo)
}

func TestImportEncapsulated(t *testing.T) {
	repo := deploytest.NewRepository(t)
	_, e := encapsulatedBase(t)
	base := e.Image(t, nil)
	img, err := mutate.AppendLayers(base, deploytest.Layer(t,
		deploytest.Entry{Name: "etc/vendor", Body: "layered\n"}, deploytest.Entry{Name: "etc/new", Body: "new\n"},
		deploytest.Entry{Name: "usr/bin/.wh.owned"}))
	require.NoError(t, err)
	done, err := Import(t.Context(), repo, deploytest.WriteOCI(t, img), Options{})
	require.NoError(t, err)
	assert.Equal(t, 4, done.LayersFetched)
	deploytest.Run(t, "ostree", "fsck", "--repo="+repo)

	// What the base has and the layer leaves alone is the same object, with owner, mode and label.
	out := filepath.Join(t.TempDir(), "tree")
	deploytest.Run(t, "ostree", "checkout", "--repo="+repo, "-H", done.Commit, out)
	assert.Equal(t, "M    /usr/etc/vendor\nD    /usr/bin/owned\nA    /usr/etc/new\n",
		deploytest.Run(t, "ostree", "diff", "--repo="+repo, e.Commit, done.Commit))
	assert.Equal(t, "layered\n", deploytest.Run(t, "cat", filepath.Join(out, "usr/etc/vendor")))

	// The layers are kept as ostree-ext keeps them: the first one's name is the commit's.
	again, err := Import(t.Context(), repo, deploytest.WriteOCI(t, base), Options{})
	require.NoError(t, err)
	assert.Zero(t, again.LayersFetched)
	refs, err := refsOf(NewStore(repo))
	require.NoError(t, err)
	layers, err := base.Layers()
	require.NoError(t, err)
	for _, l := range layers {
		assert.Contains(t, refs, layerRef(mustDigest(t, l)))
	}
	assert.Equal(t, e.Commit+"\n", deploytest.Run(t, "ostree", "rev-parse", "--repo="+repo,
		layerRef(mustDigest(t, layers[0]))))
}

// A build that runs where hard links stay hard links has the changed object beside the path.
func TestImportLayerOverObjects(t *testing.T) {
	repo := deploytest.NewRepository(t)
	_, e := encapsulatedBase(t)
	object := "sysroot/ostree/repo/objects/" + e.Objects["/usr/etc/vendor"][:2] + "/" + e.Objects["/usr/etc/vendor"][2:] +
		".file"
	img, err := mutate.AppendLayers(e.Image(t, nil), deploytest.Layer(t, deploytest.Entry{Name: "sysroot/"},
		deploytest.Entry{Name: "sysroot/ostree/"}, deploytest.Entry{Name: object, Body: "changed\n"},
		deploytest.Entry{Name: "etc/vendor", Type: tar.TypeLink, Link: object}))
	require.NoError(t, err)
	done, err := Import(t.Context(), repo, deploytest.WriteOCI(t, img), Options{})
	require.NoError(t, err)
	assert.Equal(t, "changed\n", deploytest.Run(t, "ostree", "cat", "--repo="+repo, done.Commit, "/usr/etc/vendor"))
	assert.Equal(t, "M    /usr/etc/vendor\n", deploytest.Run(t, "ostree", "diff", "--repo="+repo, e.Commit, done.Commit))
}

func TestImportRefusesEncapsulated(t *testing.T) {
	const tool = "/usr/bin/tool"
	relabel := func(change func(labels map[string]string)) func(*testing.T, *deploytest.Encapsulated) v1.Image {
		return func(t *testing.T, e *deploytest.Encapsulated) v1.Image { return e.Image(t, change) }
	}
	diffID := func(t *testing.T, img v1.Image, i int) string {
		layers, err := img.Layers()
		require.NoError(t, err)
		id, err := layers[i].DiffID()
		require.NoError(t, err)
		return id.String()
	}
	for _, c := range []struct {
		name  string
		image func(t *testing.T, e *deploytest.Encapsulated) v1.Image
		says  string
	}{
		{"a missing object", func(t *testing.T, e *deploytest.Encapsulated) v1.Image {
			e.WithoutObject(t, tool)
			return e.Image(t, nil)
		}, `lack 1 objects of commit .*, the first is /usr/bin/tool \(`},
		{"a missing layer", func(t *testing.T, e *deploytest.Encapsulated) v1.Image {
			e.Layers = e.Layers[:2]
			return e.Image(t, nil)
		}, `lack [0-9]+ objects of commit .*, the first is /`},
		{"a changed object", func(t *testing.T, e *deploytest.Encapsulated) v1.Image {
			e.ChangeObject(t, tool)
			return e.Image(t, nil)
		}, `object [0-9a-f]{64}\.file: its content has the checksum`},
		{"a file beside the objects", func(t *testing.T, e *deploytest.Encapsulated) v1.Image {
			e.Add(t, "usr/bin/stray", "x")
			return e.Image(t, nil)
		}, `"usr/bin/stray" is no object`},
		{"the label names no layer", relabel(func(l map[string]string) {
			l["ostree.final-diffid"] = "sha256:" + deploytest.CommitA
		}), `label ostree.final-diffid names the layer sha256:aa.*none of the image's 3 layers`},
		{"the label names an earlier layer", func(t *testing.T, e *deploytest.Encapsulated) v1.Image {
			second := diffID(t, e.Image(t, nil), 1)
			return e.Image(t, func(l map[string]string) { l["ostree.final-diffid"] = second })
		}, `label ostree.final-diffid names lack`},
		{"the label names a later layer", func(t *testing.T, e *deploytest.Encapsulated) v1.Image {
			layer := deploytest.Layer(t, deploytest.Entry{Name: "etc/new", Body: "x"})
			id, err := layer.DiffID()
			require.NoError(t, err)
			img, err := mutate.AppendLayers(e.Image(t, func(l map[string]string) {
				l["ostree.final-diffid"] = id.String()
			}), layer)
			require.NoError(t, err)
			return img
		}, `"etc/new" is no object`},
		{"no label", relabel(func(l map[string]string) { delete(l, "ostree.final-diffid") }),
			`carries an ostree repository.*keep the label ostree.final-diffid`},
		{"another commit", relabel(func(l map[string]string) { l["ostree.commit"] = deploytest.CommitA }),
			`label ostree.commit names aa.*the first layer has`},
		{"no commit", func(t *testing.T, e *deploytest.Encapsulated) v1.Image {
			e.Layers = e.Layers[1:]
			return e.Image(t, nil)
		}, "first layer has no commit object"},
	} {
		t.Run(c.name, func(t *testing.T) {
			repo := deploytest.NewRepository(t)
			_, e := encapsulatedBase(t)
			img := c.image(t, e)
			_, err := Import(t.Context(), repo, deploytest.WriteOCI(t, img), Options{})
			require.Error(t, err)
			assert.Regexp(t, c.says, err.Error())
			assert.Contains(t, err.Error(), "next: ")
			layers, err := img.Layers()
			require.NoError(t, err)
			refs, err := refsOf(NewStore(repo))
			require.NoError(t, err)
			assert.NotContains(t, refs, layerRef(mustDigest(t, layers[0])), "the commit got no name")
			for ref := range refs {
				assert.NotContains(t, ref, imagePrefix)
			}
		})
	}
}
