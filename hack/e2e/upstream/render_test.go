package upstream_test

//lint:file-ignore SA1019 the installer writes the old fields of one address, and MCO's templates read them

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	ign35 "github.com/coreos/ignition/v2/config/v3_5/types"
	configv1 "github.com/openshift/api/config/v1"
	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"dayone.dev/dayone/manifests"
	"dayone.dev/dayone/manifests/machineconfig"
	"dayone.dev/dayone/manifests/render"
)

var (
	apiVIPs     = []string{"192.0.2.10"}
	ingressVIPs = []string{"192.0.2.11"}
)

// arrangements are the platforms that the operator knows, and the control planes of other sizes.
func arrangements() []arrangement {
	a := func(name string, p configv1.PlatformStatus) arrangement { return arrangement{name: name, platform: p} }
	of := func(t configv1.PlatformType) configv1.PlatformStatus { return configv1.PlatformStatus{Type: t} }
	metal := configv1.PlatformStatus{Type: configv1.BareMetalPlatformType, BareMetal: &configv1.BareMetalPlatformStatus{
		APIServerInternalIP: apiVIPs[0], APIServerInternalIPs: apiVIPs, IngressIP: ingressVIPs[0], IngressIPs: ingressVIPs}}
	sized := func(name string, p configv1.PlatformStatus, t configv1.TopologyMode) arrangement {
		return arrangement{name, p, t}
	}
	return []arrangement{
		a("aws", configv1.PlatformStatus{Type: configv1.AWSPlatformType,
			AWS: &configv1.AWSPlatformStatus{Region: "eu-west-1"}}),
		a("azure", configv1.PlatformStatus{Type: configv1.AzurePlatformType, Azure: &configv1.AzurePlatformStatus{
			ResourceGroupName: "demo", CloudName: configv1.AzurePublicCloud}}),
		a("gcp", configv1.PlatformStatus{Type: configv1.GCPPlatformType,
			GCP: &configv1.GCPPlatformStatus{ProjectID: "demo", Region: "europe-west1"}}),
		a("baremetal", metal),
		a("openstack", configv1.PlatformStatus{Type: configv1.OpenStackPlatformType,
			OpenStack: &configv1.OpenStackPlatformStatus{APIServerInternalIP: apiVIPs[0], APIServerInternalIPs: apiVIPs,
				IngressIP: ingressVIPs[0], IngressIPs: ingressVIPs}}),
		a("ovirt", configv1.PlatformStatus{Type: configv1.OvirtPlatformType,
			Ovirt: &configv1.OvirtPlatformStatus{APIServerInternalIP: apiVIPs[0], APIServerInternalIPs: apiVIPs,
				IngressIP: ingressVIPs[0], IngressIPs: ingressVIPs}}),
		a("vsphere", configv1.PlatformStatus{Type: configv1.VSpherePlatformType,
			VSphere: &configv1.VSpherePlatformStatus{APIServerInternalIP: apiVIPs[0], APIServerInternalIPs: apiVIPs,
				IngressIP: ingressVIPs[0], IngressIPs: ingressVIPs}}),
		a("vsphere-own-balancer", configv1.PlatformStatus{Type: configv1.VSpherePlatformType,
			VSphere: &configv1.VSpherePlatformStatus{}}),
		a("nutanix", configv1.PlatformStatus{Type: configv1.NutanixPlatformType,
			Nutanix: &configv1.NutanixPlatformStatus{APIServerInternalIP: apiVIPs[0], APIServerInternalIPs: apiVIPs,
				IngressIP: ingressVIPs[0], IngressIPs: ingressVIPs}}),
		a("powervs", configv1.PlatformStatus{Type: configv1.PowerVSPlatformType,
			PowerVS: &configv1.PowerVSPlatformStatus{Region: "osa", Zone: "osa21"}}),
		a("ibmcloud", of(configv1.IBMCloudPlatformType)),
		a("kubevirt", of(configv1.KubevirtPlatformType)),
		a("libvirt", of(configv1.LibvirtPlatformType)),
		a("external", configv1.PlatformStatus{Type: configv1.ExternalPlatformType,
			External: &configv1.ExternalPlatformStatus{CloudControllerManager: configv1.CloudControllerManagerStatus{
				State: configv1.CloudControllerManagerNone}}}),
		a("none", of(configv1.NonePlatformType)),
		sized("none-one-master", of(configv1.NonePlatformType), configv1.SingleReplicaTopologyMode),
		sized("baremetal-two-masters", metal, configv1.DualReplicaTopologyMode),
		sized("baremetal-arbiter", metal, configv1.HighlyAvailableArbiterMode),
	}
}

// machineConfig is a MachineConfig of the user's; config is its Ignition config in JSON.
func machineConfig(name, role, config, more string) string {
	return fmt.Sprintf(`apiVersion: machineconfiguration.openshift.io/v1
kind: MachineConfig
metadata: {name: %s, labels: {machineconfiguration.openshift.io/role: %s}}
spec:
  config: %s
%s`, name, role, config, more)
}

