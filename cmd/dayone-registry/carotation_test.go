package main

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	ctrlclient "sigs.k8s.io/controller-runtime/pkg/client"

	"dayone.dev/dayone/hack/program"
	"dayone.dev/dayone/manifests"
	"dayone.dev/dayone/manifests/assets/cluster"
	"dayone.dev/dayone/manifests/render"
	"dayone.dev/dayone/rebase/daemon/trustfiles"
	"dayone.dev/dayone/rebase/fleet/registrystatus"
	"dayone.dev/dayone/registry"
	"dayone.dev/dayone/registry/authority"
	"dayone.dev/dayone/registry/certs"
	"dayone.dev/dayone/registry/credentials"
	"dayone.dev/dayone/registry/forwarder"
	"dayone.dev/dayone/registry/peers"
	"dayone.dev/dayone/registry/poolaccounts"
)

// TestRotationOfTheCA: the controller replaces the CA of registries that run as programs of their own. Controllers die
// between any two of their writes, and registries die at any time. Nodes pull through their forwarders without a pause,
// and no pull fails. A node is away; it is waited for, left out, and pulls again when it is back.
func TestRotationOfTheCA(t *testing.T) {
	if testing.Short() {
		t.Skip("needs a real kube-apiserver, which is left out with -short")
	}
	w := newCAWorld(t)
	before := w.secret().Data[poolaccounts.SharedCA]
	w.goes("w1", false)
	w.nodes["i0"].lags.Store(true) // it pulls
	endChaos := w.chaos()
	w.askCA(authority.Request{Asked: "leaked"})
	kills := w.killedAtRandom(func() bool {
		text := w.caCondition()
		return strings.Contains(text, "node w1: it has not said that it trusts the next CA; the node is off") &&
			strings.Contains(text, "node i0: it has not said that it trusts the next CA: see")
	})
	w.ahead.Store(int64(20 * time.Minute)) // as long as no agent of a node in its first boot could say anything
	w.askCA(authority.Request{Asked: "another administrator"})
	w.nobodyElse()
	_, stop := w.control(1 << 30)
	pulls := w.pulls.Load()
	require.Eventually(t, func() bool { return w.pulls.Load() > pulls+300 }, rotationLimit, 100*time.Millisecond)
	stop()
	p := w.published()
	require.Equal(t, authority.Trusting, p.CA.Rotation.Step, "one node is away and one lags, and neither is left behind")
	require.Equal(t, "CA", p.CA.Name)

	w.askCA(authority.Request{Asked: "leaked", Without: []string{"w1"}})
	w.nodes["i0"].lags.Store(false)
	kills += w.killedAtRandom(func() bool { return strings.HasPrefix(w.caCondition(), "True Current: CA \"CA-2\"") })
	died := endChaos()
	t.Logf("%d kills of controllers, %d of registries, %d pulls", kills, died, w.pulls.Load())
	assert.Positive(t, died)
	for _, h := range w.hosts {
		h.answers(t)
		file := filepath.Join(t.TempDir(), "ca.crt")
		require.NoError(t, os.WriteFile(file, []byte(w.published().CA.Trusted), 0o600))
		assert.Equal(t, "CA-2", issuer(t, file, h.addr), h.node)
		require.NoError(t, os.WriteFile(file, before, 0o600))
		assert.Empty(t, issuer(t, file, h.addr), "who trusts only the CA before gets nothing")
	}
	assert.Equal(t, []string{"w1"}, w.published().CA.Behind)
	assert.Equal(t, string(w.bundle()), w.published().CA.Trusted, "builds and new nodes trust the new one alone")

	_, stop = w.control(1 << 30)
	defer stop()
	w.goes("w1", true)
	w.catchesUp("w1")
	w.keysAreNowhere()
	w.oldFiles(before)
}

