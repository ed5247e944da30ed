package bootstrap

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"dayone.dev/dayone/bootstrap/handover"
	"dayone.dev/dayone/bootstrap/journal"
	"dayone.dev/dayone/bootstrap/preflight"
	"dayone.dev/dayone/build/buildcontroller"
	"dayone.dev/dayone/installconfig"
	"dayone.dev/dayone/manifests"
	"dayone.dev/dayone/manifests/render"
	"dayone.dev/dayone/registry/registrytest"
	"dayone.dev/dayone/registry/transfer"
)

func TestAccountsEndWithTheHandOver(t *testing.T) {
	r := registrytest.Start(t)
	look := func() error {
		_, err := transfer.Inspect(t.Context(), transfer.Endpoint{Reference: r.Addr + "/os/none:x", CAFile: r.CAFile,
			AuthFile: r.PullAuthFile}, "linux/amd64")
		return err
	}
	require.ErrorIs(t, look(), transfer.ErrNotFound, "the account is good")
	require.NoError(t, lockOut(r.Server))
	require.ErrorIs(t, look(), transfer.ErrUnauthorized)
}

// A process that is killed between the mark and the end of its work leaves passwords, and a phase that seems to run.
func TestWhatFindsTheMarkFinishesTheHandOver(t *testing.T) {
	dir := t.TempDir()
	_, err := loadIdentity(dir, "127.0.0.1:9500")
	require.NoError(t, err)
	onLoopback := filepath.Join(dir, identityDir, pullAuthFile+loopbackEnd)
	require.NoError(t, os.WriteFile(onLoopback, []byte("{}"), 0o600))
	j, err := journal.Open(dir)
	require.NoError(t, err)
	j.Records = []journal.Record{{Name: "hand-over", Status: journal.StatusRunning, Started: time.Now()}}
	require.NoError(t, j.Save())
	done := &handover.Mark{Time: time.Now().UTC()}
	require.NoError(t, SettleHandedOver(dir, "hand-over", done))
	left, err := filepath.Glob(filepath.Join(dir, identityDir, "*"+passwordEnd))
	require.NoError(t, err)
	assert.Empty(t, left)
	assert.NoFileExists(t, onLoopback, "that of dayone handover, which was killed")
	j, err = journal.Open(dir)
	require.NoError(t, err)
	assert.Equal(t, journal.StatusDone, j.Find("hand-over").Status)
	assert.Equal(t, 1, j.Find("hand-over").Interruptions)
	assert.True(t, done.Time.Equal(j.Find("hand-over").Finished))
	require.NoError(t, SettleHandedOver(dir, "hand-over", done))
}

// The cluster's builder asks with the ControllerConfig's bundle and the release's extensions; the same question must
// have the same address here.
func TestABuildAsksForWhatTheClusterAsksFor(t *testing.T) {
	const base, packages = "registry.example.com/ocp/base@sha256:", "registry.example.com/ocp/extensions@sha256:"
	one, two := strings.Repeat("1", 64), strings.Repeat("2", 64)
	config := &mcfgv1.MachineConfig{ObjectMeta: metav1.ObjectMeta{Name: "rendered-master-1"},
		Spec: mcfgv1.MachineConfigSpec{Extensions: []string{"usbguard"}, KernelType: "realtime",
			Config: runtime.RawExtension{Raw: []byte(`{"ignition":{"version":"3.4.0"}}`)}}}
	mosc := &mcfgv1.MachineOSConfig{Spec: mcfgv1.MachineOSConfigSpec{MachineConfigPool: mcfgv1.MachineConfigPoolReference{Name: "master"}, RenderedImagePushSpec: "registry.example.com/ocp/master-os:1"}}
	cc := &mcfgv1.ControllerConfig{Spec: mcfgv1.ControllerConfigSpec{AdditionalTrustBundle: []byte("pem"),
		BaseOSExtensionsContainerImage: packages + two}}
	pool := preflight.Pool{Pool: installconfig.Pool{Name: "master", BuildAt: installconfig.BuildAtBootstrap},
		Repository: "registry.example.com/ocp/master-os"}
	h := &host{Options: Options{Platform: "linux/amd64"}, registryHost: "10.0.0.1:5000", id: &identity{},
		base: baseResult{Final: base + one, Reference: "10.0.0.1:5000/ocp/base@sha256:" + one},
		first: &render.Result{Configs: []*mcfgv1.MachineConfig{config},
			Pools: []*mcfgv1.MachineConfigPool{{ObjectMeta: metav1.ObjectMeta{Name: "master"}}}},
		in: &preflight.Input{Sidecar: &installconfig.Sidecar{}, Pools: []preflight.Pool{pool}, Set: &manifests.Set{
			MachineConfigs:    []manifests.Item[*mcfgv1.MachineConfig]{manifests.NewItem(config)},
			ControllerConfigs: []manifests.Item[*mcfgv1.ControllerConfig]{manifests.NewItem(cc)}}}}
	assert.True(t, h.extends())
	require.Equal(t, []string{packages + two}, h.extensionsImages())
	h.extensions = map[string]string{packages + two: "10.0.0.1:5000/ocp/extensions@sha256:" + two}
	here, err := h.buildRequest(pool)
	require.NoError(t, err)
	there, problem := buildcontroller.RequestOf(mosc, config, cc, base+one, "linux/amd64")
	require.Nil(t, problem)
	want, err := there.Address()
	require.NoError(t, err)
	got, err := here.Address()
	require.NoError(t, err)
	assert.Equal(t, want, got)

	h.in.Set = &manifests.Set{}
	h.first.Configs[0] = &mcfgv1.MachineConfig{}
	assert.False(t, h.extends())
	assert.Empty(t, h.extensionsImages())
}
