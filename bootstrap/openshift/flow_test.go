package openshift_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"dayone.dev/dayone/bootstrap/handover"
	"dayone.dev/dayone/bootstrap/journal"
	"dayone.dev/dayone/bootstrap/nodes"
	"dayone.dev/dayone/bootstrap/openshift"
	"dayone.dev/dayone/bootstrap/phasetest"
	"dayone.dev/dayone/build"
	"dayone.dev/dayone/installconfig"
	"dayone.dev/dayone/manifests"
	"dayone.dev/dayone/manifests/render"
	"dayone.dev/dayone/registry/transfer"
)

// result is what the second rendering's journal entry says.
func (n *node) result() (out struct {
	Configs, Images map[string]string
	OSImageURL      bool
}) {
	j, err := journal.Open(n.order.State)
	require.NoError(n.t, err)
	require.NoError(n.t, json.Unmarshal(j.Find("render-second").Output, &out))
	return out
}

// served is the rendered config that the config server would give a pool's nodes.
func (n *node) served(pool string) *mcfgv1.MachineConfig {
	set, err := manifests.ReadDir(n.at("/etc/mcs/bootstrap/machine-pools"), manifests.ReadOptions{})
	require.NoError(n.t, err)
	for _, p := range set.Pools {
		if p.Object.Name == pool {
			raw, err := os.ReadFile(n.at("/etc/mcs/bootstrap/machine-configs/" + p.Object.Status.Configuration.Name + ".yaml"))
			require.NoError(n.t, err)
			configs, err := manifests.Read(raw, "", manifests.ReadOptions{})
			require.NoError(n.t, err)
			return configs.MachineConfigs[0].Object
		}
	}
	require.Fail(n.t, "no rendered pool", pool)
	return nil
}

func TestResumeAfterKillAnywhere(t *testing.T) {
	n := newNode(t, nil)
	require.NoError(t, n.mco())
	first := n.served("master")
	n.cluster()
	durable := map[string]bool{"render-first": true, "base": true, "build-master": true, "render-second": true,
		"cluster": true}
	var finished []string
	for _, kill := range []phasetest.Kill{{Phase: "registry", At: "ran"}, {Phase: "render-first", At: "ran"},
		{Phase: "base", At: "ran"}, {Phase: "build-master", At: "instruction"},
		{Phase: "build-master", At: "ran"}, {Phase: "render-second", At: "ran"}, {Phase: "cluster", At: "ran"},
		{Phase: "pull", At: "ran"}, {Phase: "gate", At: "ran"},
		{Phase: "hand-over", At: "images"}, {Phase: "hand-over", At: "agree"}} {
		end := n.run(kill.Phase, kill.At)
		require.ErrorContains(t, end.Err, "killed", "%v: %v %s", kill, end.Events, end.Log)
		for _, done := range finished {
			assert.Contains(t, end.Events, done+" reused", "%s was done before the kill at %v", done, kill)
		}
		if kill.Phase == "pull" {
			assert.False(t, n.open(), "not before all is proved")
		}
		assert.False(t, n.released(), "%v", kill)
		// What the killed run had not recorded is run again by the next one.
		if durable[kill.Phase] && kill.At == "ran" {
			end := n.run(kill.Phase, "recorded")
			require.ErrorContains(t, end.Err, "killed", end.Log)
			finished = append(finished, kill.Phase)
		}
	}
	end := n.run("", "")
	require.NoError(t, end.Err, end.Log)
	n.assertDone(first)
	n.closedRecords()
	j, err := journal.Open(n.order.State)
	require.NoError(t, err)
	for i := range j.Records {
		assert.Equal(t, journal.StatusDone, j.Records[i].Status, j.Records[i].Name)
	}
	assert.Equal(t, 2, j.Find("hand-over").Interruptions)

	// A node that was never disturbed builds the same layers. The image's labels name the rendered config, and that its
	// release's registry, which has another port here.
	calm := newNode(t, onePool)
	require.NoError(t, calm.mco())
	require.ErrorContains(t, calm.run("build-master", "recorded").Err, "killed")
	undisturbed, err := journal.Open(calm.order.State)
	require.NoError(t, err)
	assert.Equal(t, built(t, undisturbed), built(t, j))

	// The node reboots once more: its gate is shut, and nothing else is left to do.
	require.NoError(t, os.Remove(marker{n.order.Root}.file()))
	end = n.run("", "")
	require.NoError(t, end.Err, end.Log)
	assert.Empty(t, end.Events)
	assert.True(t, n.open())
}

