package preflight

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"dayone.dev/dayone/build/sign"
	"dayone.dev/dayone/installconfig"
	"dayone.dev/dayone/installconfig/report"
	"dayone.dev/dayone/manifests/assets"
)

const platform = "linux/amd64"

func sample(t *testing.T) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "cluster")
	require.NoError(t, assets.WriteSample(dir))
	return dir
}

// replace edits a file of the install directory and fails when the text is not there.
func replace(t *testing.T, dir, file, from, to string) {
	t.Helper()
	path := filepath.Join(dir, file)
	raw, err := os.ReadFile(path)
	require.NoError(t, err)
	require.Contains(t, string(raw), from)
	require.NoError(t, os.WriteFile(path, []byte(strings.ReplaceAll(string(raw), from, to)), 0o600))
}

func TestLoadSample(t *testing.T) {
	dir := sample(t)
	in, err := Load(dir, platform)
	require.NoError(t, err)
	assert.Empty(t, in.Warnings)
	require.Len(t, in.Pools, 2)
	assert.Equal(t, "registry.example.com/ocp/master-os", in.Pools[0].Repository)
	assert.Contains(t, in.Pools[0].Containerfile, "RUN ")
	assert.GreaterOrEqual(t, len(in.Set.MachineConfigs), 6)
	assert.Contains(t, string(in.Pools[0].BasePull), "registry.example.com")
	assert.Empty(t, in.Generated)
}

func TestLoadAfterPrepareIsTheSame(t *testing.T) {
	dir := sample(t)
	before, err := Load(dir, platform)
	require.NoError(t, err)
	_, err = installconfig.Prepare(dir)
	require.NoError(t, err)
	after, err := Load(dir, platform)
	require.NoError(t, err)
	assert.Equal(t, before.Sidecar, after.Sidecar)
	assert.Equal(t, before.Pools, after.Pools)
	assert.Equal(t, before.Nodes, after.Nodes)
	require.NoError(t, os.Remove(filepath.Join(dir, installconfig.FileName)))
	tidied, err := Load(dir, platform)
	require.NoError(t, err)
	assert.Equal(t, before.Sidecar, tidied.Sidecar)
	require.Len(t, tidied.Warnings, 1)
	assert.Equal(t, "install-config-missing", tidied.Warnings[0].Rule)
}

