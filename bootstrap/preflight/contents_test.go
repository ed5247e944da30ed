package preflight

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"dayone.dev/dayone/installconfig"
	"dayone.dev/dayone/installconfig/report"
	"dayone.dev/dayone/manifests/assets"
)

// TestRefusesContents: values of the right kind that cannot work.
func TestRefusesContents(t *testing.T) {
	const (
		file    = installconfig.FileName
		master  = "layering/master.yaml"
		secrets = "layering/secrets.yaml"
		push    = `{"registry.example.com":{"auth":"ZGVtby1wdXNoOm5vdC1hLXJlYWwtcGFzc3dvcmQ="}}`
		spec    = "registry.example.com/ocp/master-os"
		ca      = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: user-ca-bundle, namespace: openshift-config}\ndata:\n"
		motd    = "openshift/10-worker-motd.yaml"
	)
	mirror := func(host string) string {
		return "imageDigestSources:\n- source: quay.io/a\n  mirrors: [" + host + "/a]\npullSecret:"
	}
	pool := "  replicas: 3\n"
	for _, c := range []struct{ name, file, from, to, rule string }{
		{"auth that is no base64", secrets, push, `{"registry.example.com":{"auth":"%%%"}}`, "secret-content"},
		{"auth without a colon", secrets, push, `{"registry.example.com":{"auth":"Y2FuYXJ5"}}`, "secret-content"},
		{"auth without a user", secrets, push, `{"registry.example.com":{"auth":"OnBhc3M="}}`, "secret-content"},
		{"no auth", secrets, push, `{"registry.example.com":{"atuh":"x"}}`, "secret-content"},
		{"no entries", secrets, push, `{}`, "secret-content"},
		{"empty credentials", secrets, `'{"auths":` + push + `}'`, `""`, "secret-content"},
		{"credentials of a Secret that no object names", secrets, "name: base-pull\n  namespace: openshift-" +
			"machine-config-operator\ntype: kubernetes.io/dockerconfigjson\nstringData:\n  .dockerconfigjson: '{\"auths\"",
			"name: base-pull\n  namespace: openshift-machine-config-operator\ntype: kubernetes.io/dockerconfigjson\n" +
				"stringData:\n  .dockerconfigjson: '{\"auts\"", "secret-content"},
		{"a pull secret that is no JSON", file, `'{"auths":{"registry`, `'"auths":{"registry`, "pull-secret"},
		{"a pull secret without auths", file, `'{"auths":{"registry`, `'{"auts":{"registry`, "pull-secret"},
		{"a pull secret with half an auth", file, `"auth":"ZGVt`, `"auth":"%%%`, "pull-secret"},
		{"a pull secret without a user", file, `ZGVtby1wdWxsOm5vdC1hLXJlYWwtcGFzc3dvcmQ=`, `OnBhc3M=`, "pull-secret"},
		{"an SSH key that is none", file, "ssh-ed25519 AAAAC3", "ssh-ed25519 BBBB", "ssh-key"},
		{"a CA that is none", file, "pullSecret:", "additionalTrustBundle: |\n  MIIB\npullSecret:", "trust-bundle"},
		{"a ConfigMap's CA that is none", motd, "apiVersion: ", ca + "  ca-bundle.crt: none\n---\napiVersion: ",
			"trust-bundle"},
		{"a ConfigMap's empty CA", motd, "apiVersion: ", ca + "  ca-bundle.crt: \"\"\n---\napiVersion: ", "trust-bundle"},
		{"a push spec that is no machine's", master, spec, "0.0.0.0:5000/ocp/master-os", "unreachable"},
		{"a push spec on a link", master, spec, "169.254.1.1:5000/ocp/master-os", "unreachable"},
		{"a base image on a link", file, "registry.example.com/ocp/base-os:1", "169.254.1.1/ocp/base-os:1", "unreachable"},
		{"a bootstrap host on a link", file, "host: 192.168.77.1", "host: 169.254.1.1", "unreachable"},
		{"a bootstrap host that is itself", file, "host: 192.168.77.1", "host: 127.0.0.1", "loopback-host"},
		{"a mirror that is no machine's", file, "pullSecret:", mirror("0.0.0.0:5000"), "unreachable"},
		{"a domain that is none", file, "baseDomain: example.com", "baseDomain: Example_com", "name"},
		{"a cluster's name that is none", file, "name: demo", "name: my_demo", "name"},
		{"a name of the control plane that is none", file, "controlPlane:\n  name: master", "controlPlane:\n  name: masters",
			"name"},
		{"no master", file, pool, "  replicas: 0\n", "replicas"},
		{"fewer than no workers", file, "  replicas: 2\n", "  replicas: -2\n", "replicas"},
		{"an architecture that is none", file, pool, pool + "  architecture: amd65\n", "value"},
		{"another word for an architecture", file, pool, pool + "  architecture: x86_64\n", "value"},
		{"a switch that is none", file, pool, pool + "  hyperthreading: disabled\n", "value"},
		{"two platforms", file, "  none: {}", "  none: {}\n  aws: {}", "platform"},
		{"no platform", file, "platform:\n  none: {}", "platform: {}", "platform"},
		{"a platform that is none", file, "  none: {}", "  nnoe: {}", "unknown-key"},
		{"a network that is none", file, "platform:", "networking: {machineNetwork: [{cidr: 10.0.0.0}]}\nplatform:", "cidr"},
		{"a host for a network", file, "platform:", "networking: {serviceNetwork: [172.30.0.1/16]}\nplatform:", "cidr"},
		{"a network without an address", file, "platform:", "networking: {clusterNetwork: [{hostPrefix: 23}]}\nplatform:",
			"cidr"},
		{"a host's prefix that does not fit", file, "platform:",
			"networking: {clusterNetwork: [{cidr: 10.128.0.0/14, hostPrefix: 8}]}\nplatform:", "host-prefix"},
		{"an old form", file, "apiVersion: v1\n", "apiVersion: v2\n", "value"},
		{"a publisher that is none", file, "platform:", "publish: external\nplatform:", "value"},
		{"gates outside of CustomNoUpgrade", file, "platform:", "featureGates: [A=true]\nplatform:", "feature-gates"},
		{"a limit that is none", "openshift/10-pools.yaml", "spec:\n", "spec:\n  maxUnavailable: many\n", "max-unavailable"},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := sample(t)
			replace(t, dir, c.file, c.from, c.to)
			_, err := Load(dir, platform)
			found := rule(report.Of(err), c.rule)
			require.NotEmpty(t, found, "%v", err)
			assert.Equal(t, c.file, found[0].File)
			assert.NotZero(t, found[0].Column, found[0].Error())
			assert.NotEmpty(t, found[0].Next)
		})
	}
}

