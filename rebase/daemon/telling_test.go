package daemon_test

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	opv1 "github.com/openshift/api/operator/v1"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"dayone.dev/dayone/rebase/daemon"
	"dayone.dev/dayone/rebase/daemon/hostfiles"
	"dayone.dev/dayone/rebase/nodestate"
)

// events are those about the fixture's node, by reason.
func (f *fixture) events() map[string][]corev1.Event {
	f.Helper()
	var list corev1.EventList
	require.NoError(f, f.env.Client.List(f.Context(), &list, client.InNamespace("default")))
	out := map[string][]corev1.Event{}
	for _, e := range list.Items {
		if e.InvolvedObject.Name == f.name && e.Source.Component == "dayone-daemon" {
			assert.Equal(f, "Node", e.InvolvedObject.Kind)
			assert.Equal(f, f.object().UID, e.InvolvedObject.UID)
			out[e.Reason] = append(out[e.Reason], e)
		}
	}
	return out
}

// reasons count the events, and forget them.
func (f *fixture) reasons() map[string]int {
	f.Helper()
	out := map[string]int{}
	for reason, all := range f.events() {
		out[reason] = len(all)
		for i := range all {
			require.NoError(f, f.env.Client.Delete(f.Context(), &all[i]))
		}
	}
	return out
}

func (f *fixture) metrics() string {
	recorder := httptest.NewRecorder()
	f.agent.Handler().ServeHTTP(recorder, httptest.NewRequest(http.MethodGet, "/metrics", nil))
	return recorder.Body.String()
}

// metric is the line of a series that begins so, without its value.
func (f *fixture) metric(prefix string) (series, value string) {
	f.Helper()
	for line := range strings.Lines(f.metrics()) {
		if strings.HasPrefix(line, prefix) {
			cut := strings.LastIndex(line, " ")
			return line[:cut], strings.TrimSpace(line[cut:])
		}
	}
	f.Fatalf("no series %s", prefix)
	return "", ""
}

func TestEventsOfAWayWithAReboot(t *testing.T) {
	f := newFixture(t)
	f.join(rendered("rendered-events-1", "/etc/a=1"), image(1))
	require.NoError(t, f.step())
	assert.Equal(t, map[string]int{"NodeDone": 1, "ConfigDriftMonitorStarted": 1}, f.reasons())
	f.aim(rendered("rendered-events-2", "/etc/a=2"), image(2))
	f.settle()
	require.NoError(t, f.step())
	way := map[string]int{"ConfigDriftMonitorStopped": 1, "Cordon": 1, "Drain": 1, "InClusterUpgrade": 1,
		"OSUpdateStarted": 1, "OSUpgradeApplied": 1, "OSUpdateStaged": 1, "Reboot": 1, "Uncordon": 1, "NodeDone": 1,
		"ConfigDriftMonitorStarted": 1}
	all := f.events()
	require.Len(t, all["Reboot"], 1)
	assert.Contains(t, all["Reboot"][0].Message, "rendered-events-2")
	assert.Equal(t, corev1.EventTypeNormal, all["Reboot"][0].Type)
	assert.Equal(t, way, f.reasons())

	// The same way once more is another occasion: back to the first, by the name of the first.
	f.aim(rendered("rendered-events-1", "/etc/a=1"), image(1))
	f.settle()
	require.NoError(t, f.step())
	assert.Equal(t, way, f.reasons())
}

func TestEventsAreMadeOnceWhereverTheAgentIsKilled(t *testing.T) {
	f := newFixture(t)
	f.join(rendered("rendered-once-1", "/etc/a=1"), image(1))
	f.aim(rendered("rendered-once-2", "/etc/a=2"), image(2))
	for range limit {
		f.restart() // each step is another process's
		require.NoError(t, f.step())
		if f.record().Converged() {
			break
		}
	}
	require.True(t, f.record().Converged())
	for reason, n := range f.reasons() {
		want := 1
		if reason == "NodeDone" {
			want = 2 // it joined, too
		}
		assert.LessOrEqual(t, n, want, reason)
	}
}

