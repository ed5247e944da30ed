package daemon_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"dayone.dev/dayone/manifests"
)

// pins stands in for the node's image store, which pinnedimages tests with podman: it keeps what the agent gives it,
// or refuses.
type pins struct {
	mu     sync.Mutex
	images []string
	refuse error
	calls  int
}

func (p *pins) Pin(_ context.Context, images []string) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.calls++
	if p.refuse != nil {
		return p.refuse
	}
	p.images = images
	return nil
}

func (p *pins) refuses(err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.refuse = err
}

func (p *pins) has() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.images)
}

func (p *pins) count() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.calls
}

// pinnedSet makes a PinnedImageSet of images by number.
func (f *fixture) pinnedSet(name string, images ...int) *mcfgv1.PinnedImageSet {
	f.Helper()
	set := &mcfgv1.PinnedImageSet{ObjectMeta: metav1.ObjectMeta{Name: name, Generation: 1}} // as the API counts
	for _, n := range images {
		set.Spec.PinnedImages = append(set.Spec.PinnedImages, mcfgv1.PinnedImageRef{Name: mcfgv1.ImageDigestFormat(image(n))})
	}
	f.create(set)
	return set
}

// pins changes the pool's sets.
func (f *fixture) pins(pool string, sets ...string) {
	f.Helper()
	p := f.pool(pool)
	p.Spec.PinnedImageSets = nil
	for _, s := range sets {
		p.Spec.PinnedImageSets = append(p.Spec.PinnedImageSets, mcfgv1.PinnedImageSetRef{Name: s})
	}
	require.NoError(f, f.env.Client.Update(f.Context(), p))
}

func (f *fixture) pool(name string) *mcfgv1.MachineConfigPool {
	f.Helper()
	p := &mcfgv1.MachineConfigPool{}
	require.NoError(f, f.env.Client.Get(f.Context(), client.ObjectKey{Name: name}, p))
	return p
}

func (f *fixture) nodeRecord() *mcfgv1.MachineConfigNode {
	f.Helper()
	n := &mcfgv1.MachineConfigNode{}
	require.NoError(f, f.env.Client.Get(f.Context(), client.ObjectKey{Name: f.name}, n))
	return n
}

// comes lets controller and agent go on until something holds.
func (f *fixture) comes(pool string, what string, holds func() bool) {
	f.Helper()
	require.Eventually(f, func() bool {
		_, err := f.nodes.Reconcile(f.Context(), reconcile.Request{NamespacedName: client.ObjectKey{Name: pool}})
		require.NoError(f, err)
		require.NoError(f, f.step())
		return holds()
	}, time.Minute, 50*time.Millisecond, what)
}

// TestPinnedImages follows PinnedImageSets from the pool to the node and back: the real controller and the real agent
// on a real API server, each with its own rights.
func TestPinnedImages(t *testing.T) {
	f := newFixture(t)
	store := &pins{}
	f.pinner = store
	f.restart()
	mc := rendered("rendered-pins-1", "/etc/a=1")
	role := map[string]string{"node-role.kubernetes.io/" + f.name: ""}
	pool := &mcfgv1.MachineConfigPool{ObjectMeta: metav1.ObjectMeta{Name: "pins"}, Spec: mcfgv1.MachineConfigPoolSpec{
		NodeSelector: &metav1.LabelSelector{MatchLabels: role}, Configuration: mcfgv1.MachineConfigPoolStatusConfiguration{
			ObjectReference: corev1.ObjectReference{Name: mc.Name}}}}
	f.create(pool)
	f.join(mc, "")
	first := f.pinnedSet("pins-first", 1, 2)
	f.pinnedSet("pins-second", 3)

	f.pins("pins", "pins-second", "pins-first")
	f.comes("pins", "both sets are there", func() bool { return len(store.has()) == 3 })
	assert.Equal(t, []string{image(3), image(1), image(2)}, store.has(), "in the pool's order")
	f.comes("pins", "the node says so", func() bool {
		return f.object().Annotations[manifests.AnnotationPinnedImageSetsDone] == "pins-second=1,pins-first=1"
	})
	f.comes("pins", "its MachineConfigNode says so", func() bool {
		return len(f.nodeRecord().Status.PinnedImageSets) == 2 &&
			f.nodeRecord().Status.PinnedImageSets[0].CurrentGeneration == 1
	})
	status := f.nodeRecord().Status
	assert.True(t, meta.IsStatusConditionFalse(status.Conditions, "PinnedImageSetsDegraded"))
	assert.True(t, meta.IsStatusConditionFalse(status.Conditions, "PinnedImageSetsProgressing"))
	calls := store.count()
	f.comes("pins", "nothing to do", func() bool { return true })
	assert.Equal(t, calls, store.count(), "nothing new, nothing done")

	store.refuses(errors.New("no room for it"))
	first.Spec.PinnedImages = first.Spec.PinnedImages[:1]
	first.Generation = 2
	require.NoError(t, f.env.Client.Update(t.Context(), first))
	f.comes("pins", "the pool is degraded", func() bool { return degraded(f.pool("pins")) != "" })
	assert.Contains(t, degraded(f.pool("pins")), "node "+f.name+": no room for it")
	f.comes("pins", "its MachineConfigNode has the failure", func() bool {
		sets := f.nodeRecord().Status.PinnedImageSets
		return len(sets) == 2 && sets[1].LastFailedGeneration == 2 && sets[1].CurrentGeneration == 1
	})
	assert.Len(t, store.has(), 3, "what was pinned stays so")
	assert.Equal(t, "Done", string(f.record().State), "an update may come all the same")

	store.refuses(nil)
	f.pins("pins", "pins-first")
	f.comes("pins", "the pool is well again", func() bool { return degraded(f.pool("pins")) == "" })
	assert.Equal(t, []string{image(1)}, store.has())

	// A set that is made anew begins with generation 1.
	require.NoError(t, f.env.Client.Delete(t.Context(), first))
	f.comes("pins", "a set that is not there is named", func() bool {
		return strings.Contains(degraded(f.pool("pins")), "there is no PinnedImageSet pins-first")
	})
	f.pinnedSet("pins-first", 4)
	f.comes("pins", "the new set is there", func() bool { return slices.Equal(store.has(), []string{image(4)}) })
	f.comes("pins", "its MachineConfigNode has its generation", func() bool {
		sets := f.nodeRecord().Status.PinnedImageSets
		return len(sets) == 1 && sets[0].DesiredGeneration == 1 && sets[0].CurrentGeneration == 1
	})

	f.pins("pins")
	f.comes("pins", "nothing is pinned", func() bool { return len(store.has()) == 0 })
	f.comes("pins", "the node says so", func() bool {
		_, says := f.object().Annotations[manifests.AnnotationPinnedImageSetsDone]
		return !says && len(f.nodeRecord().Status.PinnedImageSets) == 0
	})
}