// newCAWorld is a control plane whose registries have their CA from the Secret alone.
func newCAWorld(t *testing.T) *caWorld {
	at := filepath.Join(t.TempDir(), "dayone-registry")
	require.NoError(t, program.Build(t.Context(), "../..", program.Options{
		Package: "dayone.dev/dayone/cmd/dayone-registry"}, at))
	f := newFleetOf(t, 3)
	w := &caWorld{program: at, processes: map[string]*exec.Cmd{}, forwarders: map[string]*through{}}
	for _, h := range f.hosts {
		w.launch(t, h)
		t.Cleanup(func() { w.kill(h) })
	}
	w.accountsWorld = newAccountsWorldOf(t, f, shared.New(t))
	w.pulling = w.pullThrough
	ca, err := os.ReadFile(filepath.Join(w.shared, certs.CACertFile))
	require.NoError(t, err)
	w.create(&mcfgv1.ControllerConfig{ObjectMeta: metav1.ObjectMeta{Name: render.ControllerConfigName,
		Annotations: map[string]string{manifests.AnnotationStandalone: ""}},
		Spec: mcfgv1.ControllerConfigSpec{ImageRegistryBundleData: []mcfgv1.ImageRegistryBundle{},
			ImageRegistryBundleUserData: []mcfgv1.ImageRegistryBundle{{File: strings.ReplaceAll(sharedName, ":", ".."),
				Data: ca}},
			Images: map[string]string{}, KubeAPIServerServingCAData: []byte("#"), RootCAData: []byte("#"),
			ReleaseImage: "release", IPFamilies: mcfgv1.IPFamiliesIPv4}})
	w.run()
	w.writeShared()
	_, stop := w.control(1 << 30)
	w.reports("every ready control-plane node has the CA")
	w.haveAccounts()
	w.says("True Current: ")
	stop()
	for _, h := range w.hosts {
		require.NoError(t, os.Remove(filepath.Join(h.config, usersFile)))
		require.NoError(t, os.Remove(filepath.Join(h.config, certs.CAKeyFile)))
	}
	return w
}

type caWorld struct {
	*accountsWorld
	program string

	mu         sync.Mutex
	processes  map[string]*exec.Cmd
	forwarders map[string]*through
}

// through is a node's forwarder and what its clients need.
type through struct {
	client
	address atomic.Pointer[string]
}

// launch starts a registry as a node's unit does.
func (w *caWorld) launch(t *testing.T, h host) {
	c := exec.Command(w.program, "--config", h.config, "--root", filepath.Join(h.dir, "root"), "--state", h.state(),
		"--listen", h.addr, "--peers", filepath.Join(h.dir, "peers.json"), "--node", h.node, "--min-free", "0",
		"--auth", filepath.Join(h.dir, poolaccounts.AuthPath))
	require.NoError(t, c.Start())
	w.processes[h.node] = c
	h.answers(t)
}

func (w *caWorld) kill(h host) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if c := w.processes[h.node]; c != nil {
		_ = c.Process.Kill() // it is killed once
		_ = c.Wait()         // it says that it was killed
	}
}

// chaos kills registries, one after the other, and starts each again, until end is called.
func (w *caWorld) chaos() (end func() int) {
	ctx, cancel := context.WithCancel(w.t.Context())
	var work sync.WaitGroup
	kills := 0
	work.Go(func() {
		for ctx.Err() == nil {
			h := w.hosts[rand.IntN(len(w.hosts))]
			w.kill(h)
			kills++
			w.launch(w.t, h)
			select {
			case <-ctx.Done():
			case <-time.After(time.Duration(rand.IntN(5000)) * time.Millisecond):
			}
		}
	})
	return func() int { cancel(); work.Wait(); return kills }
}

// killedAtRandom runs controllers that die after a few writes, until done.
func (w *caWorld) killedAtRandom(done func() bool) (kills int) {
	w.t.Helper()
	deadline := time.Now().Add(2 * rotationLimit)
	for !done() {
		require.True(w.t, time.Now().Before(deadline), "after %d kills: %s", kills, w.caCondition())
		ended, stop := w.control(int64(rand.IntN(4)))
		for alive := true; alive && !done(); {
			select {
			case <-ended:
				kills++
				alive = false
			case <-time.After(100 * time.Millisecond):
			}
		}
		stop()
	}
	return kills
}