// infraPool is a pool of the user's own, which takes the worker's MachineConfigs besides its own.
const infraPool = `apiVersion: machineconfiguration.openshift.io/v1
kind: MachineConfigPool
metadata: {name: infra}
spec:
  machineConfigSelector:
    matchExpressions:
    - {key: machineconfiguration.openshift.io/role, operator: In, values: [worker, infra]}
  nodeSelector: {matchLabels: {node-role.kubernetes.io/infra: ""}}
`

// layered is a MachineOSConfig with the image that was built for its pool.
func layered(pool string) string {
	return fmt.Sprintf(`apiVersion: machineconfiguration.openshift.io/v1
kind: MachineOSConfig
metadata:
  name: %[1]s
  annotations: {machineconfiguration.openshift.io/pre-built-image: %[2]q}
spec:
  machineConfigPool: {name: %[1]s}
  imageBuilder: {imageBuilderType: Job}
  renderedImagePushSecret: {name: push}
  renderedImagePushSpec: registry.example.com/ocp/%[1]s-os:latest
`, pool, image(pool+"-os"))
}

// users is what a user adds: every pool layered, MachineConfigs in two versions of Ignition, before and after the
// operator's in the order of merging.
func users() map[string]string {
	return map[string]string{
		"99_infra-pool.yaml":  infraPool,
		"99_mosc-master.yaml": layered("master"), "99_mosc-worker.yaml": layered("worker"),
		"99_mosc-infra.yaml": layered("infra"),
		"99_master.yaml": machineConfig("99-z-master", "master", `{ignition: {version: 3.4.0}, storage: {files: [
    {path: /etc/motd, mode: 420, overwrite: true, contents: {source: "data:,layered"}}]},
    systemd: {units: [{name: chronyd.service, enabled: true}, {name: kubelet.service, dropins: [
    {name: 50-z.conf, contents: "[Service]\nEnvironment=A=\"b c\"\n"}]}]}}`, "  kernelArguments: [audit=1, 'a: b']\n"),
		"99_worker.yaml": machineConfig("00-a-worker", "worker", `{ignition: {version: 2.2.0}, storage: {files: [
    {filesystem: root, path: /etc/a, mode: 384, contents: {source: "data:;base64,eAo="}}]}}`,
			"  extensions: [usbguard]\n"),
		"99_infra.yaml": machineConfig("50-infra", "infra", `{ignition: {version: 3.2.0}, storage: {files: [
    {path: /etc/a, mode: 420, contents: {source: "data:,infra"}}]}}`, "  kernelType: realtime\n  fips: true\n"),
	}
}

// poolsOnly are the user's pools: the operator generates MachineConfigs for each of them.
func poolsOnly() map[string]string { return map[string]string{"99_infra-pool.yaml": infraPool} }

// components makes one MachineConfig for each pool of what the operator's controller renders without the user's: all
// that its templates and generators bring.
func components(t *testing.T, dest string) map[string]string {
	t.Helper()
	files := map[string]string{}
	set, err := manifests.ReadDir(filepath.Join(dest, render.PoolsDir), manifests.ReadOptions{})
	require.NoError(t, err)
	rendered := map[string]*mcfgv1.MachineConfig{}
	for _, p := range set.Pools {
		rendered[p.Object.Name] = read(t, dest, p.Object.Spec.Configuration.Name)
	}
	for pool, from := range rendered {
		if pool == "infra" {
			beyond(t, from, rendered["worker"])
		}
		to := &mcfgv1.MachineConfig{ObjectMeta: metav1.ObjectMeta{Name: "00-" + pool,
			Labels: map[string]string{manifests.LabelRole: pool}, Annotations: map[string]string{
				manifests.AnnotationGeneratedByController: from.Annotations[manifests.AnnotationGeneratedByController]}},
			Spec: from.Spec}
		// The rendering took them from the ControllerConfig.
		to.Spec.OSImageURL, to.Spec.BaseOSExtensionsContainerImage = "", ""
		raw, err := manifests.Marshal(to)
		require.NoError(t, err)
		files["00_"+pool+".yaml"] = string(raw)
	}
	return files
}

// beyond keeps of a pool's rendering what another pool, whose MachineConfigs it takes first, does not have: files and
// units that are missing there or have another text, and kernel arguments, which are joined.
func beyond(t *testing.T, m, other *mcfgv1.MachineConfig) {
	t.Helper()
	config, err := machineconfig.ParseRendered(m.Spec.Config.Raw)
	require.NoError(t, err)
	has, err := machineconfig.ParseRendered(other.Spec.Config.Raw)
	require.NoError(t, err)
	out := ign35.Config{Ignition: config.Ignition}
	for _, f := range config.Storage.Files {
		if !slices.ContainsFunc(has.Storage.Files, func(o ign35.File) bool { return reflect.DeepEqual(f, o) }) {
			out.Storage.Files = append(out.Storage.Files, f)
		}
	}
	for _, u := range config.Systemd.Units {
		if !slices.ContainsFunc(has.Systemd.Units, func(o ign35.Unit) bool { return reflect.DeepEqual(u, o) }) {
			out.Systemd.Units = append(out.Systemd.Units, u)
		}
	}
	m.Spec = mcfgv1.MachineConfigSpec{KernelArguments: m.Spec.KernelArguments[len(other.Spec.KernelArguments):]}
	m.Spec.Config.Raw, err = json.Marshal(out)
	require.NoError(t, err)
}