func TestLoadRefuses(t *testing.T) {
	const master = "layering/master.yaml"
	spec := "registry.example.com/ocp/master-os:latest"
	cases := []struct{ name, file, from, to, rule, place string }{
		{"an unknown key in the field", "install-config.yaml", "  flow:", "  flwo:", "unknown-key",
			"install-config.yaml"},
		{"a MOSC name unlike its pool", master, "metadata:\n  name: master", "metadata:\n  name: main", "mosc-name",
			master},
		{"two MOSCs for one pool", "layering/worker.yaml", "name: worker", "name: master", "mosc-twice",
			"layering/worker.yaml"},
		{"a push spec without tag", master, spec, "registry.example.com/ocp/master-os", "push-spec-tag", master},
		{"a push spec with a digest", master, spec, "registry.example.com/ocp/master-os@sha256:" +
			strings.Repeat("a", 64), "push-spec-digest", master},
		{"a push spec on localhost", master, spec, "localhost:5000/ocp/master-os:latest", "push-spec-form",
			master},
		{"two namespace levels", master, spec, "registry.example.com/a/b/master-os:latest",
			"push-spec-namespace", master},
		{"upper case in the repository", master, spec, "registry.example.com/ocp/Master:latest",
			"push-spec-repository", master},
		{"the base image's own repository", master, "ocp/master-os:", "ocp/base-os:", "base-repository",
			"install-config.yaml"},
		{"a push Secret that is not there", master, "name: os-push", "name: other", "secret-missing", master},
		{"a Secret of the wrong type", "layering/secrets.yaml", "kubernetes.io/dockerconfigjson", "Opaque",
			"secret-type", "layering/secrets.yaml"},
		{"a Secret without credentials", "layering/secrets.yaml", `{"auths":{"registry`, `{"other":{"registry`,
			"secret-content", "layering/secrets.yaml"},
		{"a Containerfile that does not parse", master, "      EOF\n", "", "syntax", master},
		{"a Containerfile without a stage", master, "      FROM configs AS final\n", "", "final-stage", master},
		{"a Containerfile that is too long", master, "FROM configs AS final", "FROM configs AS final\n      # " +
			strings.Repeat("x", 4097), "containerfile-length", master},
		{"invalid Ignition in a MachineConfig", "openshift/10-master-motd.yaml", "path: /etc/motd", "path: etc/motd",
			"ignition", "openshift/10-master-motd.yaml"},
		{"an unknown Ignition version", "openshift/10-master-motd.yaml", "version: 3.2.0", "version: 9.9.9",
			"ignition", "openshift/10-master-motd.yaml"},
		{"YAML that is none", "openshift/10-pools.yaml", "kind: MachineConfigPool", "kind: [", "",
			"openshift/10-pools.yaml"},
		{"a pool that does not exist", "install-config.yaml", "  - name: worker", "  - name: infra", "pool-missing",
			"install-config.yaml"},
		{"a base image without a dotted host", "install-config.yaml", "registry.example.com/ocp/base-os:1", "base-os:1",
			"base-image", "install-config.yaml"},
		{"a port that is none", master, spec, "registry.example.com:99999/ocp/master-os:latest",
			"push-spec-port", master},
		{"a tag that is none", master, spec, "registry.example.com/ocp/master-os:-latest", "push-spec-tag",
			master},
		{"an unknown architecture", master, "containerfileArch: NoArch", "containerfileArch: AMD65",
			"containerfile-arch", master},
		{"two Containerfiles for one platform", master, "  - containerfileArch: NoArch",
			"  - containerfileArch: NoArch\n    content: FROM configs\n  - containerfileArch: NoArch", "containerfile-arch",
			master},
		{"an osImageURL beside the built one", "openshift/10-master-motd.yaml", "spec:\n",
			"spec:\n  osImageURL: registry.example.com/ocp/x@sha256:" + strings.Repeat("a", 64) + "\n", "os-image-url",
			"openshift/10-master-motd.yaml"},
		{"a plain pool's osImageURL by tag", "openshift/10-worker-motd.yaml", "spec:\n",
			"spec:\n  osImageURL: registry.example.com/ocp/x:9.6\n", "os-image-by-tag", "openshift/10-worker-motd.yaml"},
		{"content from a web server", "openshift/10-master-motd.yaml", "source: data:,",
			"source: https://example.com/", "remote-source", "openshift/10-master-motd.yaml"},
		{"a file that machines change", "openshift/10-master-motd.yaml", "path: /etc/motd", "path: /etc/passwd",
			"machine-file", "openshift/10-master-motd.yaml"},
		{"a MachineConfig without a name", "openshift/10-master-motd.yaml", "  name: 10-master-motd\n", "", "name",
			"openshift/10-master-motd.yaml"},
		{"two MachineConfigs of one name", "openshift/10-worker-motd.yaml", "name: 10-worker-motd",
			"name: 10-master-motd", "name-twice", "openshift/10-worker-motd.yaml"},
		{"two Secrets of one name", "layering/secrets.yaml", "name: base-pull", "name: os-push", "name-twice",
			"layering/secrets.yaml"},
		{"a base image with half a digest", "install-config.yaml", "base-os:1", "base-os@sha256:12", "base-image",
			"install-config.yaml"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			dir := sample(t)
			replace(t, dir, c.file, c.from, c.to)
			_, err := Load(dir, platform)
			require.Error(t, err)
			findings := report.Of(err)
			require.NotEmpty(t, findings, "%v", err)
			var rules []string
			for _, f := range findings {
				rules = append(rules, f.Rule)
				if f.Rule == c.rule || c.rule == "" {
					assert.Equal(t, c.place, f.File)
					return
				}
			}
			t.Fatalf("rule %s is not among %v: %v", c.rule, rules, err)
		})
	}
}

func TestContainerfileFindingLine(t *testing.T) {
	dir := sample(t)
	replace(t, dir, "layering/master.yaml", "      RUN GREETING", "      RUNN GREETING")
	_, err := Load(dir, platform)
	findings := report.Of(err)
	require.Len(t, findings, 1, "%v", err)
	raw, err := os.ReadFile(filepath.Join(dir, "layering/master.yaml"))
	require.NoError(t, err)
	assert.Contains(t, strings.Split(string(raw), "\n")[findings[0].Line-1], "RUNN")
}

