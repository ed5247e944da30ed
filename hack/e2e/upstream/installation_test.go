package upstream_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"testing"

	configv1 "github.com/openshift/api/config/v1"
	"github.com/openshift/api/features"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"dayone.dev/dayone/manifests"
	"dayone.dev/dayone/registry/certs"
)

// release is the version that the installation installs.
const release = "4.21.0"

// imageReferences are the names under which the operator looks for its images in a release.
var imageReferences = []string{"machine-config-operator", "keepalived-ipfailover", "coredns", "baremetal-runtimecfg",
	"oauth-proxy", "kube-rbac-proxy", "pod", "haproxy-router", "docker-registry", "rhel-coreos",
	"rhel-coreos-extensions"}

// arrangement is what an installation says of its machines.
type arrangement struct {
	name     string
	platform configv1.PlatformStatus
	topology configv1.TopologyMode
}

// image is a reference by digest; every name has another digest.
func image(name string) string {
	return fmt.Sprintf("registry.example.com/ocp/%s@sha256:%064x", name, []byte(name)[:min(len(name), 16)])
}

// object writes an API object to a file, as the installer or the operators of a bootstrap node do.
func object(t *testing.T, file string, o any) string {
	t.Helper()
	raw, err := manifests.Marshal(o)
	require.NoError(t, err)
	return text(t, file, string(raw))
}

func text(t *testing.T, file, content string) string {
	t.Helper()
	require.NoError(t, os.MkdirAll(filepath.Dir(file), 0o700))
	require.NoError(t, os.WriteFile(file, []byte(content), 0o600))
	return file
}

// infrastructure is the installer's object about the arrangement.
func (a arrangement) infrastructure() *configv1.Infrastructure {
	topology := a.topology
	if topology == "" {
		topology = configv1.HighlyAvailableTopologyMode
	}
	return &configv1.Infrastructure{ObjectMeta: metav1.ObjectMeta{Name: "cluster"},
		Spec: configv1.InfrastructureSpec{PlatformSpec: configv1.PlatformSpec{Type: a.platform.Type}},
		Status: configv1.InfrastructureStatus{InfrastructureName: "demo-x7k2p", PlatformStatus: &a.platform,
			APIServerURL: "https://api.demo.example.com:6443", APIServerInternalURL: "https://api-int.demo.example.com:6443",
			ControlPlaneTopology: topology, InfrastructureTopology: configv1.HighlyAvailableTopologyMode}}
}

// pullSecret is the cluster's, as a manifest.
func pullSecret() *corev1.Secret {
	return &corev1.Secret{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Secret"},
		ObjectMeta: metav1.ObjectMeta{Name: "pull-secret", Namespace: "openshift-config"},
		Type:       corev1.SecretTypeDockerConfigJson, Data: map[string][]byte{
			corev1.DockerConfigJsonKey: []byte(`{"auths":{"registry.example.com":{"auth":"dXNlcjpwYXNz"}}}`)}}
}

// featureGate is the release's default set, with the one that makes the controller look into images over the network,
// or without it.
func featureGate(streams bool) *configv1.FeatureGate {
	set := features.FeatureSets(4, features.SelfManaged, configv1.Default)
	details := configv1.FeatureGateDetails{Version: release}
	for _, f := range set.Enabled {
		if f.FeatureGateAttributes.Name == features.FeatureGateOSStreams && !streams {
			set.Disabled = append(set.Disabled, f)
			continue
		}
		details.Enabled = append(details.Enabled, f.FeatureGateAttributes)
	}
	for _, f := range set.Disabled {
		details.Disabled = append(details.Disabled, f.FeatureGateAttributes)
	}
	return &configv1.FeatureGate{ObjectMeta: metav1.ObjectMeta{Name: "cluster"},
		Status: configv1.FeatureGateStatus{FeatureGates: []configv1.FeatureGateDetails{details}}}
}

// references is the release's list of images.
func references(t *testing.T) string {
	t.Helper()
	var tags []any
	for _, name := range imageReferences {
		tags = append(tags, map[string]any{"name": name, "from": map[string]any{"kind": "DockerImage",
			"name": image(name)}})
	}
	raw, err := json.Marshal(map[string]any{"apiVersion": "image.openshift.io/v1", "kind": "ImageStream",
		"metadata": map[string]any{"name": release}, "spec": map[string]any{"tags": tags}})
	require.NoError(t, err)
	return string(raw)
}

