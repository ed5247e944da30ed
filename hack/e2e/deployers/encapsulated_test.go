package deployers

import (
	"testing"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"dayone.dev/dayone/rebase/deploy"
	"dayone.dev/dayone/rebase/deploy/deploytest"
	"dayone.dev/dayone/rebase/firstboot"
)

// The objects of an encapsulated base come in a layer with the commit and so many others.
const objectLayers = 3

// encapsulated gives the fixture's image a base in the form in which rpm-ostree and bootc publish theirs.
func encapsulated(f *fixture) {
	f.base = deploytest.Encapsulate(f.t, f.base, objectLayers, nil).Image(f.t, nil)
	f.served.Spec.OSImageURL = f.push(f.layered())
}

// TestEncapsulatedBase: a node boots an image whose base is one ostree commit in several layers, with a layer of files
// over it, and what it boots is what the same image of plain layers gives.
func TestEncapsulatedBase(t *testing.T) {
	forEach(t, func(t *testing.T, kind deploy.Kind, programs []string) {
		var plain v1.Image
		f := newFixture(t, kind, programs, func(f *fixture) { plain = f.base }, encapsulated)
		f.start()
		f.waitDone()
		assert.Equal(t, f.image, f.status().Booted.Image.String())
		assert.Equal(t, "image", f.output("cat", "/etc/from-image"))
		assert.Equal(t, "hello", f.output("hello"))
		f.base = plain
		want := f.push(f.layered())
		require.NotEqual(t, f.image, want)
		if kind == deploy.KindOSTree { // the stand-ins of the others bring images the same way
			// the same files: ostree's own comparison of the two commits names none
			booted := f.status().Booted.Commit
			f.output(firstboot.DaemonPath, "stage", want)
			assert.Empty(t, f.output("ostree", "diff", "--repo=/ostree/repo", booted, f.status().Staged.Commit))
		}
	})
}

// TestTruncatedBase: a base that lacks an object is refused before anything is staged.
func TestTruncatedBase(t *testing.T) {
	need(t)
	f := stock(t, deploy.KindOSTree, nil)
	e := deploytest.Encapsulate(t, f.base, objectLayers, nil)
	e.WithoutObject(t, "/usr/lib/os-release")
	f.base = e.Image(t, nil)
	r, err := f.node.Exec(t.Context(), firstboot.DaemonPath, "stage", f.push(f.layered()))
	require.NoError(t, err)
	assert.Equal(t, 1, r.ExitCode)
	assert.Regexp(t, `lack 1 objects of commit [0-9a-f]{64}, the first is /usr/lib/os-release`, r.Stderr)
	assert.Contains(t, r.Stderr, "next: ")
	assert.NotContains(t, f.output("ostree", "admin", "status"), "(staged)")
}