func TestGeneratedContainerfilePlace(t *testing.T) {
	dir := sample(t)
	require.NoError(t, os.Remove(filepath.Join(dir, "layering/master.yaml")))
	replace(t, dir, "install-config.yaml", "  bootstrapRegistry:\n",
		"  registry:\n    repository: registry.example.com/ocp\n    pushSecret: os-push\n  bootstrapRegistry:\n")
	replace(t, dir, "install-config.yaml", "  - name: master\n",
		"  - name: master\n    containerfile: |\n      FROM configs\n      RUNN true\n")
	_, err := Load(dir, platform)
	require.Len(t, report.Of(err), 1, "%v", err)
	found := report.Of(err)[0]
	assert.Equal(t, "install-config.yaml", found.File)
	assert.Equal(t, "onClusterLayering.pools[0].containerfile", found.Path)
	raw, err := os.ReadFile(filepath.Join(dir, "install-config.yaml"))
	require.NoError(t, err)
	assert.Contains(t, strings.Split(string(raw), "\n")[found.Line-1], "RUNN")

	replace(t, dir, "install-config.yaml", "    containerfile: |\n      FROM configs\n      RUNN true\n",
		"    containerfilePath: Containerfile.master\n")
	require.NoError(t, os.WriteFile(filepath.Join(dir, "Containerfile.master"), []byte("FROM configs\nRUNN true\n"),
		0o600))
	_, err = Load(dir, platform)
	require.Len(t, report.Of(err), 1, "%v", err)
	assert.Equal(t, "Containerfile.master:2", report.Of(err)[0].Place())
}

func TestLoadWarns(t *testing.T) {
	dir := sample(t)
	replace(t, dir, "openshift/10-master-motd.yaml", "role: master", "role: maister")
	replace(t, dir, "layering/worker.yaml", "containerfileArch: NoArch", "containerfileArch: S390X")
	replace(t, dir, "layering/worker.yaml", "registry.example.com/", "registry2.example.com/")
	in, err := Load(dir, platform)
	require.NoError(t, err)
	var rules []string
	for _, w := range in.Warnings {
		rules = append(rules, w.Rule)
	}
	assert.ElementsMatch(t, []string{"not-selected", "containerfile-arch", "push-secret-host",
		"pull-secret-host"}, rules)
}

func TestReplacedRemoteContent(t *testing.T) {
	dir := sample(t)
	raw, err := os.ReadFile(filepath.Join(dir, "openshift/10-master-motd.yaml"))
	require.NoError(t, err)
	early := strings.NewReplacer("name: 10-master-motd", "name: 05-master-motd", "source: data:,",
		"source: https://example.com/").Replace(string(raw))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "openshift/05-master-motd.yaml"), []byte(early), 0o600))
	_, err = Load(dir, platform)
	assert.NoError(t, err)
}

func TestMissingMachineOSConfig(t *testing.T) {
	dir := sample(t)
	require.NoError(t, os.Remove(filepath.Join(dir, "layering/master.yaml")))
	_, err := Load(dir, platform)
	require.ErrorContains(t, err, "has no MachineOSConfig")

	replace(t, dir, "install-config.yaml", "  - name: master\n",
		"  - name: master\n    containerfilePath: Containerfile.master\n")
	replace(t, dir, "install-config.yaml", "  bootstrapRegistry:\n",
		"  registry:\n    repository: registry.example.com/ocp\n    pushSecret: os-push\n  bootstrapRegistry:\n")
	_, err = Load(dir, platform)
	require.ErrorContains(t, err, "containerfile-path")

	require.NoError(t, os.WriteFile(filepath.Join(dir, "Containerfile.master"), []byte("FROM configs\nRUN true\n"), 0o600))
	in, err := Load(dir, platform)
	require.NoError(t, err)
	assert.Equal(t, "registry.example.com/ocp/master-os", in.Pools[0].Repository)
	require.Len(t, in.Generated, 1)
	files, err := in.WriteGenerated(dir)
	require.NoError(t, err)
	assert.Equal(t, []string{"layering/99_dayone-machineosconfig-master.yaml"}, files)

	again, err := Load(dir, platform)
	require.NoError(t, err, "a generated file is not taken for the user's")
	assert.Equal(t, in.Pools[0].Containerfile, again.Pools[0].Containerfile)
}

func TestMachineOSConfigInInstallerDir(t *testing.T) {
	dir := sample(t)
	require.NoError(t, os.Rename(filepath.Join(dir, "layering/master.yaml"), filepath.Join(dir, "openshift/master.yaml")))
	_, err := Load(dir, platform)
	require.ErrorContains(t, err, "mosc-place")
	require.ErrorContains(t, err, "the standalone flow builds those in layering/ only")
	assert.NotContains(t, err.Error(), "installer's", "there is none in this flow")
}