func TestNamesDoubtfulContents(t *testing.T) {
	for _, c := range []struct{ name, file, from, to, rule string }{
		{"a push spec that is each node itself", "layering/master.yaml", "registry.example.com/ocp/master-os",
			"127.0.0.1:5000/ocp/master-os", "unreachable"},
		{"a mirror that is each node itself", "install-config.yaml", "pullSecret:",
			"imageDigestSources: [{source: quay.io/a, mirrors: [\"localhost:5000/a\"]}]\npullSecret:", "unreachable"},
		{"an SSH key that is none", "openshift/50-master-ssh.yaml", "ssh-ed25519 AAAAC3", "ssh-ed25519 BBBB", "ssh-key"},
		{"a CA that is not there", "openshift/10-worker-motd.yaml", "apiVersion: ", "apiVersion: config.openshift.io/v1\n" +
			"kind: Image\nmetadata: {name: cluster}\nspec: {additionalTrustedCA: {name: cas}}\n---\napiVersion: ",
			"trust-bundle-missing"},
		{"a proxy that is each node itself", "install-config.yaml", "pullSecret:",
			"proxy: {httpProxy: \"http://127.0.0.1:3128\", noProxy: 192.168.77.1}\npullSecret:", "unreachable"},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := sample(t)
			replace(t, dir, c.file, c.from, c.to)
			in, err := Load(dir, platform)
			require.NoError(t, err)
			found := rule(in.Warnings, c.rule)
			require.NotEmpty(t, found, "%v", in.Warnings)
			assert.NotZero(t, found[0].Column)
		})
	}
}

// TestOpenShiftTakesWhatANewerInstallerKnows: such a field is named, and a slip of a known one is refused.
func TestOpenShiftTakesWhatANewerInstallerKnows(t *testing.T) {
	newer := "platform:\n  aws: {region: a, anything: {deeper: true}}\nzones: [a]\nfeatureSet: HyperShiftNoUpgrade\n"
	dir := openshiftSample(t)
	replace(t, dir, "install-config.yaml", "platform:\n  none: {}\n", newer)
	in, err := Load(dir, platform)
	require.NoError(t, err)
	assert.Len(t, rule(in.Warnings, "unknown-key"), 1)
	assert.Len(t, rule(in.Warnings, "value"), 1)
	replace(t, dir, "install-config.yaml", "zones: [a]", "sshkey: a")
	_, err = Load(dir, platform)
	found := rule(report.Of(err), "unknown-key")
	require.Len(t, found, 1)
	assert.True(t, strings.HasPrefix(found[0].Next, "did you mean sshKey?"))
	replace(t, dir, "install-config.yaml", "  flow: openshift", "  flow: openshift\n  fieldValidation: warn")
	_, err = Load(dir, platform)
	require.NoError(t, err)
}

func openshiftSample(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	require.NoError(t, assets.WriteOpenShiftSample(dir))
	return dir
}