// built is the content address and the layers of the masters' image.
func built(t *testing.T, j *journal.Journal) (out []string) {
	t.Helper()
	var image build.Result
	require.NoError(t, json.Unmarshal(j.Find("build-master").Output, &image))
	require.NotEmpty(t, image.Layers)
	out = append(out, image.Address)
	for _, l := range image.Layers {
		out = append(out, l.Digest)
	}
	return out
}

// closedRecords says that every run of the records has closed the stages of the one before that was killed.
func (n *node) closedRecords() {
	n.t.Helper()
	var entries []struct{ Phase, Stage, Result, ErrorMessage string }
	require.NoError(n.t, json.Unmarshal([]byte(n.read("/var/log/openshift/dayone-bootstrap.json")), &entries))
	open, closed := map[string]bool{}, 0
	for _, e := range entries {
		switch {
		case e.Phase == "service start":
			assert.Empty(n.t, open, "left open by an earlier run")
			open = map[string]bool{"service": true}
		case e.Phase == "stage start" && e.ErrorMessage == "":
			open[e.Stage] = true
		case e.Phase == "stage end":
			delete(open, e.Stage)
		case e.Phase == "service end":
			delete(open, "service")
		}
		if strings.HasPrefix(e.ErrorMessage, "interrupted: ") {
			assert.Equal(n.t, "failure", e.Result)
			closed++
		}
	}
	assert.Positive(n.t, closed)
}

// assertDone checks the end state: what is served, what the cluster has, that the node may go.
func (n *node) assertDone(first *mcfgv1.MachineConfig) {
	t, api := n.t, shared.Env(n.t).Client
	assert.True(t, n.open())
	assert.True(t, n.released())
	out := n.result()
	for _, pool := range []string{"master", "worker"} {
		got := n.served(pool)
		assert.Equal(t, out.Configs[pool], got.Name)
		assert.Regexp(t, "^"+regexp.QuoteMeta(n.final.Addr+"/ocp/"+pool+"-os@sha256:")+"[0-9a-f]{64}$", got.Spec.OSImageURL)
		assert.Contains(t, string(got.Spec.Config.Raw), "50-dayone-bootstrap.conf")
		mosc := &mcfgv1.MachineOSConfig{}
		require.NoError(t, api.Get(t.Context(), client.ObjectKey{Name: pool}, mosc))
		assert.Equal(t, got.Spec.OSImageURL, string(mosc.Status.CurrentImagePullSpec), "the cluster has what was rendered")
		assert.True(t, meta.IsStatusConditionTrue(mosc.Status.Conditions, manifests.ConditionSeeded))
		n.inFinal(got.Spec.OSImageURL)
		mc := &mcfgv1.MachineConfig{}
		require.NoError(t, api.Get(t.Context(), client.ObjectKey{Name: "98-" + pool + "-dayone-bootstrap-registry"}, mc))
		assert.Contains(t, n.read("/etc/mcc/bootstrap/99_dayone-bootstrap-registry-"+pool+".yaml"), mc.Name)
	}
	assert.NotEqual(t, first.Name, out.Configs["master"])
	n.nobodyHasAnAccount()
	n.mastersAreShown()
	registry := `"127.0.0.1:`
	pull := &corev1.Secret{}
	require.NoError(t, api.Get(t.Context(), client.ObjectKey{Namespace: "openshift-config", Name: "pull-secret"}, pull))
	assert.Contains(t, string(pull.Data[corev1.DockerConfigJsonKey]), registry,
		"nodes may pull, also those that the cluster's renderer serves")
	assert.Contains(t, string(pull.Data[corev1.DockerConfigJsonKey]), "quay.io")
	require.NoError(t, api.Get(t.Context(), client.ObjectKey{Namespace: "openshift-machine-config-operator",
		Name: "os-push"}, &corev1.Secret{}))

	// The cluster's renderer has the same components: it must come to the same names.
	set, err := manifests.ReadDir(n.at("/etc/mcc/bootstrap"), manifests.ReadOptions{})
	require.NoError(t, err)
	again, err := render.Render(set, render.Options{Versions: testVersions})
	require.NoError(t, err)
	assert.Equal(t, out.Configs["master"], again.Config("master").Name)

	var records []map[string]string
	require.NoError(t, json.Unmarshal([]byte(n.read("/var/log/openshift/dayone-bootstrap.json")), &records))
	assert.Equal(t, "service start", records[0]["phase"])
	assert.Equal(t, "success", records[len(records)-1]["result"])
	for _, secret := range []string{"cXVheTpwdWxs", n.final.Push.Password} {
		journal, err := os.ReadFile(filepath.Join(n.order.State, journal.File))
		require.NoError(t, err)
		assert.NotContains(t, string(journal)+n.read("/var/log/openshift/dayone-bootstrap.json"), secret)
	}
}

