package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	ctrlclient "sigs.k8s.io/controller-runtime/pkg/client"

	"dayone.dev/dayone/bootstrap/clusterregistry"
	"dayone.dev/dayone/manifests"
	"dayone.dev/dayone/manifests/assets/cluster"
	"dayone.dev/dayone/registry"
	"dayone.dev/dayone/registry/certs"
	"dayone.dev/dayone/registry/credentials"
	"dayone.dev/dayone/registry/poolaccounts"
	"dayone.dev/dayone/registry/rotation"
	"dayone.dev/dayone/registry/wanted"
)

// TestTheCAComesSealed: registries that have the CA's key from a MachineConfig get it sealed, with a kill of the
// controller between any two of its writes; then the MachineConfig loses it. Nodes pull all the time, and no pull
// fails. A node that comes, or is made anew, gets the key; a worker never does.
func TestTheCAComesSealed(t *testing.T) {
	if testing.Short() {
		t.Skip("needs a real kube-apiserver, which is left out with -short")
	}
	w := newAccountsWorld(t)
	w.run()
	w.writeShared()
	current := func() bool {
		return strings.Contains(w.conditions(), "every ready control-plane node has the CA") &&
			strings.HasPrefix(w.condition(), "True Current: ")
	}
	kills := w.killed(current)
	t.Logf("%d kills, %d pulls", kills, w.pulls.Load())
	for _, h := range w.hosts { // as the MachineConfig of an agents' cluster
		require.NoError(t, os.Remove(filepath.Join(h.config, usersFile)))
		require.NoError(t, os.Remove(filepath.Join(h.config, certs.CAKeyFile)))
	}
	w.coldStart()
	w.nobodyElse()
	_, stop := w.control(1 << 30)
	defer stop()
	w.anotherNode()
	w.rotates()
	t.Logf("%d pulls", w.pulls.Load())
}

// writeShared is what an administrator, or the hand-over, applies.
func (w *accountsWorld) writeShared() {
	w.t.Helper()
	shared, err := clusterregistry.Load(w.shared, sharedName)
	require.NoError(w.t, err)
	next := shared.Secret()
	if err := w.env.Client.Create(w.t.Context(), next); apierrors.IsAlreadyExists(err) {
		var have corev1.Secret
		require.NoError(w.t, w.env.Client.Get(w.t.Context(), ctrlclient.ObjectKeyFromObject(next), &have))
		next.ResourceVersion = have.ResourceVersion
		require.NoError(w.t, w.env.Client.Update(w.t.Context(), next))
	} else {
		require.NoError(w.t, err)
	}
}

// coldStart ends all registries, without a controller, and starts them again by what their disks have.
func (w *accountsWorld) coldStart() {
	w.t.Helper()
	for _, n := range w.nodes {
		n.off.Store(true)
	}
	for _, h := range w.hosts {
		require.NoError(w.t, w.stop[h.node]())
	}
	for _, h := range w.hosts {
		w.start(w.t, h)
		require.NoError(w.t, w.client.pull(h.addr, *w.image.Load()))
	}
	for _, n := range w.nodes {
		n.off.Store(false)
	}
}

// secretLine is the part of the CA's key that tells it from other keys.
func (w *accountsWorld) secretLine() string {
	raw, err := os.ReadFile(filepath.Join(w.shared, certs.CAKeyFile))
	require.NoError(w.t, err)
	return strings.Split(string(raw), "\n")[1]
}

