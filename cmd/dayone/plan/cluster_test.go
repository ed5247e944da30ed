package plan_test

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"dayone.dev/dayone/build"
	"dayone.dev/dayone/build/machineosbuild"
	"dayone.dev/dayone/build/mcobuild"
	"dayone.dev/dayone/cmd/internal/cli"
	"dayone.dev/dayone/hack/kube"
	"dayone.dev/dayone/hack/kube/kubetest"
	"dayone.dev/dayone/manifests"
)

const plannedConfig = "rendered-worker-new"

// rolloutWorld is a pool of four workers on the way to a new config: one has it, one is at work, one waits and one is
// cordoned.
func rolloutWorld() []client.Object {
	pool := &mcfgv1.MachineConfigPool{ObjectMeta: metav1.ObjectMeta{Name: "worker"}, Spec: mcfgv1.MachineConfigPoolSpec{
		NodeSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"node-role.kubernetes.io/worker": ""}},
		Configuration: mcfgv1.MachineConfigPoolStatusConfiguration{
			ObjectReference: corev1.ObjectReference{Name: plannedConfig}}}}
	objects := []client.Object{pool}
	for i, c := range []struct{ name, current, desired, state string }{
		{"w0", plannedConfig, plannedConfig, "Done"}, {"w1", "rendered-worker-old", plannedConfig, "Working"},
		{"w2", "rendered-worker-old", "rendered-worker-old", "Done"}, {"w3", "rendered-worker-old", "rendered-worker-old",
			"Done"}} {
		n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: c.name,
			Labels:            map[string]string{"node-role.kubernetes.io/worker": ""},
			CreationTimestamp: metav1.NewTime(time.Unix(int64(i), 0)), Annotations: map[string]string{
				manifests.AnnotationCurrentConfig: c.current, manifests.AnnotationDesiredConfig: c.desired,
				manifests.AnnotationState: c.state}}}
		n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}
		n.Spec.Unschedulable = c.name == "w3"
		objects = append(objects, n)
	}
	return append(objects, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "stray"}})
}

// writeDump writes the world as must-gather does, one object a file, with a list as kubectl writes it for the nodes.
func writeDump(t testing.TB, objects []client.Object) string {
	t.Helper()
	dir := t.TempDir()
	scheme, err := kubetest.NewScheme()
	require.NoError(t, err)
	var nodes []json.RawMessage
	for _, o := range objects {
		gvks, _, err := scheme.ObjectKinds(o)
		require.NoError(t, err)
		o.GetObjectKind().SetGroupVersionKind(gvks[0])
		raw, err := json.Marshal(o)
		require.NoError(t, err)
		if gvks[0].Kind == "Node" {
			nodes = append(nodes, raw)
			continue
		}
		text, err := yaml.JSONToYAML(raw)
		require.NoError(t, err)
		folder := filepath.Join(dir, "cluster-scoped-resources", gvks[0].Group, strings.ToLower(gvks[0].Kind)+"s")
		require.NoError(t, os.MkdirAll(folder, 0o755))
		require.NoError(t, os.WriteFile(filepath.Join(folder, o.GetName()+".yaml"), append([]byte("---\n"), text...), 0o600))
	}
	list, err := json.Marshal(map[string]any{"apiVersion": "v1", "kind": "List", "items": nodes})
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(dir, "nodes.json"), list, 0o600))
	for name, text := range map[string]string{"version": "openshift.io 4.20",
		"event-filter.yaml": "- openshift.io\n- a list is no object\n",
		"pods.yaml":         "kind: Pod\napiVersion: v1\nmetadata: {name: p, annotations: {Node: x}}\n"} {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600))
	}
	return dir
}