// mastersAreShown says that each master has a row: the cluster tells what it is.
func (n *node) mastersAreShown() {
	n.t.Helper()
	rows, err := nodes.Read(n.order.State)
	require.NoError(n.t, err)
	require.Len(n.t, rows, masters)
	_, digest, _ := strings.Cut(n.served("master").Spec.OSImageURL, "@")
	for i, r := range rows {
		assert.Equal(n.t, []any{fmt.Sprintf("master-%d", i), "master", nodes.StageBooted, digest},
			[]any{r.Name, r.Pool, r.Stage, r.Image})
	}
}

// inFinal finds an image in its final registry, under its final name.
func (n *node) inFinal(image string) {
	n.t.Helper()
	_, err := transfer.Inspect(n.t.Context(), transfer.Endpoint{Reference: "docker://" + image, CAFile: n.final.CAFile,
		AuthFile: n.final.PullAuthFile}, "linux/amd64")
	require.NoError(n.t, err)
}

// nobodyHasAnAccount of the embedded registry any more.
func (n *node) nobodyHasAnAccount() {
	n.t.Helper()
	for _, pattern := range []string{"identity/*auth*", "identity/*.password"} {
		left, err := filepath.Glob(filepath.Join(n.order.State, pattern))
		require.NoError(n.t, err)
		assert.Empty(n.t, left)
	}
}

func TestLateRenderingSetsAsideMOSC(t *testing.T) {
	n := newNode(t, nil)
	unbuilt, err := os.ReadFile(filepath.Join(n.order.Dir, "layering/worker.yaml"))
	require.NoError(t, err)
	n.put("/etc/mcc/bootstrap/worker-layering.yaml", unbuilt)
	require.Error(t, n.mco(), "as MCO does, the stand-in refuses to render it")
	// MCO renders when half of the installer's patience is over.
	n.order.Limits = openshift.Limits{API: 2 * time.Hour, Soft: time.Second, Hard: 2 * time.Second}
	n.cluster()
	wait := n.start("", "")
	n.said("time-hard")
	require.Eventually(t, func() bool { return n.mco() == nil }, patience, 200*time.Millisecond,
		"kubelet starts MCO again and again")
	end := wait()
	require.NoError(t, end.Err, end.Log)
	assert.Contains(t, end.Log, "set aside")
	for _, says := range []string{"bootkube starts it again; the installation goes on, and nothing needs to be done",
		"openshift-install wait-for bootstrap-complete again"} {
		assert.Contains(t, end.Log, says)
		assert.Contains(t, n.read("/var/log/openshift/dayone-bootstrap.json"), says)
	}
	assert.FileExists(t, filepath.Join(n.order.State, "set-aside/worker-layering.yaml"))
	assert.NotEmpty(t, n.result().Images["worker"])
}