// nobodyElse: workers have neither the key nor a right to it, and it is in no object but the Secret.
func (w *accountsWorld) nobodyElse() {
	w.t.Helper()
	key := types.NamespacedName{Namespace: cluster.DefaultNamespace, Name: cluster.RegistryShared}
	for _, account := range []string{cluster.Daemon, cluster.ConfigServer} {
		c := w.env.ClientAs(w.t, cluster.DefaultNamespace, account)
		assert.True(w.t, apierrors.IsForbidden(c.Get(w.t.Context(), key, &corev1.Secret{})), account)
		assert.True(w.t, apierrors.IsForbidden(c.List(w.t.Context(), &corev1.SecretList{},
			ctrlclient.InNamespace(cluster.DefaultNamespace))), account)
	}
	var nodes corev1.NodeList
	require.NoError(w.t, w.env.Client.List(w.t.Context(), &nodes))
	sealed := ""
	for _, n := range nodes.Items {
		text, there := n.Annotations[manifests.AnnotationRegistryShared]
		assert.Equal(w.t, strings.HasPrefix(n.Name, "m"), there, n.Name)
		if there {
			sealed = text
		}
	}
	worker := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "w0"}}
	patch := fmt.Sprintf(`{"metadata":{"annotations":{%q:%q}}}`, manifests.AnnotationRegistryShared, sealed)
	require.NoError(w.t, w.env.Client.Patch(w.t.Context(), worker, ctrlclient.RawPatch(types.MergePatchType,
		[]byte(patch))))
	own, err := poolaccounts.OpenNode(w.nodes["w0"].dir, "w0")
	require.NoError(w.t, err)
	stolen := poolaccounts.Read[poolaccounts.Sealed](sealed)
	took, err := own.TakeShared(w.nodes["w0"].root, stolen)
	require.NoError(w.t, err)
	assert.False(w.t, took)
	stolen.Key = own.Word().Key
	_, err = own.TakeShared(w.nodes["w0"].root, stolen)
	require.ErrorContains(w.t, err, "not sealed for this node")
	assert.NoFileExists(w.t, filepath.Join(w.nodes["w0"].root, wanted.Dir, poolaccounts.SharedCA))

	var maps corev1.ConfigMapList
	require.NoError(w.t, w.env.Client.List(w.t.Context(), &maps))
	text := fmt.Sprint(nodes.Items, maps.Items)
	assert.Contains(w.t, text, sealed, "this would find it")
	assert.NotContains(w.t, text, w.secretLine())
}

// anotherNode comes with nothing but the MachineConfig of agents' nodes. Later it is made anew, with another key.
func (w *accountsWorld) anotherNode() {
	w.t.Helper()
	h := newHostIn(w.t, w.shared)
	h.node = "m3"
	for _, file := range []string{usersFile, pullFile, certs.CAKeyFile} {
		require.NoError(w.t, os.Remove(filepath.Join(h.config, file)))
	}
	c := newCommand("test")
	c.SetArgs([]string{"--config", h.config, "--root", filepath.Join(h.dir, "root"), "--state", h.state()})
	c.SetErr(io.Discard)
	require.ErrorContains(w.t, c.ExecuteContext(w.t.Context()), "A node's agent brings them")
	w.create(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: h.node,
		Labels: map[string]string{"node-role.kubernetes.io/control-plane": ""}}})
	for _, life := range []string{"new", "made anew"} {
		n := &playedNode{client: client{w.t.TempDir()}, name: h.node, root: h.root(w.t)}
		require.NoError(w.t, os.RemoveAll(h.state()))
		require.NoError(w.t, os.Mkdir(h.state(), 0o700)) // the test's link needs it
		ctx, end := context.WithCancel(w.t.Context())
		var work sync.WaitGroup
		work.Go(func() { w.follow(ctx, n) })
		require.Eventually(w.t, func() bool { return poolaccounts.ReadShared(h.state()) != poolaccounts.Shared{} },
			rotationLimit, 200*time.Millisecond, life)
		end()
		work.Wait()
		require.NoError(w.t, h.start(w.t)(), life)
	}
	require.NoError(w.t, w.env.Client.Delete(w.t.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: h.node}}))
}

