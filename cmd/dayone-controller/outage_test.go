package main

import (
	"context"
	"encoding/json"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"dayone.dev/dayone/manifests/assets/cluster"
)

// outageLease is short enough to be lost in an outage, and long enough for a busy machine to keep it.
const outageLease = "15s"

// kubelet keeps a copy of a program running as Kubernetes does: at once after its first end, and after 10, 20 and 40
// seconds then.
type kubelet struct {
	t        *testing.T
	gateway  *gateway
	restarts int
	logs     []string
	stop     chan struct{}
	done     chan struct{}
}

func keepRunning(t *testing.T, g *gateway, run func() *copyOfProgram) *kubelet {
	k := &kubelet{t: t, gateway: g, stop: make(chan struct{}), done: make(chan struct{})}
	p := run()
	go func() {
		defer close(k.done)
		var pause time.Duration
		for {
			ended := make(chan error, 1)
			go func() { ended <- p.cmd.Wait() }()
			select {
			case <-k.stop:
				_ = p.cmd.Process.Signal(os.Interrupt)
				<-ended
				return
			case <-ended:
			}
			raw, _ := os.ReadFile(p.log)
			k.logs = append(k.logs, string(raw))
			select {
			case <-k.stop:
				return
			case <-time.After(pause):
			}
			pause = min(max(10*time.Second, 2*pause), 40*time.Second)
			k.restarts++
			p = run()
		}
	}()
	return k
}

// end stops it. The program has ended when it could not keep its lease, said why, and did not ask in a hot loop.
func (k *kubelet) end(refusing time.Duration) {
	k.t.Helper()
	close(k.stop)
	<-k.done
	_, requests := k.gateway.counts()
	k.t.Logf("%d requests in %.0f s, %d restarts", requests, refusing.Seconds(), k.restarts)
	assert.Less(k.t, float64(requests)/refusing.Seconds(), 10.0, "requests per second while all are refused")
	require.NotEmpty(k.t, k.logs, "it ends when it cannot keep its lease")
	assert.Contains(k.t, k.logs[0], "leader election lost")
	assert.Contains(k.t, strings.Join(k.logs, ""), "too many requests")
}

// refused is an installation that waits for the outage: what happens meanwhile and is not seen, and what is true
// afterwards.
type refused struct {
	gateways  []*gateway
	meanwhile func()
	after     func(lasted time.Duration)
}

// In each mode an API server that refuses everything for a minute, by 429 and by 500, makes the programs end, and their
// kubelet starts them again and again. Afterwards all is done that became due meanwhile, once, and the conditions are
// true again. One minute is for all three.
func TestAnAPIServerThatRefusesForAMinute(t *testing.T) {
	modes := []refused{refusedAdvisor(t), refusedBuilder(t), refusedFull(t)}
	each := func(do func(refused)) {
		for _, m := range modes {
			do(m)
		}
	}
	began := time.Now()
	for _, code := range []int32{http.StatusTooManyRequests, http.StatusInternalServerError} {
		each(func(m refused) {
			for _, g := range m.gateways {
				g.status.Store(code)
				g.server.CloseClientConnections() // what is watched ends, too
			}
		})
		if code == http.StatusTooManyRequests {
			each(func(m refused) { m.meanwhile() })
		}
		time.Sleep(30 * time.Second)
	}
	each(func(m refused) {
		for _, g := range m.gateways {
			g.status.Store(0)
		}
	})
	lasted := time.Since(began)
	each(func(m refused) { m.after(lasted) })
}

func refusedAdvisor(t *testing.T) refused {
	t.Helper()
	w := newAdvisedWorld(t)
	g := newGateway(t, w.advisor())
	k := keepRunning(t, g, func() *copyOfProgram { return startAdvisor(t, g) })
	w.says("Every node of pool worker has rendered-worker-1")
	available(t, w.env.Client, cluster.AdvisorNamespace, "False MachineConfigOperatorAbsent")
	return refused{gateways: []*gateway{g}, meanwhile: func() {
		w.renders("rendered-worker-2", "quiet")
		w.change(func(p *mcfgv1.MachineConfigPool) { p.Spec.Paused = true })
		w.make(operatorWorkload())
	}, after: func(lasted time.Duration) {
		w.says("Pool worker is paused. When spec.paused is false: rendered-worker-2 changes 1 nodes: Reboot")
		available(t, w.env.Client, cluster.AdvisorNamespace, "True AsExpected")
		w.announced()
		k.end(lasted)
	}}
}

