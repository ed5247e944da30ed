package main

import (
	"context"
	"encoding/json"
	"encoding/pem"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"path"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"dayone.dev/dayone/hack/kube/kubetest"
	"dayone.dev/dayone/manifests"
	"dayone.dev/dayone/manifests/assets/cluster"
	"dayone.dev/dayone/rebase/forecast"
)

// gateway is the way of one copy of the program to the API server. It counts what the copy asks for, and refuses all of
// it while status is set.
type gateway struct {
	server *httptest.Server
	access string // a kubeconfig
	status atomic.Int32

	mu                     sync.Mutex
	asked, writes, refused int
	// created counts what the copy made, by resource.
	created map[string]int
}

// newGateway leads to the API server with the credentials of an account.
func newGateway(t testing.TB, account *rest.Config) *gateway {
	t.Helper()
	target, err := url.Parse(account.Host)
	require.NoError(t, err)
	transport, err := rest.TransportFor(&rest.Config{Host: account.Host, TLSClientConfig: rest.TLSClientConfig{
		CAData: account.CAData, CAFile: account.CAFile}})
	require.NoError(t, err)
	proxy := &httputil.ReverseProxy{FlushInterval: -1, Transport: transport, ErrorLog: log.New(io.Discard, "", 0),
		Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(target) }}
	g := &gateway{created: map[string]int{}}
	g.server = httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if code := int(g.status.Load()); code != 0 {
			g.mu.Lock()
			g.refused++
			g.mu.Unlock()
			refuse(w, code)
			return
		}
		g.mu.Lock()
		g.asked++
		if r.Method != http.MethodGet && !strings.Contains(r.URL.Path, "/leases") {
			g.writes++
		}
		if r.Method == http.MethodPost {
			g.created[path.Base(r.URL.Path)]++
		}
		g.mu.Unlock()
		proxy.ServeHTTP(w, r)
	}))
	t.Cleanup(func() { g.server.CloseClientConnections(); g.server.Close() })
	g.access = kubeconfig(t, &rest.Config{Host: g.server.URL, BearerToken: account.BearerToken,
		TLSClientConfig: rest.TLSClientConfig{CAData: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE",
			Bytes: g.server.Certificate().Raw})}})
	return g
}

// refuse answers as an API server does that has too much to do, or whose etcd is ill.
func refuse(w http.ResponseWriter, code int) {
	s := metav1.Status{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}, Status: metav1.StatusFailure,
		Code: int32(code), Reason: metav1.StatusReasonInternalError, Message: "etcdserver: leader changed"}
	if code == http.StatusTooManyRequests {
		s.Reason, s.Message = metav1.StatusReasonTooManyRequests, "too many requests, please try again later"
		w.Header().Set("Retry-After", "1")
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(s)
}

// all are the requests that went through.
func (g *gateway) all() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.asked
}

// made is how many objects of a resource the copy asked to create.
func (g *gateway) made(resource string) int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.created[resource]
}

// counts are the writes that went through, but for those of the lease, and the requests that were refused.
func (g *gateway) counts() (writes, refused int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.writes, g.refused
}

// advisedWorld is a cluster with MCO's pool and node, and an installation in mode advisor but for what runs.
type advisedWorld struct {
	testing.TB
	env  *kubetest.Env
	pool *mcfgv1.MachineConfigPool
}

func newAdvisedWorld(t testing.TB) *advisedWorld {
	t.Helper()
	if testing.Short() {
		t.Skip("needs a real kube-apiserver, which is left out with -short")
	}
	w := &advisedWorld{TB: t, env: shared.New(t)}
	w.make(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: cluster.DefaultNamespace}})
	images := cluster.Images{Controller: "r.test/c:1"}
	objects, err := cluster.Objects(cluster.Options{Mode: cluster.Advisor, Images: images})
	require.NoError(t, err)
	w.env.InstallRightsOf(t, objects)
	role := map[string]string{"node-role.kubernetes.io/worker": ""}
	w.pool = &mcfgv1.MachineConfigPool{ObjectMeta: metav1.ObjectMeta{Name: "worker"}}
	w.pool.Spec.NodeSelector = &metav1.LabelSelector{MatchLabels: role}
	w.make(w.pool)
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "worker-0", Labels: role}}
	w.renders("rendered-worker-1", "")
	n.Annotations = map[string]string{manifests.AnnotationCurrentConfig: "rendered-worker-1",
		manifests.AnnotationDesiredConfig: "rendered-worker-1", manifests.AnnotationState: manifests.StateDone}
	w.make(n)
	n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}
	require.NoError(t, w.env.Client.Status().Update(t.Context(), n))
	return w
}

func (w *advisedWorld) make(o client.Object) {
	w.Helper()
	require.NoError(w, w.env.Client.Create(w.Context(), o), o.GetName())
}