// rotates takes the three steps to another CA by the Secret; each waits for what the registries say.
func (w *accountsWorld) rotates() {
	w.t.Helper()
	before, err := os.ReadFile(filepath.Join(w.shared, certs.CACertFile))
	require.NoError(w.t, err)
	for range 3 {
		step, err := rotation.Next(w.shared)
		require.NoError(w.t, err)
		if step != rotation.Ended {
			w.trust()
		}
		w.writeShared()
		w.annotate(w.pool("worker"), string(step)) // Secrets are not watched; the next look is soon enough for people
		shared, err := clusterregistry.Load(w.shared, sharedName)
		require.NoError(w.t, err)
		want, err := poolaccounts.ParseShared(shared.Secret().Data)
		require.NoError(w.t, err)
		for _, h := range w.hosts {
			w.reads(func() string {
				var n corev1.Node
				_ = w.env.Client.Get(w.t.Context(), types.NamespacedName{Name: h.node}, &n) // asked again
				return wanted.Reported(n.Annotations[manifests.AnnotationRegistry]).Shared
			}, []string{want.Hash()})
		}
		w.reports("every ready control-plane node has the CA")
	}
	w.trust()
	for _, h := range w.hosts {
		assert.Equal(w.t, "CA-2", issuer(w.t, filepath.Join(w.shared, certs.CACertFile), h.addr))
		old := filepath.Join(w.t.TempDir(), "old.crt")
		require.NoError(w.t, os.WriteFile(old, before, 0o600))
		assert.Empty(w.t, issuer(w.t, old, h.addr), "who trusts only the old CA gets nothing")
	}
}

// trust brings the CA to who pulls, as ControllerConfig and agents do.
func (w *accountsWorld) trust() {
	w.t.Helper()
	for _, n := range w.nodes {
		bring(w.t, w.shared, n.dir, caFile)
	}
}

// issuer of the certificate that a registry shows; "" where a CA does not vouch for it.
func issuer(t *testing.T, ca, addr string) string {
	t.Helper()
	pem, err := os.ReadFile(ca)
	require.NoError(t, err)
	pool := x509.NewCertPool()
	require.True(t, pool.AppendCertsFromPEM(pem))
	conn, err := tls.Dial("tcp", addr, &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12})
	if err != nil {
		return ""
	}
	defer func() { _ = conn.Close() }() // it was only tried
	return conn.ConnectionState().PeerCertificates[0].Issuer.CommonName
}

// TestFilesOfTheNodeCount: what the agent brings counts before the MachineConfig's, at once and after a restart, and
// what cannot be used changes nothing.
func TestFilesOfTheNodeCount(t *testing.T) {
	h := newHost(t)
	f := fleet{stop: map[string]func() error{}}
	f.start(t, h)
	next := t.TempDir()
	_, err := registry.CreateUsers(next, "-2", sharedName)
	require.NoError(t, err)
	_, err = certs.LoadOrCreateCA(next, certs.CAOptions{CommonName: "next CA"})
	require.NoError(t, err)
	shared, err := clusterregistry.Load(next, sharedName)
	require.NoError(t, err)
	for name, content := range shared.Secret().Data {
		require.NoError(t, credentials.Write(filepath.Join(h.state(), name), content))
	}
	ca := filepath.Join(next, certs.CACertFile)
	inForce := func() bool {
		c := client{next}
		_, err := c.pushRandom(h.addr)
		return err == nil && issuer(t, ca, h.addr) == "next CA"
	}
	require.Eventually(t, inForce, time.Minute, 100*time.Millisecond)
	require.Eventually(t, func() bool {
		r, _, err := wanted.ReadReport(filepath.Join(h.state(), wanted.ReportFile), time.Now())
		return err == nil && r.Shared == poolaccounts.ReadShared(h.state()).Hash()
	}, time.Minute, 100*time.Millisecond)

	require.NoError(t, credentials.Write(filepath.Join(h.state(), poolaccounts.SharedCA), []byte("half")))
	require.NoError(t, credentials.Write(filepath.Join(h.state(), poolaccounts.SharedUsers), []byte("half")))
	require.Never(t, func() bool { return !inForce() }, 5*time.Second, time.Second)
	require.NoError(t, f.stop[h.node]())
	c := newCommand("test")
	_, port, err := net.SplitHostPort(h.addr)
	require.NoError(t, err)
	c.SetArgs([]string{"--config", h.config, "--root", filepath.Join(h.dir, "root"), "--state", h.state(), "--listen",
		"127.0.0.1:" + port})
	c.SetErr(io.Discard)
	require.ErrorContains(t, c.ExecuteContext(t.Context()), "users", "damage is not covered by older files")
}
