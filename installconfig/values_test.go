package installconfig

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"dayone.dev/dayone/installconfig/report"
)

// fields has more keys in the layering field of the sample, below has more keys at the top of the file.
func fields(keys string) string {
	return strings.Replace(sample, "  flow: standalone\n", "  flow: standalone\n  "+keys+"\n", 1)
}

func below(keys string) string { return sample + keys + "\n" }

// TestParseJudgesValues has the values at both sides of each bound: what is refused, as "rule path", and what is taken.
func TestParseJudgesValues(t *testing.T) {
	long := strings.Repeat("a", 254)
	pull := func(text string) string {
		return strings.Replace(sample, `'{"auths":{"registry.example.com":{"auth":"YTpi"}}}'`, "'"+text+"'", 1)
	}
	worker := func(keys string) string {
		return strings.Replace(sample, "- name: worker # later\n", "- name: worker\n    "+keys+"\n", 1)
	}
	const sources = "imageDigestSources: [{source: quay.io/a, "
	for _, c := range []struct {
		name, text string
		want       []string
	}{
		{"the sample", sample, nil},
		{"a capability set", below("capabilities: {baselineCapabilitySet: v4.20}"), nil},
		{"no capability set", below("capabilities: {baselineCapabilitySet: v5}"),
			[]string{"value capabilities.baselineCapabilitySet"}},
		{"a domain with its last dot", strings.Replace(sample, "baseDomain: example.com", "baseDomain: example.com.", 1),
			nil},
		{"a long name", strings.Replace(sample, "name: demo", "name: "+long, 1), []string{"name metadata.name"}},
		{"a name with a score", strings.Replace(sample, "name: demo", "name: a_b", 1), []string{"name metadata.name"}},
		{"names of machines", below("controlPlane: {name: master}\narbiter: {name: arbiter}\ncompute: [{name: infra}, {}]"),
			nil},
		{"other names", below("controlPlane: {name: worker}\narbiter: {name: master}\ncompute: [{name: In_fra}]"),
			[]string{"name controlPlane.name", "name arbiter.name", "name compute[0].name"}},
		{"numbers of machines", below("controlPlane: {replicas: 1}\ncompute: [{replicas: 0}]"), nil},
		{"too few machines", below("controlPlane: {replicas: 0}\ncompute: [{replicas: -1}]"),
			[]string{"replicas controlPlane.replicas", "replicas compute[0].replicas"}},
		{"networks", below("networking: {machineCIDR: 10.0.0.0/16, machineNetwork: [{cidr: 10.0.0.0/16}], " +
			"serviceNetwork: [172.30.0.0/16], clusterNetwork: [{cidr: 10.128.0.0/14, hostPrefix: 14}, " +
			"{cidr: 10.132.0.0/14, hostPrefix: 32}, {cidr: 10.136.0.0/14, hostPrefix: 0}, {cidr: 10.140.0.0/14}]}"), nil},
		{"hosts and no networks", below("networking: {machineCIDR: 10.0.0.1/16, machineNetwork: [{cidr: 10.0.0.0}], " +
			"serviceNetwork: [172.30.0.1/16], clusterNetwork: [{hostPrefix: 23}, {cidr: 10.132.0.0/14, hostPrefix: 13}, " +
			"{cidr: 10.136.0.0/14, hostPrefix: 33}]}"), []string{"cidr networking.machineNetwork[0].cidr",
			"cidr networking.serviceNetwork[0]", "cidr networking.clusterNetwork[0].cidr",
			"host-prefix networking.clusterNetwork[1].hostPrefix", "host-prefix networking.clusterNetwork[2].hostPrefix",
			"cidr networking.machineCIDR"}},
		{"a bootstrap host on a link", strings.Replace(sample, "192.0.2.1", "169.254.1.1", 1),
			[]string{"unreachable onClusterLayering.bootstrapRegistry.host"}},
		{"other machines than the control plane's", below("controlPlane: {name: master, architecture: amd64}\n" +
			"compute: [{name: infra, architecture: arm64}]"), nil},
		{"a pool of other machines", below("compute: [{name: master, architecture: arm64}]"),
			[]string{"architecture compute[0].architecture"}},
		{"a stream beside an image", below("controlPlane: {name: master, osImageStream: rhel-10}"),
			[]string{"os-image-stream controlPlane.osImageStream"}},
		{"a value of the installer's", below("publish: Internal"), nil},
		{"no value of the installer's", below("publish: external"), []string{"value publish"}},
		{"an unknown key", below("sshkey: a"), []string{"unknown-key sshkey"}},
		{"a platform", below("platform: {none: {}}"), nil},
		{"no platform", below("platform: {}"), []string{"platform platform"}},
		{"two platforms", below("platform: {none: {}, aws: {}}"), []string{"platform platform"}},
		{"gates", below("featureSet: CustomNoUpgrade\nfeatureGates: [A=true]"), nil},
		{"no gates", below("featureGates: []"), nil},
		{"gates of another feature set", below("featureGates: [A=true]"), []string{"feature-gates featureGates"}},
		{"a gate that is none", below("featureSet: CustomNoUpgrade\nfeatureGates: [A=true, B]"),
			[]string{"feature-gates featureGates[1]"}},
		{"mirrors", below(sources + "sourcePolicy: NeverContactSource, mirrors: [m.example.com/a, 127.0.0.1:5000/a]}, " +
			"{source: quay.io/b, sourcePolicy: AllowContactingSource}]"), nil},
		{"unusable mirrors", below(sources + "mirrors: [0.0.0.0/a, 224.0.0.1/a, 169.254.1.1:5000/a, " +
			"255.255.255.255/a]}]"), []string{"unreachable imageDigestSources[0].mirrors[0]",
			"unreachable imageDigestSources[0].mirrors[1]", "unreachable imageDigestSources[0].mirrors[2]",
			"unreachable imageDigestSources[0].mirrors[3]"}},
		{"an unknown policy", below(sources + "sourcePolicy: Never}]"),
			[]string{"image-sources imageDigestSources[0].sourcePolicy"}},
		{"mirrors by both names", below(sources + "mirrors: []}]\nimageContentSources: [{source: quay.io/b}]"),
			[]string{"image-sources imageContentSources"}},
		{"a store of credentials", pull(`{"auths":{"a":{"credsStore":"x"}}}`), nil},
		{"no JSON", pull(`"auths":{}`), []string{"pull-secret pullSecret"}},
		{"no entries", pull(`{"auths":{}}`), []string{"pull-secret pullSecret"}},
		{"an entry without auth", pull(`{"auths":{"a":{}}}`), []string{"pull-secret pullSecret"}},
		{"auth without a user", pull(`{"auths":{"a":{"auth":"OmI="}}}`), []string{"pull-secret pullSecret"}},
		{"auth without a colon", pull(`{"auths":{"a":{"auth":"YWI="}}}`), []string{"pull-secret pullSecret"}},
		{"an empty pull secret", pull(""), nil},
		{"an empty pull secret for OpenShift", strings.Replace(pull(""), "flow: standalone\n  baseImage: "+
			"registry.example.com/ocp/base-os:1", "flow: openshift", 1), []string{"pull-secret pullSecret"}},
		{"a long pool name", strings.Replace(sample, "name: worker", "name: "+long, 1),
			[]string{"pool-name onClusterLayering.pools[1].name"}},
		{"no pool", strings.Replace(sample, "pools:\n  - name: master\n  - name: worker # later", "pools: []", 1),
			[]string{"pools onClusterLayering.pools"}},
		{"another place to build", worker("buildAt: moon"), []string{"build-at onClusterLayering.pools[1].buildAt"}},
		{"a push spec without a Containerfile", worker("pushSpec: registry.example.com/a:1"),
			[]string{"push-spec-unused onClusterLayering.pools[1].pushSpec"}},
		{"a Containerfile without a push secret",
			worker("containerfile: FROM configs\n    pushSpec: registry.example.com/a/b:1"),
			[]string{"push-secret onClusterLayering.registry.pushSecret"}},
		{"a long Containerfile", worker("containerfile: \"" + strings.Repeat("é", MaxContainerfile+1) +
			"\"\n    pushSpec: registry.example.com/a/b:1\n  registry: {pushSecret: p}"),
			[]string{"containerfile-length onClusterLayering.pools[1].containerfile"}},
		{"the longest Containerfile", worker("containerfile: \"" + strings.Repeat("é", MaxContainerfile) +
			"\"\n    pushSpec: registry.example.com/a/b:1\n  registry: {pushSecret: p}"), nil},
		{"attempts", fields("build: {attempts: 20, disk: 1Mi, timeout: 1s}"), nil},
		{"one attempt", fields("build: {attempts: 1}"), nil},
		{"no attempt and no room", fields("build: {attempts: 0, disk: 1000Ki}"),
			[]string{"positive onClusterLayering.build.disk", "attempts onClusterLayering.build.attempts"}},
		{"many attempts", fields("build: {attempts: 21}"), []string{"attempts onClusterLayering.build.attempts"}},
		{"another failure policy", fields("onFailure: retry"), []string{"on-failure onClusterLayering.onFailure"}},
		{"another validation", fields("fieldValidation: loose"),
			[]string{"field-validation onClusterLayering.fieldValidation"}},
		{"another hand-over", fields("handOver: {policy: never}"),
			[]string{"hand-over onClusterLayering.handOver.policy"}},
		{"a deadline", fields("handOver: {policy: deadline, deadline: 1s}"), nil},
		{"a deadline for who waits", fields("handOver: {policy: wait, deadline: 5m}"),
			[]string{"hand-over onClusterLayering.handOver.deadline"}},
		{"a deadline of nothing", fields("handOver: {policy: deadline, deadline: 1ms}"),
			[]string{"positive onClusterLayering.handOver.deadline"}},
		{"an address with a query", fields(`logSpool: {url: "https://a.example.com/?a=b", tokenFile: a.token}`),
			[]string{"log-spool-url onClusterLayering.logSpool.url"}},
		{"a spool on the host itself", fields(`logSpool: {url: "https://127.0.0.1:9", tokenFile: a.token}`),
			[]string{"unreachable onClusterLayering.logSpool.url"}},
		{"bundles in time", fields(`logSpool: {url: "https://a.example.com", tokenFile: a.token, every: 1h}`), nil},
		{"bundles each two hours", fields(`logSpool: {url: "https://a.example.com", tokenFile: a.token, every: 2h}`),
			[]string{"log-spool-every onClusterLayering.logSpool.every"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			doc, err := parse([]byte(c.text))
			if err == nil {
				err = (&report.Report{Findings: doc.Check(doc.Config)}).Err()
			}
			var got []string
			for _, f := range report.Of(err) {
				got = append(got, f.Rule+" "+f.Path)
			}
			if c.want == nil {
				require.NoError(t, err)
			}
			assert.ElementsMatch(t, c.want, got)
		})
	}
}

