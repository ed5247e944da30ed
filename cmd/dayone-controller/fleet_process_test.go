package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sirupsen/logrus"
	"github.com/stretchr/testify/require"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	"dayone.dev/dayone/cmd/internal/connect"
	"dayone.dev/dayone/cmd/internal/manager"
)

// asFleet makes this test binary the program with its requests counted; it holds the kubeconfig.
const asFleet = "DAYONE_CONTROLLER_TEST_FLEET"

// requests count what the program writes, by verb and resource.
type requests struct {
	mu     sync.Mutex
	counts map[string]int
}

type counting struct {
	under http.RoundTripper
	*requests
}

func (c counting) RoundTrip(q *http.Request) (*http.Response, error) {
	resp, err := c.under.RoundTrip(q)
	if q.Method == http.MethodGet || q.Method == http.MethodHead {
		return resp, err
	}
	key := q.Method + " " + resourceOf(q.URL.Path)
	if err == nil && resp.StatusCode >= http.StatusBadRequest {
		key = fmt.Sprintf("%s: %d", key, resp.StatusCode)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.counts[key]++
	return resp, err
}

// resourceOf is the resource of a request's path, with its subresource: nodes, machineconfignodes/status.
func resourceOf(path string) string {
	parts := strings.Split(strings.Trim(path, "/"), "/")
	skip := 2 // api/v1
	if parts[0] == "apis" {
		skip = 3
	}
	parts = parts[min(skip, len(parts)):]
	if len(parts) > 2 && parts[0] == "namespaces" {
		parts = parts[2:]
	}
	switch len(parts) {
	case 0:
		return path
	case 1, 2:
		return parts[0]
	}
	return parts[0] + "/" + parts[2]
}

// account is what the program says of itself.
type account struct {
	// Writes are requests other than reads, by verb and resource; refused ones have their status besides.
	Writes  map[string]int
	HeapMiB float64
	// Decisions of the node controller, and the time that they took in all.
	Decisions int
	Deciding  time.Duration
}

// total sums the writes, without events and refused ones.
func (a account) total() int {
	sum := 0
	for key, n := range a.Writes {
		if !strings.Contains(key, ":") && !strings.HasSuffix(key, " events") {
			sum += n
		}
	}
	return sum
}

// since is what has come since an earlier account.
func (a account) since(before account) account {
	out := account{Writes: map[string]int{}, HeapMiB: a.HeapMiB, Decisions: a.Decisions - before.Decisions,
		Deciding: a.Deciding - before.Deciding}
	for key, n := range a.Writes {
		if n -= before.Writes[key]; n > 0 {
			out.Writes[key] = n
		}
	}
	return out
}

// runAsFleet is the program's process: it answers each line of its input with an account, and works until the input
// ends.
func runAsFleet(kubeconfig string) error {
	cfg, err := connect.RESTConfig(kubeconfig, "")
	if err != nil {
		return err
	}
	counted := &requests{counts: map[string]int{}}
	cfg.Wrap(func(under http.RoundTripper) http.RoundTripper { return counting{under, counted} })
	s := &settings{version: version, builderImage: "registry.test:5000/builder:v1", baseImage: baseImage, nodeAgent: true}
	o := manager.Options{NoLeaderElection: true, MetricsAddress: "0", ProbeAddress: "0"}
	log := logrus.New()
	log.SetLevel(logrus.WarnLevel)
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	ended := make(chan error, 1)
	go func() { ended <- manager.Run(ctx, s.program(), o, cfg, logrus.NewEntry(log)) }()
	for in := bufio.NewScanner(os.Stdin); in.Scan(); {
		a, err := counted.account()
		if err != nil {
			return err
		}
		if err := json.NewEncoder(os.Stdout).Encode(a); err != nil {
			return err
		}
	}
	stop()
	return <-ended
}

func (r *requests) account() (account, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	a := account{Writes: r.counts}
	families, err := metrics.Registry.Gather()
	if err != nil {
		return a, err
	}
	for _, f := range families {
		if f.GetName() != "dayone_rollout_decision_seconds" {
			continue
		}
		h := f.GetMetric()[0].GetHistogram()
		a.Decisions, a.Deciding = int(h.GetSampleCount()), time.Duration(h.GetSampleSum()*float64(time.Second))
	}
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	a.HeapMiB = float64(m.HeapAlloc) / (1 << 20)
	return a, nil
}

// fleetProcess is the program in a process of its own.
type fleetProcess struct {
	cmd   *exec.Cmd
	stdin io.WriteCloser
	out   *json.Decoder
}

func startFleetProcess(t testing.TB, kubeconfig string) *fleetProcess {
	t.Helper()
	p := &fleetProcess{cmd: exec.CommandContext(context.WithoutCancel(t.Context()), os.Args[0])}
	p.cmd.Env = append(os.Environ(), asFleet+"="+kubeconfig)
	p.cmd.Stderr = t.Output()
	var err error
	p.stdin, err = p.cmd.StdinPipe()
	require.NoError(t, err)
	out, err := p.cmd.StdoutPipe()
	require.NoError(t, err)
	p.out = json.NewDecoder(out)
	require.NoError(t, p.cmd.Start())
	t.Cleanup(func() {
		require.NoError(t, p.stdin.Close())
		require.NoError(t, p.cmd.Wait())
	})
	return p
}

func (p *fleetProcess) account(t testing.TB) account {
	t.Helper()
	_, err := io.WriteString(p.stdin, "\n")
	require.NoError(t, err)
	var a account
	require.NoError(t, p.out.Decode(&a))
	return a
}

// ticks is the kernel's unit of process times, in each second (proc(5), USER_HZ).
const ticks = 100

// cpu is the time that the process has used.
func (p *fleetProcess) cpu(t testing.TB) time.Duration {
	t.Helper()
	raw, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", p.cmd.Process.Pid))
	require.NoError(t, err)
	fields := strings.Fields(string(raw[strings.LastIndexByte(string(raw), ')')+1:]))
	user, err := strconv.Atoi(fields[11])
	require.NoError(t, err)
	system, err := strconv.Atoi(fields[12])
	require.NoError(t, err)
	return time.Duration(user+system) * time.Second / ticks
}

// peakMiB is the most memory that a process had.
func peakMiB(t testing.TB, pid int) float64 {
	t.Helper()
	raw, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	require.NoError(t, err)
	for line := range strings.Lines(string(raw)) {
		if rest, ok := strings.CutPrefix(line, "VmHWM:"); ok {
			kib, err := strconv.Atoi(strings.Fields(rest)[0])
			require.NoError(t, err)
			return float64(kib) / 1024
		}
	}
	return 0
}