func TestEventsOfAWayWithoutAReboot(t *testing.T) {
	f := newFixture(t)
	f.join(rendered("rendered-noreboot-1", "/etc/containers/policy.json=1", "/etc/kubernetes/credential-providers/a=1"),
		"")
	f.reasons()
	f.aim(rendered("rendered-noreboot-2", "/etc/containers/policy.json=2"), "")
	f.m.fails = map[string]error{"reload crio.service": errors.New("exit status 3")}
	require.ErrorContains(t, f.fails(), "exit status 3")
	require.Len(t, f.events()["FailedServiceReload"], 1)
	f.m.fails = map[string]error{"restart kubelet.service": errors.New("exit status 1")}
	require.ErrorContains(t, f.fails(), "exit status 1")
	require.Error(t, f.step())
	all := f.events()
	require.Len(t, all["FailedServiceRestart"], 1, "once, however often it is tried")
	assert.Equal(t, corev1.EventTypeWarning, all["FailedServiceRestart"][0].Type)
	f.m.fails = nil
	f.settle()
	got := f.reasons()
	assert.Equal(t, 1, got["ServiceReload"])
	assert.Equal(t, 1, got["ServiceRestart"])
	assert.Equal(t, 1, got["NodeDone"])
	assert.Zero(t, got["SkipReboot"]+got["Reboot"]+got["Drain"]+got["OSUpdateStarted"])

	f.aim(rendered("rendered-noreboot-3", "/etc/containers/policy.json=2", "/etc/kubernetes/kubelet-ca.crt=1"), "")
	f.settle()
	assert.Equal(t, 1, f.reasons()["SkipReboot"])
}

func TestDriftIsToldOnce(t *testing.T) {
	f := newFixture(t)
	f.join(rendered("rendered-tells-1", "/etc/a=1"), image(1))
	require.NoError(t, f.step())
	_, clean := f.metric("mcd_config_drift ")
	assert.Equal(t, "0", clean)
	edit := func() { require.NoError(t, os.WriteFile(filepath.Join(f.m.root, "/etc/a"), []byte("local"), 0o644)) }
	edit()
	for range 3 {
		require.ErrorContains(t, f.step(), "drift")
		f.restart()
	}
	require.Error(t, f.step())
	assert.Equal(t, 1, f.reasons()["ConfigDriftDetected"], "once, also over a restart of the agent")
	_, since := f.metric("mcd_config_drift ")
	assert.NotEqual(t, "0", since)
	series, _ := f.metric("mcd_state{")
	assert.Contains(t, series, `mcd_state{state="Degraded",reason="drift: the node is unlike rendered-tells-1`)
	require.NoError(t, hostfiles.Host{Root: f.m.root}.Restore(parse(t, rendered("x", "/etc/a=1"))))
	f.settle()
	_, clean = f.metric("mcd_config_drift ")
	assert.Equal(t, "0", clean)
	edit()
	require.ErrorContains(t, f.step(), "drift")
	assert.Equal(t, 1, f.reasons()["ConfigDriftDetected"], "another occasion")
}

func TestAnImpossibleChangeIsTold(t *testing.T) {
	f := newFixture(t)
	f.join(rendered("rendered-impossible-1"), "")
	bad := rendered("rendered-impossible-2")
	bad.Spec.Config.Raw = []byte(`{"ignition":{"version":"3.5.0"},"storage":{"disks":[{"device":"/dev/sdb"}]}}`)
	f.aim(bad, "")
	require.Error(t, f.fails())
	require.Error(t, f.step())
	assert.Equal(t, 1, f.reasons()["FailedToReconcile"])
}

// TestAnOSImageByTagIsRefused has the agent say of an osImageURL what the forecast says.
func TestAnOSImageByTagIsRefused(t *testing.T) {
	f := newFixture(t)
	first := rendered("rendered-tag-1")
	first.Spec.OSImageURL = image(1)
	f.join(first, "")
	second := rendered("rendered-tag-2")
	second.Spec.OSImageURL = "r.example.com/os:9.6"
	f.aim(second, "")
	require.ErrorContains(t, f.fails(), "osImageURL: nodes refuse it")
	assert.Equal(t, nodestate.StateUnreconcilable, f.record().State)
	assert.Zero(t, f.m.boots)
}