// degraded is why the pool's images are not pinned; empty: they are.
func degraded(pool *mcfgv1.MachineConfigPool) string {
	why := ""
	for _, c := range pool.Status.Conditions {
		if c.Type == mcfgv1.MachineConfigPoolPinnedImageSetsDegraded && c.Status == corev1.ConditionTrue {
			why = c.Message
		}
	}
	return why
}

// TestNodesWithoutSetsAreLeftAlone holds that a node which nobody has asked for images does nothing and says nothing.
func TestNodesWithoutSetsAreLeftAlone(t *testing.T) {
	f := newFixture(t)
	store := &pins{}
	f.pinner = store
	f.restart()
	f.join(rendered("rendered-no-pins-1"), "")
	for range 3 {
		require.NoError(t, f.step())
	}
	assert.Zero(t, store.count())
}

// slowPins is an image store that pulls until it is stopped.
type slowPins struct{ begun, ended chan struct{} }

func (p slowPins) Pin(ctx context.Context, _ []string) error {
	p.begun <- struct{}{}
	<-ctx.Done()
	p.ended <- struct{}{}
	return ctx.Err()
}

// Images are pulled while the node is idle, in one go; an update has the line for itself.
func TestAnUpdateEndsPinning(t *testing.T) {
	f := newFixture(t)
	p := slowPins{make(chan struct{}, 10), make(chan struct{}, 10)}
	f.pinner = p
	f.restart()
	f.join(rendered("rendered-slow-1", "/etc/a=1"), image(1))
	f.pinnedSet("slow", 1)
	f.annotate(manifests.AnnotationPinnedImageSets, "slow=1")
	for range 4 {
		require.NoError(t, f.step())
	}
	<-p.begun
	assert.Empty(t, p.ended, "it is not begun anew with each look")
	f.aim(rendered("rendered-slow-2", "/etc/a=2"), image(2))
	require.NoError(t, f.step())
	require.NoError(t, f.step())
	<-p.ended
	assert.Empty(t, p.begun)
	f.settle()
	assert.Equal(t, image(2), f.m.booted)
}

func TestPinningThatFailsIsTriedAgainLater(t *testing.T) {
	f := newFixture(t)
	clock := time.Now()
	f.now = func() time.Time { return clock }
	store := &pins{}
	store.refuses(errors.New("no room for it"))
	f.pinner = store
	f.restart()
	f.join(rendered("rendered-later-1"), "")
	f.pinnedSet("later", 1)
	f.annotate(manifests.AnnotationPinnedImageSets, "later=1")
	says := func() string { return f.object().Annotations[manifests.AnnotationPinnedImageSetsError] }
	until := func(holds func() bool) {
		require.Eventually(t, func() bool { require.NoError(t, f.step()); return holds() }, time.Minute, time.Millisecond)
	}
	until(func() bool { return says() == "no room for it" })
	for range 3 {
		require.NoError(t, f.step())
	}
	assert.Equal(t, 1, store.count(), "not with each look")
	store.refuses(nil)
	clock = clock.Add(time.Hour)
	until(func() bool { return says() == "" })
	assert.Equal(t, 2, store.count())
	assert.Equal(t, "later=1", f.object().Annotations[manifests.AnnotationPinnedImageSetsDone])
}
