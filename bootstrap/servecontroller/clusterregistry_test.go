package servecontroller_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"testing"

	"github.com/containers/image/v5/docker/reference"
	"github.com/containers/image/v5/pkg/sysregistriesv2"
	"github.com/containers/image/v5/types"
	ign35 "github.com/coreos/ignition/v2/config/v3_5/types"
	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"dayone.dev/dayone/bootstrap/servecontroller"
	"dayone.dev/dayone/manifests/machineconfig"
	"dayone.dev/dayone/rebase/daemon/mirrorfiles"
	"dayone.dev/dayone/rebase/firstboot"
	"dayone.dev/dayone/registry/credentials"
	"dayone.dev/dayone/registry/peers"
	"dayone.dev/dayone/registry/poolaccounts"
)

// master makes a node of the control plane.
func (f *fixture) master(name, address string) {
	f.Helper()
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name,
		Labels: map[string]string{"node-role.kubernetes.io/control-plane": ""}}}
	f.create(n)
	n.Status.Addresses = []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: address}}
	require.NoError(f, f.env.Client.Status().Update(f.Context(), n))
}

// boot gives the files that a new node at an address gets.
func (f *fixture) boot(address string) map[string]string {
	f.Helper()
	r := httptest.NewRequest(http.MethodGet, "/config/worker", nil)
	r.RemoteAddr = address + ":40000"
	r.Header.Set("Accept", "application/vnd.coreos.ignition+json;version=3.5.0")
	w := httptest.NewRecorder()
	f.server.Handler().ServeHTTP(w, r)
	require.Equal(f, http.StatusOK, w.Code, w.Header().Get("Dayone-Reason"))
	var c ign35.Config
	require.NoError(f, json.Unmarshal(w.Body.Bytes(), &c))
	out := map[string]string{}
	for _, file := range c.Storage.Files {
		raw, err := machineconfig.Contents(file.Contents)
		require.NoError(f, err)
		out[file.Path] = string(raw)
	}
	return out
}

// places are where a node with these files looks for its image.
func places(t *testing.T, files map[string]string) (out []string) {
	t.Helper()
	root := t.TempDir()
	at := filepath.Join(root, mirrorfiles.DropInPath)
	require.NoError(t, os.MkdirAll(filepath.Dir(at), 0o755))
	require.NoError(t, os.WriteFile(at, []byte(files[mirrorfiles.DropInPath]), 0o600))
	named, err := reference.ParseNamed(image(1))
	require.NoError(t, err)
	sysregistriesv2.InvalidateCache()
	found, err := sysregistriesv2.FindRegistry(&types.SystemContext{RootForImplicitAbsolutePaths: root}, named.Name())
	require.NoError(t, err)
	require.NotNil(t, found)
	sources, err := found.PullSourcesFromReference(named)
	require.NoError(t, err)
	for _, s := range sources {
		out = append(out, reference.Domain(s.Reference))
	}
	return out
}

// New nodes reach the registries of the control plane before their agent runs, each another one first.
func TestNewNodesReachTheControlPlanesRegistries(t *testing.T) {
	auth, err := credentials.Encode(credentials.Account{Username: "pull", Password: "p"}, "r.example.com",
		"other.example.com")
	require.NoError(t, err)
	f := newFixture(t, servecontroller.Options{Registry: "r.example.com",
		FirstBoot: &firstboot.IgnitionOptions{PullAuth: auth}})
	f.config("rendered-worker-1")
	f.pool("rendered-worker-1", "")
	f.layer("b1", "rendered-worker-1", image(1))
	look := func() {
		_, err := f.r.Reconcile(f.Context(), reconcile.Request{})
		require.NoError(f, err)
	}
	look()
	assert.NotContains(t, f.boot("10.0.0.1"), mirrorfiles.DropInPath, "no control plane, no addresses")

	for i := range 3 {
		f.master(fmt.Sprintf("m%d", i), fmt.Sprintf("192.168.77.1%d", i))
	}
	cc := &mcfgv1.ControllerConfig{ObjectMeta: metav1.ObjectMeta{Name: "machine-config-controller"},
		Spec: mcfgv1.ControllerConfigSpec{IPFamilies: mcfgv1.IPFamiliesIPv4, Images: map[string]string{},
			KubeAPIServerServingCAData: []byte("x"), RootCAData: []byte("x"),
			ImageRegistryBundleData:     []mcfgv1.ImageRegistryBundle{},
			ImageRegistryBundleUserData: []mcfgv1.ImageRegistryBundle{{File: "r.example.com", Data: []byte("authority\n")}}}}
	f.create(cc)
	defer func() { require.NoError(t, f.env.Client.Delete(t.Context(), cc)) }()
	look()
	first := map[string]int{}
	for i := range 60 {
		client := fmt.Sprintf("10.0.0.%d", i)
		files := f.boot(client)
		all := places(t, files)
		assert.ElementsMatch(t, []string{"192.168.77.10:22626", "192.168.77.11:22626", "192.168.77.12:22626",
			"r.example.com"}, all)
		assert.Equal(t, "r.example.com", all[3], "the images' own registry is the last")
		assert.Equal(t, all, places(t, f.boot(client)), "a node that asks again gets the same")
		first[all[0]]++
	}
	assert.Len(t, first, 3)
	for address, n := range first {
		assert.Greater(t, n, 60/3/2, address)
	}

	files := f.boot("10.0.0.1")
	list, err := peers.Parse([]byte(files["/var/lib/dayone/registry-peers.json"]))
	require.NoError(t, err)
	assert.Equal(t, "r.example.com", list.Registry)
	assert.Len(t, list.Peers, 3, "the forwarder has its file before the agent has seen the API")
	assert.Contains(t, files["/etc/docker/certs.d/r.example.com/ca.crt"], "authority",
		"kubelet may have to pull the agent's image by the registries' name")
	for _, path := range []string{firstboot.PullAuthPath, poolaccounts.AuthPath} {
		accounts, err := credentials.Parse([]byte(files[path]))
		require.NoError(t, err)
		for _, at := range []string{list.Peers[0].Address, list.Peers[1].Address, list.Peers[2].Address, list.Registry} {
			account, found, err := accounts.Find(at + "/os/worker")
			require.NoError(t, err)
			assert.True(t, found, "%s in %s", at, path)
			assert.Equal(t, "p", account.Password)
		}
	}
	assert.NotContains(t, files[poolaccounts.AuthPath], "other.example.com", "it is the account of these registries alone")

	f.master("m3", "127.0.0.1")
	look()
	assert.NotContains(t, f.boot("10.0.0.1"), mirrorfiles.DropInPath, "an address that no node reaches is given to none")
}