// trusts is the part of an agent that brings a node the cluster's CAs, and what it says of them.
func (w *accountsWorld) trusts(ctx context.Context, n *playedNode) []string {
	var c mcfgv1.ControllerConfig
	if w.env.Client.Get(ctx, types.NamespacedName{Name: render.ControllerConfigName}, &c) != nil {
		return nil
	}
	if _, err := trustfiles.Of(&c).Apply(n.root, func(string) bool { return false }); ctx.Err() == nil {
		assert.NoError(w.t, err)
	}
	return certs.Trusts(n.root, sharedName)
}

// pullThrough is what the programs of a node do: they pull through its forwarder, which finds a registry that works.
func (w *caWorld) pullThrough(ctx context.Context, n *playedNode) {
	own := &through{client: client{w.t.TempDir()}}
	list, err := peers.Read(filepath.Join(w.hosts[0].dir, "peers.json"))
	if !assert.NoError(w.t, err) || !assert.NoError(w.t, os.MkdirAll(filepath.Dir(filepath.Join(n.root, peers.Path)),
		0o755)) || !assert.NoError(w.t, list.Write(filepath.Join(n.root, peers.Path))) {
		return
	}
	account := credentials.Account{Username: "forwarder", Password: "p"}
	dirs := certs.RegistryDirs()
	for i := range dirs {
		dirs[i] = filepath.Join(n.root, dirs[i])
	}
	f, err := forwarder.New(forwarder.Options{Node: n.name, PeersFile: filepath.Join(n.root, peers.Path), CertsDirs: dirs,
		AuthFiles: []string{filepath.Join(n.dir, poolaccounts.AuthPath), filepath.Join(n.dir, registry.PullAuthFile)},
		Listen:    "127.0.0.1:0", Account: account, Serving: func(m forwarder.Mirror) error {
			auth, err := credentials.Encode(account, sharedName)
			if err != nil || m == (forwarder.Mirror{}) {
				return err
			}
			for name, content := range map[string][]byte{registry.PullAuthFile: auth, certs.CACertFile: []byte(m.CA)} {
				if err := credentials.Write(filepath.Join(own.dir, name), content); err != nil {
					return err
				}
			}
			own.address.Store(&m.Address)
			return nil
		}})
	if !assert.NoError(w.t, err) {
		return
	}
	var work sync.WaitGroup
	defer work.Wait()
	work.Go(func() { assert.NoError(w.t, f.Run(ctx)) })
	for ; ctx.Err() == nil; time.Sleep(100 * time.Millisecond) {
		at := own.address.Load()
		if at == nil || n.off.Load() || len(certs.Trusts(n.root, sharedName)) == 0 {
			continue
		}
		err := own.pull(*at, *w.image.Load())
		if ctx.Err() == nil && !n.off.Load() && !assert.NoError(w.t, err, "%s pulls", n.name) {
			return
		}
		w.pulls.Add(1)
	}
}

// goes lets a node go away, or come back.
func (w *caWorld) goes(name string, on bool) {
	w.t.Helper()
	n := w.nodes[name]
	if on { // its agent works before anything pulls
		n.lags.Store(false)
	} else {
		n.off.Store(true)
		n.lags.Store(true)
	}
	var o corev1.Node
	require.NoError(w.t, w.env.Client.Get(w.t.Context(), types.NamespacedName{Name: name}, &o))
	o.Status.Conditions[0].Status = corev1.ConditionFalse
	if on {
		o.Status.Conditions[0].Status = corev1.ConditionTrue
	}
	require.NoError(w.t, w.env.Client.Status().Update(w.t.Context(), &o))
}

// catchesUp: a node that was away gets the CA by its agent, and pulls.
func (w *caWorld) catchesUp(name string) {
	w.t.Helper()
	require.Eventually(w.t, func() bool { return len(w.published().CA.Behind) == 0 }, rotationLimit, 200*time.Millisecond)
	w.nodes[name].off.Store(false)
	pulls := w.pulls.Load()
	require.Eventually(w.t, func() bool { return w.pulls.Load() > pulls+50 }, rotationLimit, 100*time.Millisecond)
}

func (w *caWorld) secret() *corev1.Secret {
	w.t.Helper()
	var s corev1.Secret
	require.NoError(w.t, w.env.Client.Get(w.t.Context(), types.NamespacedName{Namespace: cluster.DefaultNamespace,
		Name: cluster.RegistryShared}, &s))
	return &s
}