func TestPlanOfADump(t *testing.T) {
	t.Setenv("KUBECONFIG", "/nowhere")
	dir := writeDump(t, rolloutWorld())
	code, out, errs := dayone(t, "cluster", "plan", "--from", dir, "-o", "json", "--at", "2026-01-31T22:00:00Z")
	require.Equal(t, cli.ExitOK, code, errs)
	var p struct {
		Source, At string
		Recorded   bool
		Pools      []struct {
			Pool     string
			Target   struct{ Config string }
			Next     []string
			Done     bool
			Counts   map[string]int
			Verdicts []struct {
				Node, Phase, Reason string
				Position            int
			}
		}
	}
	require.NoError(t, json.Unmarshal([]byte(out), &p), out)
	assert.Equal(t, "2026-01-31T22:00:00Z", p.At)
	assert.True(t, p.Recorded)
	require.Len(t, p.Pools, 1)
	assert.Equal(t, plannedConfig, p.Pools[0].Target.Config)
	assert.Equal(t, []string{}, p.Pools[0].Next)
	assert.False(t, p.Pools[0].Done)
	assert.Equal(t, map[string]int{"nodes": 4, "updated": 1, "ready": 1, "unavailable": 2, "degraded": 0},
		p.Pools[0].Counts)
	var phases []string
	for _, v := range p.Pools[0].Verdicts {
		phases = append(phases, fmt.Sprintf("%s %s %s %d", v.Node, v.Phase, v.Reason, v.Position))
	}
	assert.Equal(t, []string{"w0 Updated Done 0", "w1 Updating Working 0", "w2 Waiting MaxUnavailable 1",
		"w3 Blocked Cordoned 0"}, phases)

	code, out, errs = dayone(t, "cluster", "plan", "--from", dir, "--exit-code")
	assert.Equal(t, cli.ExitAttention, code, errs)
	assert.Empty(t, errs, "an answer is no failure")
	assert.Contains(t, out, "pool worker: 1 of 4 nodes have "+plannedConfig)
	assert.Regexp(t, `w2 +Waiting +1 +MaxUnavailable`, out)
	assert.Contains(t, out, "\nno pool selects these nodes, so that no controller updates them: stray\n")
	code, _, errs = dayone(t, "cluster", "plan", "--from", dir, "--pool", "gpu")
	assert.Equal(t, cli.ExitFailed, code)
	assert.Contains(t, errs, "no such pool; the pools are worker")
}

// TestAPoolThatComplains has every node of a pool at its target, but that is not what was asked for.
func TestAPoolThatComplains(t *testing.T) {
	t.Setenv("KUBECONFIG", "/nowhere")
	const says = "there is no Secret dayone/os-push; create it"
	world := func(kind mcfgv1.MachineConfigPoolConditionType) []client.Object {
		objects := rolloutWorld()[:2]
		for _, c := range []mcfgv1.MachineConfigPoolConditionType{mcfgv1.MachineConfigPoolDegraded, kind} {
			pool := objects[0].(*mcfgv1.MachineConfigPool)
			pool.Status.Conditions = append(pool.Status.Conditions, mcfgv1.MachineConfigPoolCondition{Type: c,
				Status: corev1.ConditionTrue, Reason: "BuildFailed", Message: says})
		}
		mosc := &mcfgv1.MachineOSConfig{ObjectMeta: metav1.ObjectMeta{Name: "worker"}}
		mosc.Spec.MachineConfigPool.Name = "worker"
		mosc.Status.Conditions = []metav1.Condition{{Type: manifests.ConditionOptedIn, Status: metav1.ConditionFalse,
			Reason: "SecretMissing"}}
		earlier := &mcfgv1.MachineOSBuild{ObjectMeta: metav1.ObjectMeta{Name: "worker-1"}}
		earlier.Spec.MachineConfig.Name, earlier.Spec.MachineOSConfig.Name = plannedConfig, "worker"
		require.NoError(t, machineosbuild.Move(earlier, machineosbuild.Failed, machineosbuild.Cause{
			Class: build.ClassUser, Message: "of an earlier Containerfile"}, time.Unix(1_700_000_001, 0)))
		return append(objects, mosc, earlier)
	}
	for _, c := range []struct {
		name string
		kind mcfgv1.MachineConfigPoolConditionType
		node int
	}{
		{"no image", mcfgv1.MachineConfigPoolImageBuildDegraded, cli.ExitAttention},
		{"no rendered config", mcfgv1.MachineConfigPoolRenderDegraded, cli.ExitAttention},
		{"another node failed", mcfgv1.MachineConfigPoolNodeDegraded, cli.ExitUnderWay},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := writeDump(t, world(c.kind))
			for _, asks := range []struct {
				args []string
				code int
			}{{[]string{"plan"}, cli.ExitAttention}, {[]string{"why", "worker"}, cli.ExitAttention},
				{[]string{"why", "w0"}, c.node}} {
				args := slices.Concat([]string{"cluster"}, asks.args, []string{"--from", dir, "--exit-code"})
				code, out, errs := dayone(t, args...)
				assert.Equal(t, asks.code, code, "%v %s", asks.args, errs)
				assert.Contains(t, out, string(c.kind)+" (BuildFailed): "+says)
				assert.NotContains(t, out, "\n  to fix: Degraded")
				assert.NotContains(t, out, "earlier Containerfile", "it is not what must be mended")
			}
			_, out, _ := dayone(t, "cluster", "plan", "--from", dir, "-o", "json")
			assert.Contains(t, out, `"conditions"`)
		})
	}
}

