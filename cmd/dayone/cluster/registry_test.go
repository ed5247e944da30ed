package cluster

import (
	"encoding/json"
	"path/filepath"
	"testing"
	"time"

	"github.com/opencontainers/go-digest"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"dayone.dev/dayone/cmd/internal/cli"
	"dayone.dev/dayone/hack/kube/kubetest"
	"dayone.dev/dayone/manifests"
	"dayone.dev/dayone/manifests/assets/cluster"
	"dayone.dev/dayone/rebase/fleet/registrystatus"
	replicas "dayone.dev/dayone/registry/wanted"
)

// showsRegistries: of two control-plane nodes one lacks an image, and a worker's word does not count.
func showsRegistries(t *testing.T, e *kubetest.Env, do func(args ...string) (int, string, string)) {
	code, _, errs := do("registry", "status")
	assert.Equal(t, cli.ExitFailed, code)
	assert.Contains(t, errs, "--cluster-registry")

	image := replicas.Image{Repository: "ns/os", Digest: digest.FromString("image"), By: []string{"node w1 (current)"}}
	list := replicas.New(time.Now(), []replicas.Image{image})
	raw, err := list.Encode()
	require.NoError(t, err)
	held := replicas.NewReport(list, nil, 5<<30, 1<<30)
	held.SetRoom(3 << 30)
	full, err := held.Encode()
	require.NoError(t, err)
	lacks, err := replicas.NewReport(list, []replicas.Missing{{Image: image.Name(), Why: "no space"}}, 1<<30, 0).Encode()
	require.NoError(t, err)
	objects := []client.Object{&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: cluster.DefaultNamespace,
		Name: cluster.RegistryName}, Data: map[string]string{replicas.ListFile: string(raw), cluster.StatusConditions: "[]"}}}
	node := func(name, role, report string) {
		objects = append(objects, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name,
			Labels:      map[string]string{"node-role.kubernetes.io/" + role: ""},
			Annotations: map[string]string{manifests.AnnotationRegistry: report}}})
	}
	node("m0", "control-plane", full)
	node("m1", "master", lacks)
	node("w1", "worker", full)
	for _, o := range objects {
		require.NoError(t, e.Client.Create(t.Context(), o))
		defer func() { require.NoError(t, e.Client.Delete(t.Context(), o)) }()
	}
	code, out, errs := do("registry", "status")
	require.Equal(t, cli.ExitOK, code, errs)
	assert.Regexp(t, `m0 +false +1 of 1 +1.0 GiB +5.0 GiB +3.0 GiB`, out)
	assert.Regexp(t, `m1 +false +0 of 1 .*1 of 1 images are missing, first ns/os@sha256:[0-9a-f]+: no space`, out)
	assert.Regexp(t, `ns/os@sha256:[0-9a-f]+ +1 +m1 +node w1 \(current\)`, out)
	code, out, errs = do("registry", "status", "-o", "json")
	require.Equal(t, cli.ExitOK, code, errs)
	var s registrystatus.Status
	require.NoError(t, json.Unmarshal([]byte(out), &s))
	assert.Len(t, s.Nodes, 2)
	assert.Equal(t, []string{"m0"}, s.Images[0].Held)
	assert.Equal(t, map[string]string{"m1": "no space"}, s.Images[0].Lacking)

	dir := t.TempDir()
	code, out, errs = do("registry", "export", "--to", filepath.Join(dir, "copy"), "--ca", filepath.Join(dir, "ca.crt"),
		"--authfile", filepath.Join(dir, "auth.json"))
	assert.Equal(t, cli.ExitFailed, code, "the cluster's list names an image that no registry can be asked for")
	assert.Contains(t, out, "missing: "+image.Name())
	assert.Contains(t, errs, "1 of 1 images are missing")
}