func TestReleaseWithoutMachineOSConfigs(t *testing.T) {
	n := newNode(t, func(c *installconfig.Config) { c.Pools[1].BuildAt = installconfig.BuildAtCluster })
	n.order.OldMCO = true
	require.NoError(t, n.mco())
	n.cluster()
	end := n.run("", "")
	require.NoError(t, end.Err, end.Log)
	assert.True(t, n.released())
	assert.True(t, n.result().OSImageURL)
	n.inFinal(n.result().Images["master"])
	err := shared.Env(t).Client.Get(t.Context(), client.ObjectKey{Name: "master"}, &mcfgv1.MachineOSConfig{})
	assert.True(t, apierrors.IsNotFound(err), "an operator that does not know the contract would build anew: %v", err)
	assert.Equal(t, n.result().Images["master"], n.served("master").Spec.OSImageURL)
	mc := &mcfgv1.MachineConfig{}
	require.NoError(t, shared.Env(t).Client.Get(t.Context(), client.ObjectKey{Name: manifests.PreBuiltComponentPrefix +
		"master"}, mc))
	assert.Equal(t, n.result().Images["master"], mc.Spec.OSImageURL)
}

// breakBuild makes the master's Containerfile fail.
func (n *node) breakBuild() {
	file := filepath.Join(n.order.Dir, "layering/master.yaml")
	raw, err := os.ReadFile(file)
	require.NoError(n.t, err)
	require.NoError(n.t, os.WriteFile(file, bytes.Replace(raw, []byte("RUN GREETING"),
		[]byte("RUN echo about-to-fail && exit 7 && GREETING"), 1), 0o600))
}

func TestFailedBuildKeepsTheGateShut(t *testing.T) {
	n := newNode(t, nil)
	require.NoError(t, n.mco())
	before := n.served("master").Name
	n.breakBuild()
	end := n.run("", "")
	require.Error(t, end.Err)
	for _, want := range []string{"base image is ready for the build", "phase build-master", "RUN", "7"} {
		assert.Contains(t, end.Log, want)
	}
	assert.False(t, n.open())
	assert.Equal(t, before, n.served("master").Name)
	assert.False(t, n.released())
	assert.Contains(t, n.read("/var/log/openshift/dayone-bootstrap.json"), "build-master")
}

func TestFallbackBootsReleaseImage(t *testing.T) {
	n := newNode(t, func(c *installconfig.Config) { c.OnFailure = installconfig.OnFailureFallback })
	require.NoError(t, n.mco())
	before, manifestsBefore := n.served("master"), n.names("/etc/mcc/bootstrap")
	secret := n.read("/etc/mcc/bootstrap/machineconfigcontroller-pull-secret")
	n.breakBuild()
	end := n.run("", "")
	require.NoError(t, end.Err, end.Log)
	assert.True(t, n.open())
	assert.Equal(t, before.Name, n.served("master").Name)
	assert.Equal(t, n.order.Base, n.served("master").Spec.OSImageURL)
	assert.Equal(t, manifestsBefore, n.names("/etc/mcc/bootstrap"))
	assert.Equal(t, secret, n.read("/etc/mcc/bootstrap/machineconfigcontroller-pull-secret"))
	done, err := handover.ReadMark(n.order.State)
	require.NoError(t, err)
	assert.Contains(t, done.Instead, "fallback: phase build-master")
}