// available waits until the installation's condition says what is.
func available(t *testing.T, c client.Client, namespace, want string) {
	t.Helper()
	require.EventuallyWithT(t, func(check *assert.CollectT) {
		m := &corev1.ConfigMap{}
		assert.NoError(check, c.Get(context.Background(), client.ObjectKey{Namespace: namespace,
			Name: cluster.StatusName}, m))
		var list []metav1.Condition
		assert.NoError(check, json.Unmarshal([]byte(m.Data[cluster.StatusConditions]), &list))
		if has := meta.FindStatusCondition(list, "Available"); assert.NotNil(check, has) {
			assert.Equal(check, want, string(has.Status)+" "+has.Reason, has.Message)
		}
	}, waitLimit, waitEvery)
}

// refusedBuilder has MCO beside it, whose builder is a stand-in and goes on meanwhile.
func refusedBuilder(t *testing.T) refused {
	t.Helper()
	w := newBuildWorld(t, cluster.Options{Mode: cluster.Building})
	w.create(operatorWorkload())
	mco := w.besideMCO()
	g := newGateway(t, w.env.As(t, w.namespace, cluster.Controller))
	k := keepRunning(t, g, func() *copyOfProgram {
		return start(t, "--mode", string(cluster.Building), "--kubeconfig", g.access, "--builder-image", builderImage,
			"--builder-arg=--registry-ca="+w.ca, "--lease-duration", outageLease)
	})
	w.renderedPool("worker")
	w.renderedPool("infra")
	w.optIn("worker")
	pod := w.podWorks("worker")
	available(t, w.env.Client, w.namespace, "True AsExpected")
	var image string
	return refused{gateways: []*gateway{g}, meanwhile: func() {
		image = w.ends(pod, "worker")
		w.optIn("infra")
		mco.refuses(t)
	}, after: func(lasted time.Duration) {
		w.has("worker", image)
		w.has("infra", w.ends(w.podWorks("infra"), "infra"))
		assert.Equal(t, 2, g.made("jobs"), "each image is built once")
		available(t, w.env.Client, w.namespace, "True AsExpected")
		k.end(lasted)
	}}
}

// refusedFull has two programs: what renders and rolls out, and what builds.
func refusedFull(t *testing.T) refused {
	t.Helper()
	w := newBuildWorld(t, cluster.Options{NodeAgent: true})
	controls := newGateway(t, w.env.As(t, w.namespace, cluster.Controller))
	builds := newGateway(t, w.env.As(t, w.namespace, cluster.Builder))
	controller := keepRunning(t, controls, func() *copyOfProgram {
		return start(t, "--kubeconfig", controls.access, "--builder-image", builderImage, "--node-agent", "--base-image",
			baseImage, "--lease-duration", outageLease)
	})
	program := builderProgram(t)
	builder := keepRunning(t, builds, func() *copyOfProgram {
		return launch(t, program, "--kubeconfig", builds.access, "--image", builderImage, "--registry-ca", w.ca,
			"--lease-duration", outageLease)
	})
	for _, name := range []string{"plain", "worker", "infra"} {
		w.renderingPool(name)
	}
	first := w.renders("plain", "")
	w.node("plain", first)
	w.optIn("worker")
	pod := w.podWorks("worker")
	available(t, w.env.Client, w.namespace, "True AsExpected")
	var image string
	return refused{gateways: []*gateway{controls, builds}, meanwhile: func() {
		image = w.ends(pod, "worker")
		w.optIn("infra")
		w.create(machineConfig("60-plain", "plain", "quiet"))
	}, after: func(lasted time.Duration) {
		w.has("worker", image)
		w.desires("plain", w.renders("plain", first))
		w.has("infra", w.ends(w.podWorks("infra"), "infra"))
		assert.Equal(t, 2, builds.made("jobs"), "each image is built once")
		assert.Zero(t, controls.made("jobs"))
		assert.Equal(t, 4, controls.made("machineconfigs"), "each config is rendered once")
		available(t, w.env.Client, w.namespace, "True AsExpected")
		controller.end(lasted)
		builder.end(lasted)
	}}
}
