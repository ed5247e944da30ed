package openshift_test

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"dayone.dev/dayone/hack/baseimage"
	"dayone.dev/dayone/hack/program"
	"dayone.dev/dayone/hack/testnode"
	"dayone.dev/dayone/installconfig"
	"dayone.dev/dayone/manifests/assets/bootstrapnode"
)

// ownRegistry is the name of the node's registry.
const ownRegistry = "api-int.demo.example.com:22626"

// registryProgram is dayone-registry, built for the node.
func (w *world) registryProgram() string {
	out := filepath.Join(filepath.Dir(w.bin), "dayone-registry")
	require.NoError(w.t, program.Build(w.t.Context(), "", program.Options{
		Package: "dayone.dev/dayone/cmd/dayone-registry"}, out))
	return out
}

// hosts leads the registry's name to the node itself, as the cluster's DNS does, on the disk's boots, too. The workers'
// config is there because MCO's templates bring one.
const hosts = `apiVersion: machineconfiguration.openshift.io/v1
kind: MachineConfig
metadata: {name: 50-hosts, labels: {machineconfiguration.openshift.io/role: master}}
spec:
  config:
    ignition: {version: 3.2.0}
    storage:
      files:
      - {path: /etc/hosts, mode: 420, overwrite: true, contents: {source: "data:,127.0.0.1%20localhost%20api-int.demo.example.com%0A"}}
---
apiVersion: machineconfiguration.openshift.io/v1
kind: MachineConfig
metadata: {name: 50-worker, labels: {machineconfiguration.openshift.io/role: worker}}
spec: {config: {ignition: {version: 3.2.0}}}
`

// single is the install directory of a cluster of one node that bootstraps itself, taken to its patched config.
func (w *world) single() []byte {
	t, dir := w.t, filepath.Join(w.t.TempDir(), "install")
	w.dayone(dir, "sample", "--flow", "openshift")
	for _, file := range []string{"layering", "openshift"} {
		require.NoError(t, os.RemoveAll(filepath.Join(dir, file)))
	}
	require.NoError(t, os.Mkdir(filepath.Join(dir, "openshift"), 0o750))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "openshift/50-hosts.yaml"), []byte(hosts), 0o600))
	file := filepath.Join(dir, installconfig.FileName)
	raw, err := os.ReadFile(file)
	require.NoError(t, err)
	text, layering, _ := strings.Cut(string(raw), "# What dayone adds")
	_, secret, found := strings.Cut(layering, "pullSecret:")
	require.True(t, found)
	text = strings.NewReplacer("replicas: 3", "replicas: 1", "replicas: 2", "replicas: 0").Replace(text)
	require.NoError(t, os.WriteFile(file, []byte(text+"bootstrapInPlace: {installationDisk: /dev/fixture}\n"+
		"onClusterLayering:\n  flow: openshift\n  registry: {type: cluster}\n  pools:\n  - name: master\n"+
		"    containerfile: |\n      FROM configs\n      RUN echo in place > /usr/lib/layered\npullSecret:"+secret), 0o600))
	w.dayone(dir, "prepare")
	return w.afterPrepare(dir, installconfig.InPlaceIgnition)
}

// clusterBootstrap plays that program for the one manifest that holds it.
func (w *world) clusterBootstrap() {
	api := shared.Env(w.t).Client
	var held corev1.ConfigMap
	require.NoError(w.t, yaml.Unmarshal(bootstrapnode.HoldManifest(), &held))
	w.eventually("cluster-bootstrap can create its last manifest", func() bool {
		assert.False(w.t, w.is("test -e /opt/openshift/stop-etcd.done"), "the API server is needed until then")
		err := api.Create(w.t.Context(), held.DeepCopy())
		return err == nil || apierrors.IsAlreadyExists(err)
	})
	_, err := w.sh("touch /opt/openshift/fixture/all-created")
	require.NoError(w.t, err)
}