func (w *caWorld) published() *registrystatus.Published {
	w.t.Helper()
	p, err := registrystatus.ReadPublished(w.t.Context(), w.env.Client, cluster.DefaultNamespace)
	require.NoError(w.t, err)
	require.NotNil(w.t, p.CA)
	return p
}

func (w *caWorld) bundle() []byte {
	w.t.Helper()
	var c mcfgv1.ControllerConfig
	require.NoError(w.t, w.env.Client.Get(w.t.Context(), types.NamespacedName{Name: render.ControllerConfigName}, &c))
	return c.Spec.ImageRegistryBundleUserData[0].Data
}

func (w *caWorld) askCA(r authority.Request) {
	w.t.Helper()
	text, err := r.Encode()
	require.NoError(w.t, err)
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"annotations": map[string]string{
		manifests.AnnotationRotateCA: text}}})
	require.NoError(w.t, err)
	require.NoError(w.t, w.env.Client.Patch(w.t.Context(), &corev1.Secret{ObjectMeta: metav1.ObjectMeta{
		Namespace: cluster.DefaultNamespace, Name: cluster.RegistryShared}},
		ctrlclient.RawPatch(types.MergePatchType, patch)))
}

// caCondition is the one of the CA, as text.
func (w *caWorld) caCondition() string {
	p, err := registrystatus.ReadPublished(w.t.Context(), w.env.Client, cluster.DefaultNamespace)
	if err != nil {
		return ""
	}
	at := slices.IndexFunc(p.Conditions, func(c metav1.Condition) bool { return c.Type == registrystatus.ConditionCA })
	if at < 0 {
		return ""
	}
	c := p.Conditions[at]
	return fmt.Sprintf("%s %s: %s", c.Status, c.Reason, c.Message)
}

// keysAreNowhere: no object but the Secret has a key of any CA.
func (w *caWorld) keysAreNowhere() {
	w.t.Helper()
	_, key, _ := strings.Cut(string(w.secret().Data[poolaccounts.SharedCA]), "PRIVATE KEY-----\n")
	line := strings.Split(key, "\n")[0]
	require.Greater(w.t, len(line), 40)
	var nodes corev1.NodeList
	var maps corev1.ConfigMapList
	require.NoError(w.t, w.env.Client.List(w.t.Context(), &nodes))
	require.NoError(w.t, w.env.Client.List(w.t.Context(), &maps))
	text := fmt.Sprint(nodes.Items, maps.Items)
	assert.Contains(w.t, text, w.published().CA.Fingerprint, "this would find it")
	assert.NotContains(w.t, text, line)
	assert.NotContains(w.t, text, w.secretLine())
}

// oldFiles: an administrator applies files of before the rotation, or damaged ones: the registries go on.
func (w *caWorld) oldFiles(before []byte) {
	w.t.Helper()
	now := w.secret().Data[poolaccounts.SharedCA]
	for name, ca := range map[string][]byte{"of before": before, "damaged": []byte("canary")} {
		s := w.secret()
		s.Data[poolaccounts.SharedCA] = ca
		require.NoError(w.t, w.env.Client.Update(w.t.Context(), s))
		w.annotate(w.pool("worker"), name) // Secrets are not watched; the next look is soon enough for people
		require.Eventually(w.t, func() bool { return string(w.secret().Data[poolaccounts.SharedCA]) == string(now) },
			rotationLimit, 200*time.Millisecond, name)
	}
	s := w.secret()
	s.Data[poolaccounts.SharedCA], s.Data["ca-rotation.json"] = []byte("canary"), nil
	require.NoError(w.t, w.env.Client.Update(w.t.Context(), s))
	w.annotate(w.pool("worker"), "nothing is left")
	w.reports("Unusable", "ca.pem is no CA with its key", "False")
	assert.NotContains(w.t, w.conditions(), "canary")
	for _, h := range w.hosts {
		assert.Equal(w.t, string(now), poolaccounts.ReadShared(h.state()).CA, "registries keep what they have")
	}
}