// TestLoadOfNoFile has an install directory without a readable install-config.yaml.
func TestLoadOfNoFile(t *testing.T) {
	dir := t.TempDir()
	_, err := Prepare(dir)
	require.ErrorContains(t, err, "is --dir the install directory?")
	file := filepath.Join(dir, FileName)
	require.NoError(t, os.Mkdir(file, 0o700))
	_, err = Load(dir)
	require.Len(t, report.Of(err), 1)
	assert.Equal(t, "unreadable", report.Of(err)[0].Rule)
	require.NoError(t, os.Remove(file))
	for size, rule := range map[int]string{maxSize: "", maxSize + 1: "too-large"} {
		text := sample + "#" + strings.Repeat("x", size-len(sample)-1)
		require.NoError(t, os.WriteFile(file, []byte(text), 0o600))
		_, err = Load(dir)
		if rule == "" {
			require.NoError(t, err)
			continue
		}
		require.Len(t, report.Of(err), 1)
		assert.Equal(t, rule, report.Of(err)[0].Rule)
	}
}

// TestSidecarThatIsDamaged is never taken for one that says nothing.
func TestSidecarThatIsDamaged(t *testing.T) {
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, SidecarDir), nil, 0o600))
	require.ErrorContains(t, (&Sidecar{}).Write(dir), "make directory for the sidecar")
	_, err := ReadSidecar(dir)
	require.ErrorContains(t, err, "read sidecar: ")

	dir = t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, FileName), []byte(sample), 0o640))
	want, err := Prepare(dir)
	require.NoError(t, err)
	got, err := ReadSidecar(dir)
	require.NoError(t, err)
	assert.Equal(t, want, got)
	text, err := os.ReadFile(SidecarPath(dir))
	require.NoError(t, err)
	assert.True(t, strings.HasPrefix(string(text), "# Written by dayone prepare from "), string(text))
	assert.Contains(t, string(text), "\nonClusterLayering:\n  flow: standalone\n")
	for _, damaged := range []string{string(text) + "later: key\n", "", "{"} {
		require.NoError(t, os.WriteFile(SidecarPath(dir), []byte(damaged), 0o600))
		_, err = Prepare(dir)
		require.ErrorContains(t, err, "put onClusterLayering into install-config.yaml again, then run dayone prepare")
	}
	require.NoError(t, os.Remove(SidecarPath(dir)))
	require.NoError(t, os.MkdirAll(filepath.Join(SidecarPath(dir), "full"), 0o700))
	require.ErrorContains(t, got.Write(dir), "write sidecar: ")
}

func TestRepository(t *testing.T) {
	for _, c := range []struct{ reference, repository, path string }{
		{"r.example.com/a/b", "r.example.com/a/b", "a/b"},
		{"r.example.com:5000/a/b", "r.example.com:5000/a/b", "a/b"},
		{"r.example.com:5000/a/b:1", "r.example.com:5000/a/b", "a/b"},
		{"r.example.com/a@sha256:01", "r.example.com/a", "a"},
		{"r.example.com/a:1@sha256:01", "r.example.com/a", "a"},
	} {
		assert.Equal(t, c.repository, Repository(c.reference))
		assert.Equal(t, c.path, RepositoryPath(c.repository))
	}
}
