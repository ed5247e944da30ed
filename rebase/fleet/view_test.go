package fleet

import (
	"context"
	"fmt"
	"os"
	"testing"
	"time"

	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"dayone.dev/dayone/hack/kube/kubetest"
)

var shared kubetest.Shared

func TestMain(m *testing.M) { os.Exit(shared.Main(m, kubetest.Options{})) }

func TestTheCachesOwnObjectsComeByName(t *testing.T) {
	store := toolscache.NewStore(toolscache.MetaNamespaceKeyFunc)
	node := func(name, version string) *corev1.Node {
		return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, ResourceVersion: version}}
	}
	k := &kept[*corev1.Node]{store: store}
	assert.Empty(t, k.all())
	c, a, b := node("c", "1"), node("a", "1"), node("b", "1")
	for _, n := range []*corev1.Node{c, a, b} {
		require.NoError(t, store.Add(n))
	}
	same := func(want ...*corev1.Node) {
		t.Helper()
		got := k.all()
		require.Len(t, got, len(want))
		for i := range want {
			assert.Same(t, want[i], got[i], "no copy")
		}
	}
	same(a, b, c)
	newer := node("b", "2")
	require.NoError(t, store.Update(newer))
	same(a, newer, c)
	require.NoError(t, store.Delete(a))
	same(newer, c)
	d := node("d", "1")
	require.NoError(t, store.Delete(c))
	require.NoError(t, store.Add(d)) // as many as before
	same(newer, d)
}

// TestACachedViewSeesWhatAPlainOneSees compares both on a real API server.
func TestACachedViewSeesWhatAPlainOneSees(t *testing.T) {
	env := shared.Env(t)
	for i := range 3 {
		name := fmt.Sprintf("fleet-%d", 2-i)
		for _, o := range []client.Object{&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}},
			&mcfgv1.MachineConfigNode{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: mcfgv1.MachineConfigNodeSpec{
				Node: mcfgv1.MCOObjectReference{Name: name}, Pool: mcfgv1.MCOObjectReference{Name: "fleet"},
				ConfigVersion: mcfgv1.MachineConfigNodeSpecMachineConfigVersion{Desired: "rendered-fleet-1"}}}} {
			require.NoError(t, env.Client.Create(t.Context(), o))
		}
	}
	require.NoError(t, env.Client.Create(t.Context(),
		&mcfgv1.MachineConfigPool{ObjectMeta: metav1.ObjectMeta{Name: "fleet"}, Spec: mcfgv1.MachineConfigPoolSpec{
			NodeSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"fleet": ""}}}}))
	kept, err := cache.New(env.Config, cache.Options{Scheme: env.Scheme})
	require.NoError(t, err)
	cached, err := Cached(kept)
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- kept.Start(ctx) }()
	t.Cleanup(func() { cancel(); assert.NoError(t, <-ended) })
	require.True(t, kept.WaitForCacheSync(ctx))
	look := func(v *View) (pools int, out []string) {
		c, err := v.Cluster(t.Context())
		require.NoError(t, err)
		for _, n := range c.Nodes {
			out = append(out, n.Name+" "+n.ResourceVersion)
		}
		for _, r := range c.Records {
			out = append(out, r.Name+" "+r.ResourceVersion+" "+r.Spec.ConfigVersion.Desired)
		}
		return len(c.Pools), out
	}
	plain := New(env.Client)
	_, want := look(plain)
	require.Len(t, want, 6)
	for _, change := range []func(){
		func() {},
		func() {
			require.NoError(t, env.Client.Delete(t.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "fleet-1"}}))
		},
		func() {
			require.NoError(t, env.Client.Create(t.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "fleet-9"}}))
		},
	} {
		change()
		require.EventuallyWithT(t, func(c *assert.CollectT) {
			wantPools, want := look(plain)
			pools, got := look(cached)
			assert.Equal(c, wantPools, pools)
			assert.Equal(c, want, got)
		}, time.Minute, 20*time.Millisecond)
	}
}
