package forecastcontroller_test

import (
	"net/http"
	"sync/atomic"
	"testing"

	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	"github.com/stretchr/testify/assert"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"dayone.dev/dayone/manifests/assets/cluster"
	"dayone.dev/dayone/rebase/forecast"
)

// refusing answers every request in the API server's place while status is set.
type refusing struct {
	next   http.RoundTripper
	status *atomic.Int32
}

func (r refusing) RoundTrip(req *http.Request) (*http.Response, error) {
	if code := int(r.status.Load()); code != 0 {
		return &http.Response{StatusCode: code, Status: http.StatusText(code), Proto: "HTTP/1.1", ProtoMajor: 1,
			ProtoMinor: 1, Header: http.Header{"Retry-After": {"1"}}, Body: http.NoBody, Request: req}, nil
	}
	return r.next.RoundTrip(req)
}

// TestAnAPIServerThatRefuses finds the forecast true again after the API server has answered 429 and 500, and nothing
// published was lost meanwhile.
func TestAnAPIServerThatRefuses(t *testing.T) {
	for name, code := range map[string]int32{"too many requests": http.StatusTooManyRequests,
		"internal error": http.StatusInternalServerError} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.config("rendered-bad-1", "/etc/a=1")
			w.config("rendered-bad-2", "/etc/a=2")
			p := w.pool("bad", "rendered-bad-1")
			w.node("bad", "bad-0", "rendered-bad-1")
			var status atomic.Int32
			w.advise(func(c *rest.Config) {
				c.Wrap(func(next http.RoundTripper) http.RoundTripper { return refusing{next, &status} })
			})
			w.says("bad", "Every node of pool bad has rendered-bad-1")
			status.Store(code)
			change(w, p, func(p *mcfgv1.MachineConfigPool) { p.Spec.Configuration.Name = "rendered-bad-2" })
			change(w, p, func(p *mcfgv1.MachineConfigPool) { p.Spec.Paused = true })
			w.says("bad", "Every node of pool bad has rendered-bad-1")
			status.Store(0)
			w.says("bad", "Pool bad is paused", "rendered-bad-2 changes 1 nodes: Reboot")
		})
	}
}

// TestAnotherReplicaTakesOver: what the first has said the second does not say again, and mends what has gone.
func TestAnotherReplicaTakesOver(t *testing.T) {
	w := newWorld(t)
	w.config("rendered-two-1", "/etc/a=1")
	w.config("rendered-two-2", "/etc/a=2")
	w.pool("two", "rendered-two-2")
	w.node("two", "two-0", "rendered-two-1")
	w.create(owned("70-two", "two", "None", "/etc/two"))
	w.advise()
	w.says("two", "Reboot on 1")
	w.published("/etc/two")
	w.told("two", 1)
	w.stopped()
	m := &corev1.ConfigMap{}
	m.Namespace, m.Name = cluster.AdvisorNamespace, forecast.ConfigMapName("gone")
	m.Labels = map[string]string{cluster.LabelManagedBy: cluster.ManagedBy}
	w.create(m)
	before := w.settings().ResourceVersion
	w.advise()
	w.series("dayone_forecast_level", 4, "two")
	assert.Eventually(t, func() bool {
		return client.IgnoreNotFound(w.env.Client.Get(t.Context(), client.ObjectKeyFromObject(m), m)) == nil &&
			w.data(forecast.ConfigMapName("gone")) == nil
	}, soon, often, "of a pool that is gone")
	w.series("dayone_policies_published", 1)
	assert.Equal(t, before, w.settings().ResourceVersion, "nothing is written again")
	w.told("two", 1)
}
