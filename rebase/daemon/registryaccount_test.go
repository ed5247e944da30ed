package daemon_test

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"dayone.dev/dayone/manifests"
	"dayone.dev/dayone/manifests/assets/cluster"
	"dayone.dev/dayone/rebase/daemon/trustfiles"
	"dayone.dev/dayone/rebase/deploy/deploytest"
	"dayone.dev/dayone/registry"
	"dayone.dev/dayone/registry/certs"
	"dayone.dev/dayone/registry/credentials"
	"dayone.dev/dayone/registry/peers"
	"dayone.dev/dayone/registry/poolaccounts"
	"dayone.dev/dayone/registry/wanted"
)

// TestAnAccountOfThePool: the agent takes the account that the controller seals for its node, and pulls use it; on a
// control-plane node it takes what the registries share. The registry of the control plane is played: it says that it
// accepts what is published.
func TestAnAccountOfThePool(t *testing.T) {
	f := newRealFixture(t)
	f.join(rendered("rendered-account-1"), "")
	f.controllerConfig(deploytest.NewAuthority(t).PEM)
	n := f.object()
	n.Labels["dayone.test/pool"] = "sealed"
	require.NoError(t, f.env.Client.Update(t.Context(), n))
	f.create(&mcfgv1.MachineConfigPool{ObjectMeta: metav1.ObjectMeta{Name: "sealed"}, Spec: mcfgv1.MachineConfigPoolSpec{
		NodeSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"dayone.test/pool": "sealed"}}}})
	master := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "master-of-" + f.name,
		Labels: map[string]string{"node-role.kubernetes.io/master": ""}}}
	f.create(master)
	master.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}
	require.NoError(t, f.env.Client.Status().Update(t.Context(), master))
	secret := f.sharedSecret()
	f.create(secret)
	t.Cleanup(func() { // others use the API server, too
		require.NoError(t, f.env.Client.Delete(context.WithoutCancel(t.Context()), secret))
	})
	f.registries(prometheus.NewPedanticRegistry())
	end := f.running(false)
	defer end()

	accepts := ""
	require.Eventually(t, func() bool {
		var m corev1.ConfigMap
		_ = f.env.Client.Get(t.Context(), client.ObjectKey{Namespace: cluster.DefaultNamespace,
			Name: cluster.RegistryName}, &m) // it is not there yet
		if hash := wanted.AccountsHash([]byte(m.Data[wanted.AccountsFile])); hash != accepts {
			accepts = hash
			report, err := wanted.Report{Accounts: hash}.Encode()
			require.NoError(t, err)
			before := master.DeepCopy()
			metav1.SetMetaDataAnnotation(&master.ObjectMeta, manifests.AnnotationRegistry, report)
			require.NoError(t, f.env.Client.Patch(t.Context(), master, client.MergeFrom(before)))
		}
		have, err := credentials.Read(filepath.Join(f.m.root, trustfiles.PullAuthPath))
		if err != nil {
			return false
		}
		a, found, err := have.Find(finalName + "/ns/os")
		return err == nil && found && a.Username ==
			poolaccounts.Read[poolaccounts.Word](f.object().Annotations[manifests.AnnotationRegistryKey]).Account
	}, time.Minute, 50*time.Millisecond, "the node pulls with the account of its pool")
	sealed := f.object().Annotations[manifests.AnnotationRegistryAccount]
	have, err := credentials.Read(filepath.Join(f.m.root, poolaccounts.AuthPath))
	require.NoError(t, err)
	a, _, err := have.Find(finalName)
	require.NoError(t, err)
	assert.Regexp(t, "^pool-sealed-", a.Username)
	assert.NotContains(t, sealed, a.Password)
	assert.Contains(t, sealed, a.Username)

	assert.NotContains(t, f.object().Annotations, manifests.AnnotationRegistryShared, "it is no control-plane node")
	want, err := poolaccounts.ParseShared(secret.Data)
	require.NoError(t, err)
	worker := f.object()
	promoted := worker.DeepCopy()
	promoted.Labels["node-role.kubernetes.io/control-plane"] = ""
	require.NoError(t, f.env.Client.Patch(t.Context(), promoted, client.MergeFrom(worker)))
	require.Eventually(t, func() bool {
		return poolaccounts.ReadShared(filepath.Join(f.m.root, wanted.Dir)) == want
	}, time.Minute, 50*time.Millisecond, "the node's registry has its CA")
	require.NoError(t, os.Remove(filepath.Join(f.m.root, wanted.Dir, poolaccounts.SharedCA)))
	before := f.object().DeepCopy()
	asked := before.DeepCopy()
	metav1.SetMetaDataAnnotation(&asked.ObjectMeta, manifests.AnnotationRegistryShared, "damaged")
	require.NoError(t, f.env.Client.Patch(t.Context(), asked, client.MergeFrom(before)))
	require.Eventually(t, func() bool {
		return poolaccounts.ReadShared(filepath.Join(f.m.root, wanted.Dir)) == want
	}, time.Minute, 50*time.Millisecond, "it is sealed again, and taken again")
}

