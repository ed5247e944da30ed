package buildcontroller

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"
	ctrllog "sigs.k8s.io/controller-runtime/pkg/log"

	"dayone.dev/dayone/manifests"
)

// Sizes of the fleet for which figures are promised.
const (
	fleetPools = 500
	fleetNodes = 5000
	// steadyFor is how long the idle controller is watched.
	steadyFor = 10 * time.Second
	// fleetPatience bounds every wait of the benchmark.
	fleetPatience = 4 * time.Minute
)

// controllerVariable makes the test binary run as the controller alone, so that its memory and time can be read from
// outside.
const controllerVariable = "DAYONE_BENCH_KUBECONFIG"

// runAsController is the controller's process: it works until its standard input ends.
func runAsController(kubeconfig string) error {
	cfg, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return err
	}
	w := &world{images: newStandInRegistry(), clock: &clock{}}
	o := w.options()
	o.Log.Logger.SetOutput(io.Discard)
	ctrllog.SetLogger(logr.Discard())
	stop := startController(fatal{}, rest.CopyConfig(cfg), Add, o)
	fmt.Println("started")
	_, err = io.Copy(io.Discard, os.Stdin)
	stop()
	return err
}

// fatal ends the process where a test would fail.
type fatal struct{ testing.TB }

func (fatal) Helper() {}

func (fatal) Errorf(format string, args ...any) { fmt.Fprintf(os.Stderr, format+"\n", args...) }

func (fatal) FailNow() { os.Exit(1) }

// BenchmarkFleet measures the controller with 500 opted-in pools and 5,000 nodes.
func BenchmarkFleet(b *testing.B) {
	env := shared.Env(b)
	install(b, env)
	w := &world{t: b, client: env.Client}
	w.clean()
	w.basics()
	fleet(b, env.Client)
	kubeconfig := env.Kubeconfig(b)
	first := startProcess(b, kubeconfig)
	waitFor(b, "every pool has its image", func() bool { return settledPools(b, env.Client) == fleetPools })
	first.stop(b)
	for edited := 0; b.Loop(); edited++ {
		// A fresh start has to look at every pool: conditions were removed to see when it has.
		unsettle(b, env.Client)
		began := time.Now()
		p := startProcess(b, kubeconfig)
		waitFor(b, "every pool was looked at", func() bool { return settledPools(b, env.Client) == fleetPools-edited })
		b.ReportMetric(time.Since(began).Seconds(), "start-s")
		time.Sleep(2 * time.Second) // what is under way ends
		before, cpu := versions(b, env.Client), p.cpu(b)
		time.Sleep(steadyFor)
		b.ReportMetric((p.cpu(b)-cpu).Seconds()/steadyFor.Seconds()*100, "steady-cpu-%")
		b.ReportMetric(float64(changed(before, versions(b, env.Client))), "steady-writes")
		b.ReportMetric(editToJob(b, w, fmt.Sprintf("pool-%03d", edited)).Seconds()*1000, "edit-to-job-ms")
		b.ReportMetric(p.peakMiB(b), "MiB")
		p.stop(b)
	}
}

// fleet makes pools whose images were built before the installation, so that no 500 builds are needed.
func fleet(b *testing.B, c client.Client) {
	ctx := context.Background()
	for i := range fleetPools {
		pool := fmt.Sprintf("pool-%03d", i)
		image := fmt.Sprintf("%s/os/custom@sha256:%064x", registry, i+1)
		rendered := "rendered-" + pool + "-a"
		mc := &mcfgv1.MachineConfig{ObjectMeta: metav1.ObjectMeta{Name: rendered}}
		mc.Spec.Config.Raw = ignition(strings.Repeat("x", 16<<10) + pool)
		config := newConfig(pool, plainText)
		config.Annotations = map[string]string{manifests.AnnotationPreBuiltImage: image}
		for _, o := range []client.Object{mc, component(pool, image), newPool(pool, rendered), config} {
			require.NoError(b, c.Create(ctx, o))
		}
	}
	var group errgroup.Group
	group.SetLimit(8)
	for i := range fleetNodes {
		group.Go(func() error {
			return c.Create(ctx, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("node-%04d", i),
				Annotations: map[string]string{manifests.AnnotationCurrentImage: fmt.Sprintf("%s/os/custom@sha256:%064x", registry,
					i%fleetPools+1)}}})
		})
	}
	require.NoError(b, group.Wait())
}