func TestWhyOfADump(t *testing.T) {
	t.Setenv("KUBECONFIG", "/nowhere")
	objects := rolloutWorld()
	objects[0].SetAnnotations(map[string]string{manifests.AnnotationRebootPolicy: "SoftIfPossible"})
	w0 := objects[1].GetAnnotations()
	w0[manifests.AnnotationSoftReboot] = "soft"
	w0[manifests.AnnotationLastBoot] = "hard: the deployments differ in udev rules"
	dir := writeDump(t, objects)
	for _, want := range []struct {
		name string
		code int
		text []string
	}{
		{"w0", cli.ExitOK, []string{"Updated (Done)", "has the target",
			"policy SoftIfPossible; the agent found soft; last hard: the deployments differ in udev rules"}},
		{"w1", cli.ExitUnderWay, []string{"Updating (Working)", "desired: " + plannedConfig}},
		{"node/w2", cli.ExitUnderWay, []string{"Waiting (MaxUnavailable)", "1 of the 1 that", "w1: is on its way",
			"w3: was cordoned"}},
		{"w3", cli.ExitAttention, []string{"Blocked (Cordoned)", "uncordon it"}},
		{"stray", cli.ExitAttention, []string{"no pool's nodeSelector takes the node"}},
	} {
		code, out, errs := dayone(t, "cluster", "why", want.name, "--from", dir, "--exit-code")
		assert.Equal(t, want.code, code, errs)
		for _, text := range want.text {
			assert.Contains(t, out, text, want.name)
		}
	}
	code, _, errs := dayone(t, "cluster", "why", "w9", "--from", dir)
	assert.Equal(t, cli.ExitFailed, code)
	assert.Contains(t, errs, "no such node and no such pool; the nodes are stray, w0, w1, w2, w3; the pools are worker")
}

// TestWhyNamesAFailedBuild asks of a node and of its pool while the pool's newest build has failed: with what dayone
// keeps of it beside a Machine Config Operator, and without.
func TestWhyNamesAFailedBuild(t *testing.T) {
	t.Setenv("KUBECONFIG", "/nowhere")
	made := func(name string, age time.Duration, state machineosbuild.State, cause machineosbuild.Cause) client.Object {
		b := &mcfgv1.MachineOSBuild{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(name),
			CreationTimestamp: metav1.NewTime(time.Unix(1_700_000_000, 0).Add(-age))}}
		b.Spec.MachineConfig.Name, b.Spec.MachineOSConfig.Name = plannedConfig, "worker"
		require.NoError(t, machineosbuild.Move(b, state, cause, time.Unix(1_700_000_001, 0)))
		return b
	}
	mosc := &mcfgv1.MachineOSConfig{ObjectMeta: metav1.ObjectMeta{Name: "worker"}}
	mosc.Spec.MachineConfigPool.Name = "worker"
	said := machineosbuild.Cause{Reason: "ContainerfileFailed", Class: build.ClassUser, Message: "exit status 1", Line: 3,
		Instruction: "RUN false", Next: "correct this instruction"}
	world := append(rolloutWorld(), mosc, made("worker-1", time.Hour, machineosbuild.Succeeded, machineosbuild.Cause{}))
	kept := mcobuild.Record{Build: "worker-2", Config: "worker", Pool: "worker",
		Attempts: mcobuild.Attempts{UID: "worker-2", Outcome: "Failed"}, Cause: &mcobuild.Cause{Failure: build.Failure{
			Class: build.ClassTransient, Message: "the mirror does not answer", Next: "check network and mirrors"}}}
	record, err := kept.ConfigMap("dayone")
	require.NoError(t, err)
	for _, c := range []struct {
		name  string
		more  []client.Object
		want  []string
		never string
	}{
		{"the builder said why", []client.Object{made("worker-2", 0, machineosbuild.Failed, said)},
			[]string{"MachineOSBuild worker-2 failed (user): exit status 1", "line 3 of the Containerfile: RUN false",
				"next:    correct this instruction", "log:     dayone cluster logs worker"}, ""},
		{"dayone keeps why", []client.Object{made("worker-2", 0, machineosbuild.Failed, machineosbuild.Cause{}), record},
			[]string{"worker-2 failed (transient): the mirror does not answer", "next:    check network and mirrors"}, ""},
		{"an earlier one failed", []client.Object{made("worker-0", 2*time.Hour, machineosbuild.Failed, said)}, nil,
			"failed (user)"},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := writeDump(t, append(slices.Clone(world), c.more...))
			for _, of := range []string{"w2", "node/w2", "worker", "pool/worker"} {
				code, out, errs := dayone(t, "cluster", "why", of, "--from", dir, "--exit-code")
				for _, text := range c.want {
					assert.Contains(t, out, text, of)
				}
				if c.never != "" {
					assert.NotContains(t, out, c.never)
					continue
				}
				assert.Equal(t, cli.ExitAttention, code, errs)
			}
		})
	}
	dir := writeDump(t, append(slices.Clone(world), made("worker-2", 0, machineosbuild.Failed, said)))
	_, out, errs := dayone(t, "cluster", "why", "worker", "--from", dir, "-o", "json")
	var answer struct {
		Pools       []struct{ Pool string }
		FailedBuild struct {
			MachineOSBuild, Class, Next string
			Line                        int
		}
	}
	require.NoError(t, json.Unmarshal([]byte(out), &answer), errs)
	require.Len(t, answer.Pools, 1)
	assert.Equal(t, "worker-2", answer.FailedBuild.MachineOSBuild)
	assert.Equal(t, 3, answer.FailedBuild.Line)
	assert.Equal(t, "correct this instruction", answer.FailedBuild.Next)
	code, _, errs := dayone(t, "cluster", "why", "pool/none", "--from", dir)
	assert.Equal(t, cli.ExitFailed, code)
	assert.Contains(t, errs, "no such pool")
}