// read gives a rendered MachineConfig of a directory in MCO's layout.
func read(t *testing.T, dest, name string) *mcfgv1.MachineConfig {
	t.Helper()
	file := filepath.Join(dest, render.ConfigsDir, name+".yaml")
	raw, err := os.ReadFile(file)
	require.NoError(t, err)
	set, err := manifests.Read(raw, file, manifests.ReadOptions{})
	require.NoError(t, err)
	require.Len(t, set.MachineConfigs, 1, file)
	return set.MachineConfigs[0].Object
}

// render lets dayone render the directory with the operator's versions.
func (s *suite) render(t *testing.T, b bootstrapped, versions render.Versions) (string, string, error) {
	t.Helper()
	dest := filepath.Join(t.TempDir(), "dayone")
	out, err := says(exec.CommandContext(t.Context(), s.program(t), "render", "--components-only",
		"--manifest-dir", b.dir, "--dest-dir", dest, "--pull-secret", b.pullSecret, "--version-raw", versions.Raw,
		"--version-hash", versions.Hash, "--payload-version", release))
	return dest, out, err
}

// versionsIn are those of the operator's programs, from what they wrote.
func versionsIn(t *testing.T, b bootstrapped, dest string) render.Versions {
	t.Helper()
	in, err := manifests.ReadDir(b.dir, manifests.ReadOptions{})
	require.NoError(t, err)
	require.Len(t, in.ControllerConfigs, 1)
	files, err := filepath.Glob(filepath.Join(dest, render.ConfigsDir, "*.yaml"))
	require.NoError(t, err)
	require.NotEmpty(t, files)
	one := read(t, dest, strings.TrimSuffix(filepath.Base(files[0]), ".yaml"))
	return render.Versions{Raw: in.ControllerConfigs[0].Object.Annotations[manifests.AnnotationGeneratedByVersion],
		Hash: one.Annotations[manifests.AnnotationGeneratedByController], Payload: release}
}

// result reads a directory in MCO's layout: pools, without the list of what they were rendered from, and configs, also
// as bytes.
func result(t *testing.T, dir string) (*manifests.Set, map[string]string) {
	t.Helper()
	pools, err := manifests.ReadDir(filepath.Join(dir, render.PoolsDir), manifests.ReadOptions{})
	require.NoError(t, err)
	for _, p := range pools.Pools {
		p.Object.Spec.Configuration.Source, p.Object.Status.Configuration.Source = nil, nil
	}
	configs, err := manifests.ReadDir(filepath.Join(dir, render.ConfigsDir), manifests.ReadOptions{})
	require.NoError(t, err)
	pools.MachineConfigs = configs.MachineConfigs
	return pools, files(t, filepath.Join(dir, render.ConfigsDir))
}

// same says that two directories hold the same rendered configs and pools. The names cover every byte of the specs; the
// files of layered pools differ in one annotation, those of others in nothing.
func same(t *testing.T, theirs, ours string) (configs int) {
	t.Helper()
	want, wanted := result(t, theirs)
	got, written := result(t, ours)
	verdicts, err := render.Parity(want, got)
	require.NoError(t, err)
	for _, v := range verdicts {
		assert.True(t, v.Same, "pool %s: %s\n%+v", v.Pool, v.Reason, v.Changes)
	}
	if t.Failed() {
		return 0
	}
	for i, p := range want.Pools {
		assert.Equal(t, p.Object, got.Pools[i].Object)
	}
	require.Len(t, written, len(wanted))
	for i, c := range got.MachineConfigs {
		if _, ok := c.Object.Annotations[manifests.AnnotationPreBuiltImage]; ok {
			// dayone's own note of a layered pool's image, for its server.
			delete(c.Object.Annotations, manifests.AnnotationPreBuiltImage)
			assert.Equal(t, want.MachineConfigs[i].Object.ObjectMeta, c.Object.ObjectMeta)
			continue
		}
		name := c.Object.Name + ".yaml"
		assert.True(t, wanted[name] == written[name], "%s has other bytes", name)
	}
	return len(wanted)
}

// TestRenderedConfigs renders every arrangement with the operator's own templates: layered pools and the user's
// MachineConfigs on top of them give the same configs as the real controller's.
func TestRenderedConfigs(t *testing.T) {
	m := run.mco(t)
	for _, a := range arrangements() {
		t.Run(a.name, func(t *testing.T) {
			configs := 0
			run.record(t, func() string { return fmt.Sprintf("%d rendered configs: name, spec and metadata", configs) })
			b := m.operator(t, a)
			plain, out, err := m.controller(t, b.with(t, poolsOnly()))
			require.NoError(t, err, out)
			theirs, out, err := m.controller(t, b.with(t, users()))
			require.NoError(t, err, out)
			ours, out, err := run.render(t, b.with(t, components(t, plain)).with(t, users()), versionsIn(t, b, plain))
			require.NoError(t, err, out)
			configs = same(t, theirs, ours)
		})
	}
}