// TestLogLevelOfTheCluster has the agent log as much as the MachineConfiguration says, while nothing else happens.
func TestLogLevelOfTheCluster(t *testing.T) {
	f := newFixture(t)
	var wanted opv1.LogLevel
	f.through(func(o *daemon.Options) { o.Verbosity = func(l opv1.LogLevel) { wanted = l } })
	f.join(rendered("rendered-level-1"), "")
	_, err := f.agent.Step(t.Context())
	require.NoError(t, err)
	assert.Equal(t, opv1.Normal, wanted, "there is no object")
	object := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{"managementState": "Managed",
		"logLevel": "Debug"}}}
	object.SetAPIVersion("operator.openshift.io/v1")
	object.SetKind("MachineConfiguration")
	object.SetName("cluster")
	f.create(object)
	_, err = f.agent.Step(t.Context())
	require.NoError(t, err)
	assert.Equal(t, opv1.Debug, wanted)
}

func TestADrainThatTakesTooLongIsTold(t *testing.T) {
	f := newFixture(t)
	f.join(rendered("rendered-slow-1", "/etc/a=1"), image(1))
	later := atomic.Int64{}
	f.through(func(o *daemon.Options) {
		o.Now = func() time.Time { return time.Now().Add(time.Duration(later.Load())) }
	})
	f.aim(rendered("rendered-slow-2", "/etc/a=2"), image(2))
	for range 5 { // nobody drains it
		_, err := f.agent.Step(t.Context())
		require.NoError(t, err)
	}
	assert.Zero(t, len(f.events()["FailedToDrain"]))
	later.Store(int64(2 * time.Hour))
	for range 3 {
		_, err := f.agent.Step(t.Context())
		require.NoError(t, err)
	}
	assert.Equal(t, 1, f.reasons()["FailedToDrain"])
	assert.Equal(t, nodestate.StateWorking, f.record().State)
}

func TestANodeThatStaysCordonedIsTold(t *testing.T) {
	f := newFixture(t)
	f.join(rendered("rendered-cordoned-1", "/etc/a=1"), image(1))
	f.aim(rendered("rendered-cordoned-2", "/etc/a=2"), image(2))
	f.reaches(daemon.Uncordoning)
	later := atomic.Int64{}
	f.through(func(o *daemon.Options) {
		o.Now = func() time.Time { return time.Now().Add(time.Duration(later.Load())) }
	})
	for range 3 { // nobody uncordons it
		_, err := f.agent.Step(t.Context())
		require.NoError(t, err)
	}
	assert.Zero(t, f.reasons()["FailedToUncordon"])
	later.Store(int64(11 * time.Minute))
	for range 3 {
		_, err := f.agent.Step(t.Context())
		require.NoError(t, err)
	}
	assert.Equal(t, 1, f.reasons()["FailedToUncordon"])
}

// An update that changes kernel arguments alone stages the image that runs.
func TestAnImageThatStaysIsTold(t *testing.T) {
	f := newFixture(t)
	f.join(rendered("rendered-skips-1", "/etc/a=1"), image(1))
	f.reasons()
	next := rendered("rendered-skips-2", "/etc/a=1")
	next.Spec.KernelArguments = []string{"audit=1"}
	f.aim(next, image(1))
	f.settle()
	got := f.reasons()
	assert.Equal(t, []int{1, 1, 1, 0, 0}, []int{got["OSUpgradeSkipped"], got["OSUpdateStarted"], got["Reboot"],
		got["InClusterUpgrade"], got["OSUpgradeApplied"]}, "%v", got)
}

// A node that is unlike its target after an update is not done.
func TestANodeThatIsUnlikeItsTargetIsTold(t *testing.T) {
	f := newFixture(t)
	f.join(rendered("rendered-unlike-1", "/etc/a=1"), image(1))
	f.aim(rendered("rendered-unlike-2", "/etc/a=2"), image(2))
	f.reaches(daemon.Verifying)
	require.NoError(t, os.WriteFile(filepath.Join(f.m.root, "/etc/a"), []byte("other"), 0o644))
	require.Error(t, f.fails())
	require.Error(t, f.step())
	assert.Equal(t, 1, f.reasons()["OnDiskStateValidationFailed"])
	assert.NotEqual(t, nodestate.StateDone, f.record().State)
}

func TestABootOfANodeThatIsBehindIsTold(t *testing.T) {
	f := newFixture(t)
	f.join(rendered("rendered-resync-1", "/etc/a=1"), image(1))
	f.aim(rendered("rendered-resync-2", "/etc/a=2"), image(2))
	f.restart()
	f.settle()
	got := f.reasons()
	assert.Equal(t, 1, got["BootResync"])
	assert.Zero(t, got["ConfigDriftMonitorStopped"], "nothing was watched")
}

