package deployers

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"testing"

	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"dayone.dev/dayone/rebase/deploy"
	"dayone.dev/dayone/rebase/deploy/deploytest"
	"dayone.dev/dayone/rebase/firstboot"
)

// forgetLater takes a node back to where it was before the later image came: nothing staged, none of its names, none of
// its objects.
const forgetLater = `[ -e /run/ostree/staged-deployment ] && ostree admin undeploy 0
for r in $(ostree refs); do grep -qxF "$r" /var/refs || ostree refs --delete "$r"; done
ostree prune --refs-only --depth=0 && sync`

// BenchmarkStageOfTheMissingLayer is the whole of what a node does before the reboot, with the plain deployer: the
// agent's start, manifest, import, the staged deployment of libostree and the checks, for an image of 1 GB of which 95
// % are on the node. Beside it what unpacking the missing layer takes at least; libostree's own share: its staged
// deployment of the imported image checks the whole tree out; and of that what the kernel alone needs for the tree's
// hard links, by as many threads as there are processors.
func BenchmarkStageOfTheMissingLayer(b *testing.B) {
	need(b)
	f := stock(b, deploy.KindOSTree, nil)
	layers := deploytest.LargeLayers(b)
	missing := layers[len(layers)-1]
	first, err := mutate.AppendLayers(f.layered(), layers[:len(layers)-1]...)
	require.NoError(b, err)
	second, err := mutate.AppendLayers(first, missing)
	require.NoError(b, err)
	running, later := f.push(first), f.push(second)
	f.output(firstboot.DaemonPath, "stage", running)
	require.NoError(b, f.node.Reboot(b.Context()))
	require.Equal(b, running, f.status().Booted.Image.String())
	f.output("sh", "-c", "ostree refs >/var/refs")

	b.Run("stage", func(b *testing.B) {
		for b.Loop() {
			b.StopTimer()
			f.output("sh", "-c", forgetLater)
			b.StartTimer()
			f.output(firstboot.DaemonPath, "stage", later)
		}
	})
	staged := f.status().Staged
	require.Equal(b, later, staged.Image.String())
	b.Run("libostree", func(b *testing.B) {
		for b.Loop() {
			b.StopTimer()
			f.output("sh", "-c", "ostree admin undeploy 0 && sync")
			b.StartTimer()
			f.output("ostree", "admin", "deploy", "--stage", staged.Commit)
		}
	})
	tree := treeOf(b, filepath.Join(f.node.Sysroot, "ostree/deploy", deploymentDir(f.status().Staged)))
	b.Run("links", func(b *testing.B) {
		for b.Loop() {
			b.StopTimer()
			dir := filepath.Join(f.node.Sysroot, "links")
			require.NoError(b, os.Mkdir(dir, 0o755))
			deploytest.Sync(b, dir)
			b.StartTimer()
			tree.link(b, dir)
			b.StopTimer()
			require.NoError(b, os.RemoveAll(dir))
			b.StartTimer()
		}
	})
	b.Run("unpack", func(b *testing.B) {
		for b.Loop() {
			b.StopTimer()
			dir := b.TempDir()
			deploytest.Sync(b, dir)
			b.StartTimer()
			deploytest.Unpack(b, missing, dir)
		}
	})
}

// linkTree is a deployment's directories, each before those in it, and its files with their names below the deployment.
type linkTree struct {
	root        string
	dirs, files []string
}

func deploymentDir(d *deploy.Deployment) string {
	stateroot, dir := filepath.Split(d.ID)
	return filepath.Join(stateroot, "deploy", dir)
}

func treeOf(b *testing.B, root string) linkTree {
	b.Helper()
	t := linkTree{root: root}
	require.NoError(b, filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		name, _ := filepath.Rel(root, path) // both begin alike
		switch {
		case err != nil:
			return err
		case d.IsDir():
			t.dirs = append(t.dirs, name)
		case d.Type().IsRegular():
			t.files = append(t.files, name)
		}
		return nil
	}))
	require.Greater(b, len(t.files), 20000, "the image's files")
	return t
}

// link makes the tree's directories and hard links in dir. The files stand in the order of the walk, so each thread has
// directories of its own.
func (t linkTree) link(b *testing.B, dir string) {
	b.Helper()
	for _, name := range t.dirs {
		require.NoError(b, os.MkdirAll(filepath.Join(dir, name), 0o755))
	}
	var threads errgroup.Group
	n := runtime.GOMAXPROCS(0)
	for i := range n {
		threads.Go(func() error {
			for _, name := range t.files[i*len(t.files)/n : (i+1)*len(t.files)/n] {
				if err := os.Link(filepath.Join(t.root, name), filepath.Join(dir, name)); err != nil {
					return fmt.Errorf("link: %w", err)
				}
			}
			return nil
		})
	}
	require.NoError(b, threads.Wait())
}
