package main

import (
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	ctrlclient "sigs.k8s.io/controller-runtime/pkg/client"

	"dayone.dev/dayone/manifests"
	"dayone.dev/dayone/registry/certs"
	"dayone.dev/dayone/registry/wanted"
)

// ready says whether a node's kubelet reports.
func (w *accountsWorld) ready(node string, status corev1.ConditionStatus) {
	w.t.Helper()
	var n corev1.Node
	require.NoError(w.t, w.env.Client.Get(w.t.Context(), types.NamespacedName{Name: node}, &n))
	before := n.DeepCopy()
	n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: status}}
	require.NoError(w.t, w.env.Client.Status().Patch(w.t.Context(), &n, ctrlclient.MergeFrom(before)))
}

// runs is what a node's agent says of its image.
func (w *accountsWorld) runs(node string, image wanted.Image) {
	w.t.Helper()
	patch := `{"metadata":{"annotations":{"` + manifests.AnnotationCurrentImage + `":"` + sharedName + "/" + image.Name() +
		`"}}}`
	require.NoError(w.t, w.env.Client.Patch(w.t.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: node}},
		ctrlclient.RawPatch(types.MergePatchType, []byte(patch))))
}

// TestANodeThatWasOffForAMonth: while a worker is off its build is deleted, every registry lets its image go, and the
// controller replaces its pool's account without waiting for it. Builds and conditions do not wait for its image; the
// node is named. When it is back it takes the account from the API and pulls its pool's present image from every
// registry.
func TestANodeThatWasOffForAMonth(t *testing.T) {
	if testing.Short() {
		t.Skip("needs a real kube-apiserver, which is left out with -short")
	}
	w := newAccountsWorld(t)
	w.run()
	_, stop := w.control(1 << 30)
	defer stop()
	w.says("True Current: ")
	w.haveAccounts()
	old := *w.image.Load()
	build := w.built("old", old)
	w.runs("w1", old)
	w.everywhere(old)
	w.reports("AllHeld", "1 images are in the registries of 3 ready", "AsExpected")

	n, was := w.nodes["w1"], w.nodes["w1"].account(t)
	n.lags.Store(true)
	n.off.Store(true)
	w.ready("w1", corev1.ConditionUnknown)
	next := w.client.push(t, w.hosts[1].addr)
	w.built("next", next)
	w.everywhere(next)
	w.image.Store(&next)
	require.NoError(t, w.env.Client.Delete(t.Context(), build))
	w.annotate(w.pool("worker"), "a month later")
	w.refused(was)
	w.says("True Current: ")
	w.reports("AllHeld", "1 images are in", "node w1 names "+sharedName+"/"+old.Name())
	for _, h := range w.hosts {
		require.Eventually(t, func() bool { return w.drop(h, old) == nil }, rotationLimit, 200*time.Millisecond)
	}
	w.reports("AllHeld", "1 images are in")

	require.Error(t, n.pull(w.hosts[0].addr, next), "it has the account of then")
	w.ready("w1", corev1.ConditionTrue)
	n.lags.Store(false)
	require.Eventually(t, func() bool { return n.account(t) == w.nodes["w0"].account(t) }, rotationLimit,
		200*time.Millisecond)
	n.off.Store(false)
	for _, h := range w.hosts {
		require.Eventually(t, func() bool { return n.pull(h.addr, next) == nil }, rotationLimit, 200*time.Millisecond)
	}
	w.runs("w1", next)
	w.reports("AllHeld", "1 images are in", "AsExpected")
}

// TestARegistryThatWasOffForAYear: its certificate has ended while it was off.
func TestARegistryThatWasOffForAYear(t *testing.T) {
	f := newFleetOf(t, 1)
	h := f.hosts[0]
	// The shared CA is young, so the certificate ends early instead.
	ca, err := certs.LoadCA(filepath.Join(h.config, certs.CACertFile), filepath.Join(h.config, certs.CAKeyFile), nil)
	require.NoError(t, err)
	ended, err := ca.ServerCertificate([]string{"127.0.0.1"}, certs.ServerOptions{Validity: time.Nanosecond})
	require.NoError(t, err)
	crt, key := filepath.Join(h.config, "server.crt"), filepath.Join(h.config, "server.key")
	require.NoError(t, certs.WriteKeyPair(ended, crt, key))
	require.Error(t, certs.CheckServer(ended, time.Now()))
	stop := h.start(t)
	image := f.client.push(t, h.addr)
	assert.NoError(t, f.client.pull(h.addr, image))
	_, err = certs.LoadServer(crt, key, time.Now().AddDate(0, 11, 0))
	assert.NoError(t, err, "it made another one for a year")
	require.NoError(t, stop())
}