func TestWhatNoDumpIs(t *testing.T) {
	t.Setenv("KUBECONFIG", "/nowhere")
	broken := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(broken, "a.yaml"), []byte("kind: Node\n  bad: [openshift.io\n"), 0o600))
	for _, c := range []struct {
		name string
		args []string
		code int
		want string
	}{
		{"an empty directory", []string{"--from", t.TempDir()}, cli.ExitFailed,
			"kubectl get nodes,machineconfigpools"},
		{"broken YAML", []string{"--from", broken}, cli.ExitFailed, "a.yaml"},
		{"no time", []string{"--from", broken, "--at", "soon"}, cli.ExitUsage, "2026-01-31T22:00:00Z"},
		{"a dump and a kubeconfig", []string{"--from", broken, "--kubeconfig", "k"}, cli.ExitUsage, "keep one of them"},
		{"a dump and a context", []string{"--from", broken, "--context", "c"}, cli.ExitUsage, "--from names a directory"},
		{"neither directory nor kubeconfig", []string{"--from", "/nowhere/at/all"}, cli.ExitFailed, "/nowhere/at/all"},
	} {
		t.Run(c.name, func(t *testing.T) {
			code, _, errs := dayone(t, append([]string{"cluster", "plan"}, c.args...)...)
			assert.Equal(t, c.code, code, errs)
			assert.Contains(t, errs, c.want)
		})
	}
}

// TestPlanOfALiveClusterIsThatOfItsDump asks an API server and then kubectl's own dump of it.
func TestPlanOfALiveClusterIsThatOfItsDump(t *testing.T) {
	e := kubetest.Start(t, kubetest.Options{})
	for _, o := range rolloutWorld() {
		n, isNode := o.(*corev1.Node)
		o.SetCreationTimestamp(metav1.Time{})
		require.NoError(t, e.Client.Create(t.Context(), o))
		if isNode {
			n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}
			require.NoError(t, e.Client.Status().Update(t.Context(), n))
		}
	}
	kubeconfig := e.Kubeconfig(t)
	at := "2026-01-31T22:00:00Z"
	code, live, errs := dayone(t, "cluster", "plan", "--kubeconfig", kubeconfig, "-o", "yaml", "--at", at)
	require.Equal(t, cli.ExitOK, code, errs)
	code, again, errs := dayone(t, "cluster", "plan", "--from", kubeconfig, "-o", "yaml", "--at", at)
	require.Equal(t, cli.ExitOK, code, errs)
	assert.Equal(t, live, again)
	dir := t.TempDir()
	kubectl(t, kubeconfig, filepath.Join(dir, "cluster.json"), "get",
		"nodes,machineconfigpools,machineosconfigs,machineosbuilds,machineconfignodes", "-o", "json")
	code, recorded, errs := dayone(t, "cluster", "plan", "--from", dir, "-o", "yaml", "--at", at)
	require.Equal(t, cli.ExitOK, code, errs)
	_, pools, found := strings.Cut(live, "pools:")
	require.True(t, found)
	assert.Contains(t, recorded, strings.Split(pools, "source:")[0])
	assert.Contains(t, recorded, "recorded: true")
}

// kubectl runs the tests' own kubectl and writes what it prints to a file.
func kubectl(t *testing.T, kubeconfig, file string, args ...string) {
	t.Helper()
	assets, err := kube.Assets(t.Context(), nil)
	require.NoError(t, err)
	out, err := exec.CommandContext(t.Context(), filepath.Join(assets, "kubectl"),
		append([]string{"--kubeconfig", kubeconfig}, args...)...).Output()
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(file, out, 0o600))
}