// What the cluster has been given, and what MCO's server shows already, is taken back, too: by a process that fails
// before it comes so far.
func TestFallbackRevertsEarlierProcess(t *testing.T) {
	n := newNode(t, func(c *installconfig.Config) { c.OnFailure = installconfig.OnFailureFallback })
	require.NoError(t, n.mco())
	before := n.served("master")
	n.cluster()
	end := n.run("cluster", "recorded")
	require.ErrorContains(t, end.Err, "killed", end.Log)
	require.NotEqual(t, before.Name, n.served("master").Name)
	api := shared.Env(t).Client
	require.NoError(t, api.Get(t.Context(), client.ObjectKey{Name: "master"}, &mcfgv1.MachineOSConfig{}))

	port := n.port()
	l, err := net.Listen("tcp", ":"+port)
	require.NoError(t, err)
	defer l.Close()
	end = n.run("", "")
	require.NoError(t, end.Err, end.Log)
	assert.True(t, n.open())
	assert.True(t, n.released())
	assert.Equal(t, before.Name, n.served("master").Name)
	for name, object := range map[string]client.Object{"master": &mcfgv1.MachineOSConfig{},
		"98-master-dayone-bootstrap-registry": &mcfgv1.MachineConfig{}} {
		// MCO's stand-in may hold the object for a moment after it was deleted.
		assert.Eventually(t, func() bool {
			return apierrors.IsNotFound(api.Get(t.Context(), client.ObjectKey{Name: name},
				object))
		}, patience, 100*time.Millisecond, name)
	}
	pull := &corev1.Secret{}
	require.NoError(t, api.Get(t.Context(), client.ObjectKey{Namespace: "openshift-config", Name: "pull-secret"}, pull))
	assert.NotContains(t, string(pull.Data[corev1.DockerConfigJsonKey]), ":"+port)
	assert.Contains(t, string(pull.Data[corev1.DockerConfigJsonKey]), "quay.io")
}

// port is the embedded registry's.
func (n *node) port() string {
	side, err := installconfig.ReadSidecar(n.order.Dir)
	require.NoError(n.t, err)
	return strconv.Itoa(side.Config.BootstrapRegistry.Port)
}

func (n *node) names(dir string) (out []string) {
	entries, err := os.ReadDir(n.at(dir))
	require.NoError(n.t, err)
	for _, e := range entries {
		out = append(out, e.Name())
	}
	return out
}

func TestRunNamesTakenPort(t *testing.T) {
	port := phasetest.FreePort(t)
	n := newNode(t, func(c *installconfig.Config) { c.BootstrapRegistry.Port = port })
	l, err := net.Listen("tcp", ":"+strconv.Itoa(port))
	require.NoError(t, err)
	defer l.Close()
	end := n.run("", "")
	require.Error(t, end.Err)
	assert.Contains(t, end.Log, "cannot listen on port "+strconv.Itoa(port))
	assert.False(t, n.open())
}

func TestResumeAfterFullDisk(t *testing.T) {
	n := newNode(t, nil)
	require.NoError(t, n.mco())
	require.NoError(t, os.MkdirAll(n.order.State, 0o700))
	require.NoError(t, unix.Mount("dayone-test", n.order.State, "tmpfs", 0, "size=768k,mode=0700"))
	t.Cleanup(func() { assert.NoError(t, unix.Unmount(n.order.State, unix.MNT_DETACH)) })
	n.cluster()
	end := n.run("", "")
	require.Error(t, end.Err)
	assert.Regexp(t, "(?i)no space|insufficient|507|disk", end.Log)
	assert.Contains(t, end.Log, "phase base")
	assert.False(t, n.open())
	require.NoError(t, unix.Mount("dayone-test", n.order.State, "", unix.MS_REMOUNT, "size=4g"))
	end = n.run("", "")
	require.NoError(t, end.Err, end.Log)
	assert.True(t, n.open())
}

func TestWaitForLateAPIServer(t *testing.T) {
	n := newNode(t, nil)
	require.NoError(t, n.mco())
	late := n.order.Kubeconfig
	n.order.Kubeconfig = filepath.Join(t.TempDir(), "kubeconfig-loopback")
	n.order.Limits = openshift.Limits{API: 2 * time.Second, Soft: 2 * time.Hour, Hard: time.Hour}
	n.cluster()
	wait := n.start("", "")
	file := n.at("/var/log/openshift/dayone-bootstrap.json")
	require.Eventually(t, func() bool {
		raw, _ := os.ReadFile(file)
		return strings.Contains(string(raw), "time-api") && strings.Contains(string(raw), `"stage": "cluster"`)
	}, patience, 100*time.Millisecond, "half of the installer's patience with the API is over: that is said")
	assert.False(t, n.open(), "no node may join before the cluster has the objects")
	raw, err := os.ReadFile(late)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(n.order.Kubeconfig, raw, 0o600))
	end := wait()
	require.NoError(t, end.Err, end.Log)
	assert.Contains(t, end.Log, "bootkube.service")
	assert.True(t, n.open())
}
