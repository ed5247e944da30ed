package buildcontroller

import (
	"encoding/json"
	"testing"

	configv1 "github.com/openshift/api/config/v1"
	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"dayone.dev/dayone/build/job"
	"dayone.dev/dayone/manifests"
	"dayone.dev/dayone/manifests/render"
)

// orders are what the Secrets of builds tell their pods.
func (w *world) orders() []job.Order {
	w.t.Helper()
	var secrets corev1.SecretList
	require.NoError(w.t, w.client.List(w.ctx(), &secrets, client.InNamespace(namespace),
		client.HasLabels{manifests.LabelEphemeralBuildObject}))
	var out []job.Order
	for _, s := range secrets.Items {
		if raw, ok := s.Data[job.FileOrder]; ok {
			var o job.Order
			require.NoError(w.t, json.Unmarshal(raw, &o))
			out = append(out, o)
		}
	}
	return out
}

func TestProxy(t *testing.T) {
	w, _ := newFakeWorld(t)
	w.runner.hold = true
	w.addPool("worker", "one", plainText)
	w.until("a build has its order", func() bool { return len(w.orders()) == 1 })
	assert.Empty(t, w.orders()[0].Request.Options.ProxyEnvironment)
	w.runner.hold = false
	w.untilAvailable("worker")
	image := w.config("worker").Status.CurrentImagePullSpec

	edit(w, client.ObjectKey{Name: render.ControllerConfigName}, &mcfgv1.ControllerConfig{},
		func(c *mcfgv1.ControllerConfig) {
			c.Spec.Proxy = &configv1.ProxyStatus{HTTPProxy: "http://me:canary-9f8e7d6c@proxy.example:3128", NoProxy: ".svc"}
		})
	w.rest()
	assert.Equal(t, image, w.config("worker").Status.CurrentImagePullSpec,
		"another way to the network is no other content")
	assert.Len(t, w.builds("worker"), 1)

	w.runner.hold = true
	w.askRebuild("worker")
	w.until("another build has its order", func() bool { return len(w.orders()) == 1 })
	proxies := w.orders()[0].Request.Options.ProxyEnvironment
	assert.Equal(t, map[string]string{"http_proxy": "http://me:canary-9f8e7d6c@proxy.example:3128",
		"HTTP_PROXY": "http://me:canary-9f8e7d6c@proxy.example:3128",
		"no_proxy":   ".svc", "NO_PROXY": ".svc"}, proxies)
	var jobs batchv1.JobList
	require.NoError(t, w.client.List(w.ctx(), &jobs, client.InNamespace(namespace)))
	raw, err := json.Marshal(jobs)
	require.NoError(t, err)
	assert.NotContains(t, string(raw), "canary-9f8e7d6c", "whoever may read Jobs reads no password")
}