// renders gives the pool another rendered config, as MCO's render controller does.
func (w *advisedWorld) renders(name, argument string) {
	w.Helper()
	m := &mcfgv1.MachineConfig{ObjectMeta: metav1.ObjectMeta{Name: name}}
	m.Spec.Config.Raw = []byte(`{"ignition":{"version":"3.5.0"}}`)
	if argument != "" {
		m.Spec.KernelArguments = []string{argument}
	}
	w.make(m)
	w.change(func(p *mcfgv1.MachineConfigPool) { p.Spec.Configuration.Name = name })
}

func (w *advisedWorld) change(how func(*mcfgv1.MachineConfigPool)) {
	w.Helper()
	require.NoError(w, w.env.Client.Get(w.Context(), client.ObjectKeyFromObject(w.pool), w.pool))
	how(w.pool)
	require.NoError(w, w.env.Client.Update(w.Context(), w.pool))
}

func (w *advisedWorld) advisor() *rest.Config {
	return w.env.As(w, cluster.AdvisorNamespace, cluster.Controller)
}

// says waits until the forecast of the pool has a text.
func (w *advisedWorld) says(text string) {
	w.Helper()
	require.EventuallyWithT(w, func(c *assert.CollectT) {
		m := &corev1.ConfigMap{}
		assert.NoError(c, w.env.Client.Get(w.Context(), client.ObjectKey{Namespace: cluster.AdvisorNamespace,
			Name: forecast.ConfigMapName("worker")}, m))
		assert.Contains(c, m.Data[forecast.KeySummary], text)
	}, waitLimit, waitEvery)
}

// leader is who holds the lease.
func (w *advisedWorld) leader() string {
	lease := &coordinationv1.Lease{}
	if w.env.Client.Get(w.Context(), client.ObjectKey{Namespace: cluster.AdvisorNamespace, Name: cluster.Controller},
		lease) != nil || lease.Spec.HolderIdentity == nil {
		return ""
	}
	return *lease.Spec.HolderIdentity
}

// startAdvisor starts a copy of the program in mode advisor.
func startAdvisor(t testing.TB, g *gateway) *copyOfProgram {
	return start(t, "--mode", string(cluster.Advisor), "--namespace", cluster.AdvisorNamespace, "--kubeconfig", g.access,
		"--lease-duration", "15s")
}

// Two copies run at once, as an installation has them: only the one with the lease writes. When that is killed the
// other one goes on, and says nothing again that was said.
func TestTwoAdvisors(t *testing.T) {
	w := newAdvisedWorld(t)
	one, two := newGateway(t, w.advisor()), newGateway(t, w.advisor())
	first := startAdvisor(t, one)
	w.says("Every node of pool worker has rendered-worker-1")
	leader := w.leader()
	require.NotEmpty(t, leader)
	second := startAdvisor(t, two)
	require.EventuallyWithT(t, func(c *assert.CollectT) {
		code, _ := fetch(c, second.probes, "/readyz")
		assert.Equal(c, http.StatusOK, code)
	}, waitLimit, waitEvery)
	w.renders("rendered-worker-2", "quiet")
	w.says("rendered-worker-2 changes 1 nodes: Reboot")
	assert.Equal(t, leader, w.leader())
	writes, _ := two.counts()
	assert.Zero(t, writes, "the copy without the lease writes nothing")

	first.end(t, syscall.SIGKILL)
	before, _ := one.counts()
	require.Positive(t, before)
	killed := time.Now()
	w.change(func(p *mcfgv1.MachineConfigPool) { p.Spec.Paused = true })
	w.says("Pool worker is paused. When spec.paused is false: rendered-worker-2 changes 1 nodes: Reboot")
	t.Logf("the other copy has taken over %.0f s after the first was killed", time.Since(killed).Seconds())
	assert.NotEqual(t, leader, w.leader())
	writes, _ = two.counts()
	assert.Positive(t, writes)
	after, _ := one.counts()
	assert.Equal(t, before, after)
	w.announced()
}

// announced waits until there is an event of the forecast. There is but one: what one copy has said no other says
// again.
func (w *advisedWorld) announced() {
	w.Helper()
	require.EventuallyWithT(w, func(c *assert.CollectT) {
		var events eventsv1.EventList
		assert.NoError(c, w.env.Client.List(context.Background(), &events))
		said := 0
		for i := range events.Items {
			if events.Items[i].Reason == "ForecastPublished" {
				said++
			}
		}
		assert.Equal(c, 1, said)
	}, waitLimit, waitEvery)
}

// operatorWorkload stands for one of MCO's, which runs.
func operatorWorkload() *appsv1.Deployment {
	app := map[string]string{"app": "mco"}
	return &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: cluster.DefaultNamespace,
		Name: "machine-config-operator"}, Spec: appsv1.DeploymentSpec{Selector: &metav1.LabelSelector{MatchLabels: app},
		Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: app}, Spec: corev1.PodSpec{
			Containers: []corev1.Container{{Name: "c", Image: "r.test/mco:1"}}}}}}
}
