package render_test

import (
	"encoding/base64"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"dayone.dev/dayone/manifests"
	"dayone.dev/dayone/manifests/render"
)

// benchVersions are what the made inputs carry.
var benchVersions = render.Versions{Raw: "v1.0.0-bench", Payload: "1.0.0-bench"}

// writeMany writes n MachineConfigs of five files each, half for masters, half for workers, and what else rendering
// needs.
func writeMany(tb testing.TB, n int) string {
	tb.Helper()
	dir := tb.TempDir()
	put := func(name, text string) {
		require.NoError(tb, os.WriteFile(filepath.Join(dir, name+".yaml"), []byte(text), 0o600))
	}
	put("a-controllerconfig",
		"apiVersion: machineconfiguration.openshift.io/v1\nkind: ControllerConfig\nmetadata:\n"+
			"  name: machine-config-controller\n  annotations:\n"+
			"    machineconfiguration.openshift.io/generated-by-version: "+benchVersions.Raw+"\nspec:\n"+
			"  baseOSContainerImage: registry.example.com/os/base@sha256:"+strings.Repeat("0", 64)+"\n")
	put("a-featuregate",
		"apiVersion: config.openshift.io/v1\nkind: FeatureGate\nmetadata:\n  name: cluster\nstatus:\n  featureGates:\n"+
			"  - version: "+benchVersions.Payload+"\n")
	for _, role := range []string{"master", "worker"} {
		put("b-"+role, fmt.Sprintf(
			"apiVersion: machineconfiguration.openshift.io/v1\nkind: MachineConfigPool\nmetadata:\n  name: %[1]s\nspec:\n"+
				"  machineConfigSelector:\n"+
				"    matchLabels:\n      machineconfiguration.openshift.io/role: %[1]s\n", role))
	}
	for i := range n {
		var b strings.Builder
		fmt.Fprintf(&b,
			"apiVersion: machineconfiguration.openshift.io/v1\nkind: MachineConfig\nmetadata:\n  name: 50-bench-%05d\n"+
				"  labels:\n"+
				"    machineconfiguration.openshift.io/role: %s\nspec:\n  kernelArguments: [bench.arg=%d]\n  config:\n"+
				"    ignition:\n      version: 3.4.0\n    storage:\n      files:\n",
			i, []string{"master", "worker"}[i%2], i)
		for k := range 5 {
			body := base64.StdEncoding.EncodeToString([]byte(strings.Repeat(fmt.Sprintf("key-%d-%d = value\n", i, k), 14)))
			fmt.Fprintf(&b,
				"      - path: /etc/bench.d/%05d/%d.conf\n        mode: 420\n        contents:\n"+
					"          source: data:text/plain;charset=utf-8;base64,%s\n", i, k, body)
		}
		put(fmt.Sprintf("c-%05d", i), b.String())
	}
	return dir
}

// BenchmarkCommand is the whole work of dayone render: read, render, write. The time per configuration must not grow
// with n.
func BenchmarkCommand(b *testing.B) {
	for _, n := range []int{1000, 5000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			in, out := writeMany(b, n), b.TempDir()
			b.ReportAllocs()
			before, runs := cpuTime(b), 0
			for b.Loop() {
				runs++
				set, err := manifests.ReadDir(in, manifests.ReadOptions{})
				require.NoError(b, err)
				result, err := render.Render(set, render.Options{Versions: benchVersions})
				require.NoError(b, err)
				require.NoError(b, render.Write(out, set, result))
			}
			b.ReportMetric((cpuTime(b)-before).Seconds()/float64(runs), "cpu-s/op")
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*n)/1000, "µs/config")
		})
	}
}

// BenchmarkRender is rendering alone: parsed objects in, names out.
func BenchmarkRender(b *testing.B) {
	for _, n := range []int{1000, 5000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			set, err := manifests.ReadDir(writeMany(b, n), manifests.ReadOptions{})
			require.NoError(b, err)
			b.ReportAllocs()
			for b.Loop() {
				_, err := render.Render(set, render.Options{Versions: benchVersions})
				require.NoError(b, err)
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*n)/1000, "µs/config")
		})
	}
}

// cpuTime is what this process has used so far.
func cpuTime(tb testing.TB) time.Duration {
	tb.Helper()
	var usage syscall.Rusage
	require.NoError(tb, syscall.Getrusage(syscall.RUSAGE_SELF, &usage))
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}