func TestMetricsByMCDsNames(t *testing.T) {
	f := newFixture(t)
	require.NoError(t, os.MkdirAll(filepath.Join(f.m.root, "etc"), 0o755))
	require.NoError(t, os.WriteFile(filepath.Join(f.m.root, "etc/os-release"),
		[]byte("ID=\"rhcos\"\nVERSION_ID=\"4.20\"\nOSTREE_VERSION='420.94.1-0'\n"), 0o644))
	f.restart()
	f.join(rendered("rendered-metrics-1", "/etc/a=1"), image(1))
	require.NoError(t, f.step())
	text := f.metrics()
	for _, want := range []string{
		`mcd_host_os_and_version{os="RHCOS",version="420.94.1-0"} 1` + "\n", "mcd_pivot_errors_total 0\n",
		"mcd_kubelet_state 0\n", "mcd_reboots_failed_total 0\n", "# TYPE mcd_reboots_failed_total counter\n",
		"# TYPE mcd_pivot_errors_total gauge\n", `mcd_state{state="Done",reason=""} `,
		`mcd_update_state{config="rendered-metrics-1",err=""} `} {
		assert.Contains(t, text, want)
	}
	for line := range strings.Lines(text) {
		name, _, _ := strings.Cut(strings.TrimPrefix(strings.TrimPrefix(line, "# HELP "), "# TYPE "), " ")
		name, _, _ = strings.Cut(name, "{")
		assert.Contains(t, text, "# HELP "+name+" ", "each has its help")
	}
	f.m.refuse = errors.New(`registry says "401"` + "\n" + `C:\no`)
	f.aim(rendered("rendered-metrics-2", "/etc/a=2"), image(2))
	require.Error(t, f.fails())
	require.Error(t, f.step())
	_, n := f.metric("mcd_pivot_errors_total ")
	assert.Equal(t, "2", n)
	series, _ := f.metric("mcd_state{")
	assert.Contains(t, series, `registry says \"401\"\nC:\\no"}`)
	f.m.refuse = nil
	f.settle()
	_, n = f.metric("mcd_pivot_errors_total ")
	assert.Equal(t, "0", n)
}

// refusing is a machine whose init system does not reboot.
type refusing struct{ *machine }

func (refusing) Reboot(context.Context) error { return errors.New("transaction is destructive") }

func TestARebootThatIsRefusedIsCounted(t *testing.T) {
	f := newFixture(t)
	f.join(rendered("rendered-refused-1", "/etc/a=1"), image(1))
	f.through(func(o *daemon.Options) { o.Deployer = refusing{f.m} })
	f.aim(rendered("rendered-refused-2", "/etc/a=2"), image(2))
	require.ErrorContains(t, f.fails(), "destructive")
	_, n := f.metric("mcd_reboots_failed_total ")
	assert.Equal(t, "1", n)
	require.ErrorContains(t, f.fails(), "destructive", "it is asked for again")
	_, n = f.metric("mcd_reboots_failed_total ")
	assert.Equal(t, "2", n)
}

func TestKubeletsHealthIsCounted(t *testing.T) {
	f := newFixture(t)
	f.join(rendered("rendered-health-1"), image(1))
	ill := atomic.Bool{}
	ill.Store(true)
	asked := make(chan struct{}, 1)
	kubelet := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, _ *http.Request) {
		if ill.Load() {
			rw.WriteHeader(http.StatusInternalServerError)
		}
		select {
		case asked <- struct{}{}:
		default:
		}
	}))
	defer kubelet.Close()
	f.through(func(o *daemon.Options) {
		o.KubeletHealthz, o.KubeletInterval = kubelet.URL, 10*time.Millisecond
	})
	ctx, cancel := context.WithCancel(t.Context())
	over := make(chan error, 1)
	agent := f.agent
	go func() { over <- agent.Run(ctx) }()
	<-asked
	require.Eventually(t, func() bool {
		_, n := f.metric("mcd_kubelet_state ")
		return !slices.Contains([]string{"0", "1", "2"}, n)
	}, time.Minute, 10*time.Millisecond, "MCO's alert fires above two")
	ill.Store(false)
	require.Eventually(t, func() bool { _, n := f.metric("mcd_kubelet_state "); return n == "0" }, time.Minute,
		10*time.Millisecond)
	cancel()
	require.NoError(t, <-over)
}
