package daemon_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	"dayone.dev/dayone/manifests"
	"dayone.dev/dayone/rebase/daemon"
	"dayone.dev/dayone/rebase/deploy"
	"dayone.dev/dayone/rebase/deploy/deploytest"
	"dayone.dev/dayone/rebase/deploy/pull"
	"dayone.dev/dayone/rebase/nodestate"
)

// verifies lets the agent ask the policy of the machine's root.
func (f *fixture) verifies(g *deploytest.Registry, policy []byte) {
	f.Helper()
	for path, content := range map[string][]byte{pull.PolicyPath: policy,
		"/etc/containers/registries.d/test.yaml":        deploytest.Attachments(g.Addr),
		"/etc/containers/certs.d/" + g.Addr + "/ca.crt": g.Authority.PEM} {
		at := filepath.Join(f.m.root, path)
		require.NoError(f, os.MkdirAll(filepath.Dir(at), 0o755))
		require.NoError(f, os.WriteFile(at, content, 0o644))
	}
	auth, err := os.ReadFile(g.AuthFile)
	require.NoError(f, err)
	at := filepath.Join(f.m.root, "etc/ostree/auth.json")
	require.NoError(f, os.MkdirAll(filepath.Dir(at), 0o755))
	require.NoError(f, os.WriteFile(at, auth, 0o600))
}

func (f *fixture) verify(ctx context.Context, i deploy.Image) error {
	return pull.Verify(ctx, f.m.root, i)
}

func TestAnImageWithoutASignatureIsNeverStaged(t *testing.T) {
	f := newFixture(t)
	g, key := deploytest.StartRegistry(t), deploytest.NewKey(t)
	all := images(t, g, 2)
	f.join(rendered("rendered-signed-1", "/etc/a=1"), all[0])
	f.verifies(g, deploytest.Policy(g.Addr, deploytest.Required(key)))
	f.through(func(o *daemon.Options) { o.Verify = f.verify })
	next := rendered("rendered-signed-2", "/etc/a=2")
	f.aim(next, all[1])
	err := f.fails()
	require.Error(t, err)
	assert.Equal(t, deploy.ClassUnsigned, deploy.ClassOf(err), err)
	r := f.record()
	assert.Equal(t, nodestate.StateDegraded, r.State)
	assert.Contains(t, r.Reason, "no signature exists")
	assert.Contains(t, r.Reason, "next: sign the image")
	assert.Empty(t, r.DesiredDrain, "no pod has to leave for an image that the node does not take")
	assert.Empty(t, f.m.calls)
	assert.Equal(t, all[0], f.m.booted)

	f.aim(rendered("rendered-signed-1", "/etc/a=1"), all[0])
	f.settle() // the way back needs no signature: the node runs that image

	g.Sign(t, key, all[1], all[1])
	f.aim(next, all[1])
	f.reaches(daemon.Applying)
	f.verifies(g, deploytest.Policy(g.Addr, deploytest.Required(deploytest.NewKey(t)))) // the key was withdrawn meanwhile
	require.Error(t, f.fails())
	assert.Empty(t, f.m.staged)
	f.verifies(g, deploytest.Policy(g.Addr, deploytest.Required(key)))
	f.settle()
	assert.Equal(t, all[1], f.m.booted)

	f.through(func(o *daemon.Options) { o.Verify = f.verify }) // the reboot made a new agent
	f.aim(rendered("rendered-signed-1", "/etc/a=1"), all[0])
	assert.ErrorContains(t, f.fails(), "no signature exists", "the image before is a new one, too")
	g.Sign(t, key, all[0], all[0])
	f.settle()
	assert.Equal(t, all[0], f.m.booted)
}

func TestARegistryThatCannotBeAskedForSignatures(t *testing.T) {
	f := newFixture(t)
	g, key := deploytest.StartRegistry(t), deploytest.NewKey(t)
	all := images(t, g, 2)
	g.Sign(t, key, all[1], all[1])
	f.join(rendered("rendered-asked-1", "/etc/a=1"), all[0])
	f.verifies(g, deploytest.Policy(g.Addr, deploytest.Required(key)))
	f.through(func(o *daemon.Options) { o.Verify = f.verify })
	g.Spoil(deploytest.Status(503))
	f.aim(rendered("rendered-asked-2", "/etc/a=2"), all[1])
	err := f.fails()
	assert.Equal(t, deploy.ClassRegistry, deploy.ClassOf(err), err)
	assert.Empty(t, f.m.staged)
	g.Spoil(nil)
	f.settle()
	assert.Equal(t, all[1], f.m.booted)
}

func TestAnImageWithoutASignatureIsNotPrefetched(t *testing.T) {
	f := newFixture(t)
	f.join(rendered("rendered-ahead-signed", "/etc/a=1"), image(1))
	g, key := deploytest.StartRegistry(t), deploytest.NewKey(t)
	s := newStore(t, f.m, g)
	f.verifies(g, deploytest.Policy(g.Addr, deploytest.Required(key)))
	f.through(func(o *daemon.Options) { o.Deployer, o.Verify = s, f.verify })
	all := images(t, g, 2)
	g.Sign(t, key, all[1], all[1])
	f.ask(all[0])
	f.stepUntil("refused", func(n *corev1.Node) bool { return n.Annotations[manifests.AnnotationPrefetchError] != "" })
	assert.Contains(t, f.object().Annotations[manifests.AnnotationPrefetchError], "no signature exists")
	layers, have := s.refs()
	assert.Equal(t, []int{0, 0}, []int{layers, have}, "nothing of it came")
	f.ask(all[1])
	f.stepUntil("the signed one is there", prefetched(all[1]))
	// Its registry is away when the node's turn comes.
	g.Spoil(deploytest.Status(503))
	image, err := deploy.ParseImage(all[1])
	require.NoError(t, err)
	require.NoError(t, f.verify(t.Context(), image))
	var fault *deploy.Fault
	image.Repository += "-other"
	require.True(t, errors.As(f.verify(t.Context(), image), &fault))
}