func TestLoadReportsAllFindings(t *testing.T) {
	dir := sample(t)
	replace(t, dir, "layering/master.yaml", "name: os-push", "name: other")
	replace(t, dir, "openshift/10-master-motd.yaml", "path: /etc/motd", "path: etc/motd")
	_, err := Load(dir, platform)
	assert.Len(t, report.Of(err), 2, "%v", err)
}

func TestUnreadableDirectory(t *testing.T) {
	_, err := Load(filepath.Join(t.TempDir(), "nowhere"), platform)
	require.ErrorContains(t, err, "install directory")
	dir := sample(t)
	require.NoError(t, os.RemoveAll(filepath.Join(dir, "openshift")))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "openshift"), []byte("a file"), 0o600))
	_, err = Load(dir, platform)
	require.Len(t, report.Of(err), 1, "%v", err)
	assert.Equal(t, "openshift: the directory cannot be read", strings.Join(strings.SplitN(err.Error(), ":", 3)[:2], ":"))
}

// openshift is the sample as openshift-install create manifests leaves it.
func openshift(t *testing.T) string {
	t.Helper()
	dir := sample(t)
	replace(t, dir, "install-config.yaml", "  flow: standalone\n", "")
	replace(t, dir, "install-config.yaml", "  baseImage: registry.example.com/ocp/base-os:1\n", "")
	require.NoError(t, os.Remove(filepath.Join(dir, "openshift/10-pools.yaml")))
	require.NoError(t, os.MkdirAll(filepath.Join(dir, "manifests"), 0o755))
	for _, c := range []struct{ name, text string }{
		{".openshift_install_state.json", "{}"},
		{"manifests/cluster-config.yaml", "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: cluster-config-v1, " +
			"namespace: kube-system}\ndata: {install-config: ''}\n"},
		{"openshift/99_feature-gate.yaml", "apiVersion: config.openshift.io/v1\nkind: FeatureGate\nmetadata: {name: " +
			"cluster}\nspec: {}\n"},
		{"openshift/99_user-kubelet.yaml", "apiVersion: machineconfiguration.openshift.io/v1\nkind: KubeletConfig\n" +
			"metadata: {name: logs}\nspec: {logLevel: 4, machineConfigPoolSelector: {matchLabels: {a: b}}}\n"},
		{"openshift/99_worker-machine.yaml", "apiVersion: machine.openshift.io/v1beta1\nkind: MachineSet\nmetadata: " +
			"{name: w}\n"},
	} {
		require.NoError(t, os.WriteFile(filepath.Join(dir, c.name), []byte(c.text), 0o600))
	}
	return dir
}

func TestDetectsOpenShiftFlow(t *testing.T) {
	in, err := Load(openshift(t), platform)
	require.NoError(t, err)
	assert.Equal(t, installconfig.FlowOpenShift, in.Sidecar.Config.Flow)
	require.Len(t, in.Pools, 2)
	assert.Empty(t, in.Generated, "MCO writes the pools")
}

func TestPreparedWantsTheKey(t *testing.T) {
	for _, lost := range []string{sign.KeyFile, sign.PassphraseFile, sign.PublicFile} {
		t.Run(lost, func(t *testing.T) {
			dir := sample(t)
			require.ErrorContains(t, Prepared(dir), "the field is still there")
			layering, err := Layering(dir)
			require.NoError(t, err)
			_, err = PrepareSigning(dir, layering.Config.Signing)
			require.NoError(t, err)
			_, err = installconfig.Prepare(dir)
			require.NoError(t, err)
			require.NoError(t, Prepared(dir))
			require.NoError(t, os.Remove(filepath.Join(dir, SigningDir, lost)))
			found := report.Of(Prepared(dir))
			require.Len(t, found, 1)
			assert.Equal(t, "not-prepared", found[0].Rule)
			assert.Equal(t, SigningDir+"/"+lost, found[0].File)

			require.NoError(t, os.RemoveAll(filepath.Join(dir, SigningDir)))
			_, err = PrepareSigning(dir, layering.Config.Signing)
			require.NoError(t, err, "what the finding says to do")
			assert.NoError(t, Prepared(dir))
		})
	}
}