// TestANodeSaysWhatItTrusts: it names the CAs of the registries that are in the files which count, as soon as they are
// there, and no others.
func TestANodeSaysWhatItTrusts(t *testing.T) {
	f := newRealFixture(t)
	f.join(rendered("rendered-trusts-1"), "")
	one, two := deploytest.NewAuthority(t).PEM, deploytest.NewAuthority(t).PEM
	c := f.controllerConfig(one)
	says := func() []string {
		return poolaccounts.Read[poolaccounts.Word](f.object().Annotations[manifests.AnnotationRegistryKey]).Trusts
	}
	of := func(bundles ...[]byte) (out []string) {
		for _, cert := range certs.Bundle(slices.Concat(bundles...)) {
			out = append(out, certs.Fingerprint(cert))
		}
		slices.Sort(out)
		return out
	}
	list := peers.List{Registry: finalName, Peers: []peers.Peer{{Name: "m0", Address: "192.0.2.1:22626"}}}
	require.NoError(t, os.MkdirAll(filepath.Dir(filepath.Join(f.m.root, peers.Path)), 0o755))
	require.NoError(t, list.Write(filepath.Join(f.m.root, peers.Path)))
	end := f.running(false)
	defer end()
	assert.Empty(t, says(), "the CA is another registry's")
	for _, bundle := range [][]byte{one, slices.Concat(one, two), two} {
		before := c.DeepCopy()
		c.Spec.ImageRegistryBundleUserData = []mcfgv1.ImageRegistryBundle{
			{File: strings.ReplaceAll(finalName, ":", ".."), Data: bundle}}
		require.NoError(t, f.env.Client.Patch(t.Context(), c, client.MergeFrom(before)))
		require.Eventually(t, func() bool { return slices.Equal(says(), of(bundle)) }, time.Minute, 50*time.Millisecond)
	}
	own := filepath.Join(f.m.root, "etc/containers/certs.d", finalName, "ca.crt")
	require.NoError(t, os.MkdirAll(filepath.Dir(own), 0o755))
	require.NoError(t, os.WriteFile(own, one, 0o600))
	assert.Equal(t, of(one), certs.Trusts(f.m.root, finalName), "a file of the node's own counts before the cluster's")
}

// sharedSecret is what a hand-over brings for the registries.
func (f *fixture) sharedSecret() *corev1.Secret {
	f.Helper()
	dir := f.TempDir()
	_, err := registry.CreateUsers(dir, "", finalName)
	require.NoError(f, err)
	_, err = certs.LoadOrCreateCA(dir, certs.CAOptions{})
	require.NoError(f, err)
	read := func(name string) []byte {
		raw, err := os.ReadFile(filepath.Join(dir, name))
		require.NoError(f, err)
		return raw
	}
	return &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: cluster.DefaultNamespace, Name: cluster.RegistryShared},
		Data: map[string][]byte{poolaccounts.SharedUsers: read(registry.UsersFile),
			poolaccounts.SharedCA: slices.Concat(read(certs.CACertFile), read(certs.CAKeyFile))}}
}