// TestBootstrapInPlace takes a cluster of one node from the live system, which builds in memory and installs the disk,
// through the reboot into the disk, where its own registry has the image that the first boot needs. The power goes away
// at the reboot and on the first boot. openshift-install, bootkube, cluster-bootstrap, coreos-installer and MCO's first
// boot are stand-ins; systemd, Ignition, the API server, podman, the registries, builds and ostree are real.
func TestBootstrapInPlace(t *testing.T) {
	w := newWorldOn(t, baseimage.Debian)
	w.inPlace = true
	require.NoError(t, w.loopback.Close()) // the API server comes when the build is done: etcd must wait for it
	w.put("/etc/hosts", 0o644, []byte("127.0.0.1 localhost api-int.demo.example.com\n"))
	require.NoError(t, w.node.Ignite(t.Context(), w.single()))
	require.NoError(t, w.node.Start(t.Context()))
	w.eventually("the second rendering is shown", func() bool { return w.status("render-second") == "done" })
	require.False(t, w.is("test -e /opt/openshift/master.ign"), "no config for the disk before")
	w.loopback = w.passOn(6443)
	w.clusterBootstrap()
	w.eventually("the disk is installed", func() bool { return w.is("test -e /opt/openshift/.install-to-disk.done") })
	w.inCluster()
	image := w.masterImage()
	assert.True(t, strings.HasPrefix(image, ownRegistry+"/master-os@sha256:"), image)

	// The disk moves to the machine that boots it; the live system and its memory are gone.
	disk := w.installed()
	require.NoError(t, w.node.PowerCut(t.Context()))
	w.node = disk
	require.NoError(t, w.node.Start(t.Context()))
	w.registryServes(image)
	require.NoError(t, w.node.PowerCut(t.Context()))
	require.NoError(t, w.node.Start(t.Context()))
	w.registryServes(image)

	// MCO's first boot has the node rebase with the cluster's pull secret; the agent's deployer plays it.
	pull := &corev1.Secret{}
	require.NoError(t, shared.Env(t).Client.Get(t.Context(), client.ObjectKey{Namespace: "openshift-config",
		Name: "pull-secret"}, pull))
	code, err := w.node.Run(t.Context(), testnode.Command{Argv: []string{"sh", "-c", "cat > /etc/ostree/auth.json"},
		Stdin: bytes.NewReader(pull.Data[corev1.DockerConfigJsonKey])})
	require.NoError(t, err)
	require.Zero(t, code)
	encapsulated, err := w.sh("cat /etc/ignition-machine-config-encapsulated.json")
	require.NoError(t, err)
	var config mcfgv1.MachineConfig
	require.NoError(t, json.Unmarshal([]byte(encapsulated), &config))
	require.Equal(t, image, config.Spec.OSImageURL)
	// A reboot that comes before ostree's path unit has noticed what is staged takes it nevertheless.
	out, err := w.sh("systemctl stop ostree-finalize-staged.path && dayone-daemon stage " + image)
	require.NoError(t, err, out)
	require.NoError(t, w.node.Reboot(t.Context()))
	out, err = w.sh("cat /usr/lib/layered && dayone-daemon status")
	if err != nil {
		status, _ := w.sh("ostree admin status; ls -la /ostree/boot* /boot/loader/entries; " +
			"journalctl --no-pager -n 40 -u 'ostree-*' -u dayone-registry")
		console, _ := w.node.Log()
		require.NoError(t, err, status+console[max(0, len(console)-3000):])
	}
	assert.Contains(t, out, "in place")
	_, digest, _ := strings.Cut(image, "@")
	assert.Contains(t, out, digest)
	w.registryServes(image)
}

// inCluster says that the cluster has all that it gets, and nothing of what held its bootstrap.
func (w *world) inCluster() {
	t, api := w.t, shared.Env(w.t).Client
	m := &mcfgv1.MachineOSConfig{}
	require.NoError(t, api.Get(t.Context(), client.ObjectKey{Name: "master"}, m))
	assert.Equal(t, ownRegistry+"/master-os:latest", string(m.Spec.RenderedImagePushSpec))
	for namespace, name := range map[string]string{"openshift-machine-config-operator": "dayone-registry-push",
		"openshift-config": "pull-secret"} {
		s := &corev1.Secret{}
		require.NoError(t, api.Get(t.Context(), client.ObjectKey{Namespace: namespace, Name: name}, s))
		assert.Contains(t, string(s.Data[corev1.DockerConfigJsonKey]), ownRegistry, name)
	}
	held := &corev1.Namespace{}
	err := api.Get(t.Context(), client.ObjectKey{Name: bootstrapnode.HoldNamespace}, held)
	assert.True(t, apierrors.IsNotFound(err) || held.DeletionTimestamp != nil, "what held cluster-bootstrap goes")
}

// installed is the machine with what the live system has left on the disk: a real ostree system, /var as it was
// carried, and the Ignition config.
func (w *world) installed() *testnode.Node {
	t := w.t
	debian, err := baseimage.Ensure(t.Context(), baseimage.Debian, "")
	require.NoError(t, err)
	n, err := w.lab.NewNode(t.Context(), "disk0", testnode.NodeOptions{Sysroot: testnode.SysrootOptions{Base: debian}})
	require.NoError(t, err)
	live := filepath.Join(w.node.Sysroot, "ostree/deploy", testnode.Stateroot, "var/opt/openshift")
	carried := filepath.Join(live, "fixture/disk/ostree/deploy/system/var")
	to := filepath.Join(n.Sysroot, "ostree/deploy", testnode.Stateroot, "var")
	for _, from := range []string{"lib", "usrlocal"} {
		require.DirExists(t, filepath.Join(carried, from))
	}
	out, err := exec.Command("cp", "-a", carried+"/.", to).CombinedOutput()
	require.NoError(t, err, string(out))
	daemon := filepath.Join(t.TempDir(), "dayone-daemon")
	require.NoError(t, program.Build(t.Context(), "", program.Options{Package: "dayone.dev/dayone/cmd/dayone-daemon"},
		daemon))
	for _, from := range []string{daemon, w.bin} {
		out, err := exec.Command("cp", from, filepath.Join(to, "usrlocal/bin")).CombinedOutput()
		require.NoError(t, err, string(out))
	}
	raw, err := os.ReadFile(filepath.Join(live, "master.ign"))
	require.NoError(t, err)
	require.NoError(t, n.Ignite(t.Context(), raw))
	return n
}

// registryServes pulls the whole image from the node's own registry, on the node, by its name.
func (w *world) registryServes(image string) {
	w.t.Helper()
	w.eventually("the node's registry serves "+image, func() bool {
		return w.is("systemctl is-active dayone-registry && rm -rf /var/tmp/pulled && dayone registry copy docker://" +
			image + " oci:/var/tmp/pulled --src-ca /etc/dayone/registry/ca.crt " +
			"--src-authfile /etc/dayone/registry/pull-auth.json")
	})
}