func settledPools(b *testing.B, c client.Client) int {
	var list mcfgv1.MachineOSConfigList
	require.NoError(b, c.List(context.Background(), &list))
	n := 0
	for i := range list.Items {
		if condition(&list.Items[i], ConditionAvailable).Status == metav1.ConditionTrue {
			n++
		}
	}
	return n
}

// unsettle takes the conditions away.
func unsettle(b *testing.B, c client.Client) {
	var list mcfgv1.MachineOSConfigList
	require.NoError(b, c.List(context.Background(), &list))
	for i := range list.Items {
		o := &list.Items[i]
		o.Status.Conditions = nil
		require.NoError(b, c.Status().Update(context.Background(), o))
	}
}

// versions are those of every object that the controller may write.
func versions(b *testing.B, c client.Client) map[types.UID]string {
	out := map[types.UID]string{}
	for _, list := range []client.ObjectList{&mcfgv1.MachineOSConfigList{}, &mcfgv1.MachineOSBuildList{},
		&mcfgv1.MachineConfigPoolList{}, &batchv1.JobList{}} {
		require.NoError(b, c.List(context.Background(), list))
		for _, o := range itemsOf(b, list) {
			out[o.GetUID()] = o.GetResourceVersion()
		}
	}
	return out
}

func changed(before, after map[types.UID]string) int {
	n := 0
	for uid, v := range after {
		if before[uid] != v {
			n++
		}
	}
	return n
}

// editToJob is the time from the answer to an edit until the watch shows the Job.
func editToJob(b *testing.B, w *world, pool string) time.Duration {
	b.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), fleetPatience)
	defer cancel()
	env := shared.Env(b)
	watcher, err := client.NewWithWatch(env.Config, client.Options{Scheme: env.Scheme})
	require.NoError(b, err)
	jobs, err := watcher.Watch(ctx, &batchv1.JobList{}, client.InNamespace(namespace))
	require.NoError(b, err)
	defer jobs.Stop()
	w.editText(pool, plainText+"RUN echo "+strconv.FormatInt(time.Now().UnixNano(), 36)+"\n")
	began := time.Now()
	for e := range jobs.ResultChan() {
		if j, ok := e.Object.(*batchv1.Job); ok && j.CreationTimestamp.After(began.Add(-2*time.Second)) {
			return time.Since(began)
		}
	}
	require.FailNow(b, "no Job came")
	return 0
}

func waitFor(b *testing.B, what string, is func() bool) {
	b.Helper()
	for end := time.Now().Add(fleetPatience); !is(); time.Sleep(100 * time.Millisecond) {
		require.True(b, time.Now().Before(end), what)
	}
}

// process is a controller in a process of its own.
type process struct {
	cmd   *exec.Cmd
	stdin io.Closer
}

func startProcess(b *testing.B, kubeconfig string) *process {
	b.Helper()
	p := &process{cmd: exec.Command(os.Args[0])}
	p.cmd.Env = append(os.Environ(), controllerVariable+"="+kubeconfig)
	p.cmd.Stderr = os.Stderr
	stdin, err := p.cmd.StdinPipe()
	require.NoError(b, err)
	p.stdin = stdin
	out, err := p.cmd.StdoutPipe()
	require.NoError(b, err)
	require.NoError(b, p.cmd.Start())
	_, err = bufio.NewReader(out).ReadString('\n')
	require.NoError(b, err)
	return p
}

func (p *process) stop(b *testing.B) {
	b.Helper()
	require.NoError(b, p.stdin.Close())
	require.NoError(b, p.cmd.Wait())
}

// ticks is the kernel's unit of process times, in each second (proc(5), USER_HZ).
const ticks = 100

// cpu is the time that the process has used.
func (p *process) cpu(b *testing.B) time.Duration {
	b.Helper()
	raw, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", p.cmd.Process.Pid))
	require.NoError(b, err)
	fields := strings.Fields(string(raw[strings.LastIndexByte(string(raw), ')')+1:]))
	user, err := strconv.Atoi(fields[11])
	require.NoError(b, err)
	system, err := strconv.Atoi(fields[12])
	require.NoError(b, err)
	return time.Duration(user+system) * time.Second / ticks
}

// peakMiB is the most memory that the process had.
func (p *process) peakMiB(b *testing.B) float64 {
	b.Helper()
	raw, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", p.cmd.Process.Pid))
	require.NoError(b, err)
	for line := range strings.Lines(string(raw)) {
		if rest, ok := strings.CutPrefix(line, "VmHWM:"); ok {
			kib, err := strconv.Atoi(strings.Fields(rest)[0])
			require.NoError(b, err)
			return float64(kib) / 1024
		}
	}
	return 0
}
