package deployers

import (
	"testing"

	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/stretchr/testify/require"

	"dayone.dev/dayone/rebase/deploy"
	"dayone.dev/dayone/rebase/deploy/deploytest"
	"dayone.dev/dayone/rebase/firstboot"
)

// forgetLater takes a node back to where it was before the later image came: nothing staged, none of its names, none of its objects.
const forgetLater = `[ -e /run/ostree/staged-deployment ] && ostree admin undeploy 0
for r in $(ostree refs); do grep -qxF "$r" /var/refs || ostree refs --delete "$r"; done
ostree prune --refs-only --depth=0 && sync`

// BenchmarkStageOfTheMissingLayer is the whole of what a node does before the reboot, with the plain deployer: the agent's start, manifest,
// import, the staged deployment of libostree and the checks, for an image of 1 GB of which 95 % are on the node. Beside it what unpacking
// the missing layer takes at least, and libostree's own share: its staged deployment of the imported image checks the whole tree out.
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