// authority is a CA in PEM.
func authority(t *testing.T) string {
	t.Helper()
	ca, err := certs.NewCA(certs.CAOptions{})
	require.NoError(t, err)
	return string(ca.CertificatePEM())
}

// bootstrapped is what the operator leaves for its controller on a bootstrap node, without anything of the user's.
type bootstrapped struct {
	dir, pullSecret string
}

// operator runs machine-config-operator as bootkube does, and lays its output out as bootkube does.
func (m mco) operator(t *testing.T, a arrangement) bootstrapped {
	t.Helper()
	dir := t.TempDir()
	in := func(name string) string { return filepath.Join(dir, "in", name) }
	cidr := "172.30.0.0/16"
	args := []string{"bootstrap", "--release-image", image("release"), "--dest-dir", filepath.Join(dir, "out")}
	for flag, file := range map[string]string{
		"--root-ca":           text(t, in("root-ca.crt"), authority(t)),
		"--kube-ca":           text(t, in("kube-ca.crt"), authority(t)),
		"--image-references":  text(t, in("image-references"), references(t)),
		"--pull-secret":       object(t, in("pull.yaml"), pullSecret()),
		"--infra-config-file": object(t, in("infrastructure.yaml"), a.infrastructure()),
		"--proxy-config-file": object(t, in("proxy.yaml"), named(&configv1.Proxy{})),
		"--dns-config-file":   object(t, in("dns.yaml"), dns()),
		"--network-config-file": object(t, in("network.yaml"), &configv1.Network{
			ObjectMeta: metav1.ObjectMeta{Name: "cluster"},
			Spec:       configv1.NetworkSpec{ServiceNetwork: []string{cidr}, NetworkType: "OVNKubernetes"}}),
		"--config-file": object(t, in("cluster-config.yaml"), &corev1.ConfigMap{
			ObjectMeta: metav1.ObjectMeta{Name: "cluster-config-v1", Namespace: "kube-system"},
			Data:       map[string]string{"install-config": "apiVersion: v1\n"}}),
	} {
		args = append(args, flag, file)
	}
	out, err := says(m.command(t, "machine-config-operator", args...))
	require.NoError(t, err, out)
	made := filepath.Join(dir, "out", "bootstrap", "manifests")
	b := bootstrapped{dir: filepath.Join(dir, "mcc"),
		pullSecret: filepath.Join(made, "machineconfigcontroller-pull-secret")}
	require.NoError(t, os.CopyFS(b.dir, os.DirFS(made)))
	object(t, filepath.Join(b.dir, "99_feature-gate.yaml"), featureGate(false))
	return b
}

func named(p *configv1.Proxy) *configv1.Proxy {
	p.Name = "cluster"
	return p
}

func dns() *configv1.DNS {
	return &configv1.DNS{ObjectMeta: metav1.ObjectMeta{Name: "cluster"},
		Spec: configv1.DNSSpec{BaseDomain: "demo.example.com"}}
}

// with is a copy of the directory with files of the user's.
func (b bootstrapped) with(t *testing.T, files map[string]string) bootstrapped {
	t.Helper()
	out := bootstrapped{dir: filepath.Join(t.TempDir(), "mcc"), pullSecret: b.pullSecret}
	require.NoError(t, os.CopyFS(out.dir, os.DirFS(b.dir)))
	for _, name := range slices.Sorted(maps.Keys(files)) {
		text(t, filepath.Join(out.dir, name), files[name])
	}
	return out
}

// controller runs machine-config-controller as the bootstrap pod does and gives the directory that it wrote.
func (m mco) controller(t *testing.T, b bootstrapped) (string, string, error) {
	t.Helper()
	dest := filepath.Join(t.TempDir(), "mcs")
	out, err := says(m.command(t, "machine-config-controller", "bootstrap", "--templates", filepath.Join(string(m),
		"templates"), "--manifest-dir", b.dir, "--dest-dir", dest, "--pull-secret", b.pullSecret,
		"--payload-version", release))
	return dest, lastLines(out), err
}

func lastLines(out string) string {
	lines := bytes.Split(bytes.TrimSpace([]byte(out)), []byte("\n"))
	return string(bytes.Join(lines[max(0, len(lines)-3):], []byte("\n")))
}
