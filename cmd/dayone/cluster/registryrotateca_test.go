package cluster

import (
	"encoding/json"
	"strings"
	"testing"

	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"dayone.dev/dayone/bootstrap/clusterregistry"
	"dayone.dev/dayone/cmd/internal/cli"
	"dayone.dev/dayone/manifests/assets/cluster"
	"dayone.dev/dayone/manifests/render"
	"dayone.dev/dayone/rebase/fleet/registrystatus"
	"dayone.dev/dayone/registry/authority"
	"dayone.dev/dayone/registry/certs"
)

func (w *rotation) ca() *authority.Status {
	p, err := registrystatus.ReadPublished(w.Context(), w.e.Client, cluster.DefaultNamespace)
	if err != nil {
		return nil
	}
	return p.CA
}

// TestRegistryRotateCA asks the real controller for another CA through the command: while a node lags the command says
// so, no second rotation begins, and the administrator leaves the node out.
func TestRegistryRotateCA(t *testing.T) {
	w := newRotation(t)
	kubeconfig := w.e.Kubeconfig(t)
	do := func(args ...string) (int, string, string) {
		return dayone(t, append([]string{"cluster", "--kubeconfig", kubeconfig, "registry"}, args...)...)
	}
	w.run()
	require.Eventually(t, func() bool { return len(w.accounts()["worker"]) == 1 }, clusterWait, clusterEvery)
	code, _, errs := do("rotate-ca")
	assert.Equal(t, cli.ExitFailed, code)
	assert.Contains(t, errs, "there is no Secret dayone-registry-shared: replace the CA with dayone registry node-config")

	shared, err := clusterregistry.LoadOrCreate(t.TempDir(), rotatedRegistry)
	require.NoError(t, err)
	secret := shared.Secret()
	require.NoError(t, w.e.Client.Create(t.Context(), secret))
	touch := func(value string) { // Secrets are not watched
		code, _, errs := do("rotate", "--pool", "worker")
		require.Equal(t, cli.ExitOK, code, "%s: %s", value, errs)
	}
	touch("the Secret is there")
	require.Eventually(t, func() bool { return w.ca() != nil }, clusterWait, clusterEvery)
	code, out, errs := do("rotate-ca", "--wait", "--timeout", "5s")
	assert.Equal(t, cli.ExitFailed, code, out)
	assert.Contains(t, errs, "not replaced after 5s")
	touch("the request is there")
	require.Eventually(t, func() bool { return w.says("there is no ControllerConfig") }, clusterWait, clusterEvery)
	config := &mcfgv1.ControllerConfig{ObjectMeta: metav1.ObjectMeta{Name: render.ControllerConfigName},
		Spec: mcfgv1.ControllerConfigSpec{ImageRegistryBundleData: []mcfgv1.ImageRegistryBundle{},
			ImageRegistryBundleUserData: []mcfgv1.ImageRegistryBundle{{File: "other.example.com", Data: []byte("theirs")}},
			Images:                      map[string]string{}, KubeAPIServerServingCAData: []byte("#"), RootCAData: []byte("#"),
			ReleaseImage: "release", IPFamilies: mcfgv1.IPFamiliesIPv4}}
	w.lags.Store(true)
	require.NoError(t, w.e.Client.Create(t.Context(), config))
	waits := "node worker-0: it has not said that it trusts the next CA"
	require.Eventually(t, func() bool { return w.says(waits) }, clusterWait, clusterEvery)
	before := w.ca().Fingerprint
	code, out, errs = do("status")
	require.Equal(t, cli.ExitOK, code, errs)
	assert.Regexp(t, before+` +dayone registry CA of r.example.com +20.*Trusting: nodes get to trust the next CA`, out)
	assert.Regexp(t, `node worker-0 +it has not said`, out)
	code, _, errs = do("rotate-ca")
	assert.Equal(t, cli.ExitFailed, code)
	assert.Contains(t, errs, "a rotation runs since ")
	assert.Contains(t, errs, waits)
	code, _, errs = do("rotate-ca", "--without", "worker-9")
	assert.Equal(t, cli.ExitFailed, code)
	assert.Contains(t, errs, `nodes "worker-9" not found`)

	code, out, errs = do("rotate-ca", "--without", "worker-0", "--now", "--wait", "-o", "json")
	require.Equal(t, cli.ExitOK, code, errs)
	var done rotatedCA
	require.NoError(t, json.Unmarshal([]byte(out), &done))
	now := w.ca()
	assert.Equal(t, rotatedCA{Asked: now.Asked, Before: before, Now: now.Fingerprint}, done)
	assert.NotEqual(t, before, now.Fingerprint)
	assert.Contains(t, errs, now.Fingerprint+" is in use, nothing trusts "+before+" any more")
	assert.Equal(t, []string{"worker-0"}, now.Behind)
	_, out, _ = do("status")
	assert.Regexp(t, `worker-0 +its agent gets it from the API`, out)
	require.NoError(t, w.e.Client.Get(t.Context(), types.NamespacedName{Name: config.Name}, config))
	require.Len(t, config.Spec.ImageRegistryBundleUserData, 2)
	assert.Equal(t, "theirs", string(config.Spec.ImageRegistryBundleUserData[0].Data))
	assert.Equal(t, "r.example.com..22626", config.Spec.ImageRegistryBundleUserData[1].File)
	assert.Equal(t, now.Trusted, string(config.Spec.ImageRegistryBundleUserData[1].Data))
	assert.Len(t, certs.Bundle([]byte(now.Trusted)), 1)
	w.lags.Store(false)
	require.Eventually(t, func() bool { return len(w.ca().Behind) == 0 }, clusterWait, clusterEvery)
}

// says tells whether the condition of the CA has these words.
func (w *rotation) says(words string) bool {
	code, out, errs := dayone(w.T, "cluster", "--kubeconfig", w.e.Kubeconfig(w.T), "registry", "status")
	require.Equal(w, cli.ExitOK, code, errs)
	return strings.Contains(out, registrystatus.ConditionCA) && strings.Contains(out, words)
}
