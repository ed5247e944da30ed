package plan_test

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"dayone.dev/dayone/bootstrap/preflight"
	"dayone.dev/dayone/bootstrap/preview"
	"dayone.dev/dayone/cmd/internal/cli"
	"dayone.dev/dayone/hack/kube"
	"dayone.dev/dayone/installconfig"
	"dayone.dev/dayone/manifests/assets"
)

// installDir is the sample install directory, with changes "file: from=>to" or a whole new file "file: =>content".
func installDir(t *testing.T, changes ...string) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "cluster")
	require.NoError(t, assets.WriteSample(dir))
	for _, c := range changes {
		name, edit, _ := strings.Cut(c, ": ")
		from, to, _ := strings.Cut(edit, "=>")
		file := filepath.Join(dir, name)
		text := ""
		if from != "" {
			raw, err := os.ReadFile(file)
			require.NoError(t, err)
			require.Contains(t, string(raw), from, name)
			text = strings.ReplaceAll(string(raw), from, to)
		} else {
			text = to
		}
		require.NoError(t, os.WriteFile(file, []byte(text), 0o600))
	}
	return dir
}

const (
	masterFile  = "openshift/20-master-sysctl.yaml: 262144=>262145"
	masterOwner = "openshift/20-master-sysctl.yaml: 20-master-sysctl\n=>20-master-sysctl\n  annotations: " +
		"{dayone.dev/post-config-action: Restart systemd-sysctl.service}\n"
	noPolicy = "openshift/60-policy.yaml: =>apiVersion: operator.openshift.io/v1\nkind: " +
		"MachineConfiguration\nmetadata: {name: cluster}\n" +
		"spec: {managementState: Managed, nodeDisruptionPolicy: {files: [{path: /etc/sysctl.d/90-demo.conf, actions: " +
		"[{type: None}]}]}}\n"
)

// planIn reads what a plan command prints with -o json.
func planIn(t *testing.T, out string) preview.Forecast {
	t.Helper()
	assert.Contains(t, out, `"kind": "Plan"`)
	var p preview.Forecast
	require.NoError(t, json.Unmarshal([]byte(out), &p))
	return p
}

func TestThePlanOfAnInstallation(t *testing.T) {
	t.Setenv("KUBECONFIG", "/nowhere")
	dir := installDir(t)
	code, out, errs := dayone(t, "plan", "--dir", dir, "--exit-code")
	require.Equal(t, cli.ExitOK, code, errs)
	for _, want := range []string{"cluster demo.example.com, standalone flow",
		"pool master: 3 nodes have registry.example.com/ocp/master-os from the start, 2 boots",
		"  reboot: soft (likely) where the disk has the base image and its OS can, else hard\n",
		"pool worker: nodes join with the base OS image", "then Drain, Reboot", "buildah engine",
		"[not-prepared] (run dayone prepare --dir " + dir} {
		assert.Contains(t, out, want)
	}
	assert.NotContains(t, out, "nothing prevents the installation")
	assert.Regexp(t, `master +file /etc/motd +10-master-motd \(openshift/10-master-motd.yaml\)`, out)
	assert.Regexp(t, `master +unit demo-hello.service +30-master-hello`, out)
	assert.NoDirExists(t, filepath.Join(dir, ".dayone"), "nothing is written")

	code, out, errs = dayone(t, "plan", "--dir", dir, "-o", "json")
	require.Equal(t, cli.ExitOK, code, errs)
	p := planIn(t, out)
	require.Len(t, p.Install.Pools, 2)
	assert.Equal(t, 3, p.Install.Pools[0].Nodes)
	assert.Equal(t, "layering/master.yaml", p.Install.Pools[0].Image.MachineOSConfig)
	assert.Contains(t, p.Pools[0].Target.Image, "registry.example.com/ocp/master-os#")
	code, out, _ = dayone(t, "plan", "--dir", dir, "-o", "yaml")
	assert.Equal(t, cli.ExitOK, code)
	assert.Contains(t, out, "baseImage: registry.example.com/ocp/base-os:1")

	layering, err := preflight.Layering(dir)
	require.NoError(t, err)
	_, err = preflight.PrepareSigning(dir, layering.Config.Signing)
	require.NoError(t, err)
	_, err = installconfig.Prepare(dir)
	require.NoError(t, err)
	code, out, errs = dayone(t, "plan", "--dir", dir)
	require.Equal(t, cli.ExitOK, code, errs)
	assert.Contains(t, out, "nothing prevents the installation")
}

// TestPlanHasGeneratedMachineOSConfig has a pool whose Containerfile stands in install-config.yaml.
func TestPlanHasGeneratedMachineOSConfig(t *testing.T) {
	dir := installDir(t,
		"install-config.yaml:   - name: worker=>  - name: worker\n    containerfile: \"FROM configs AS final\\nLABEL "+
			"a=b\\n\"",
		"install-config.yaml:   bootstrapRegistry:=>  registry: {repository: registry.example.com/ocp, pushSecret: "+
			"os-push, baseImagePullSecret: base-pull}\n  bootstrapRegistry:")
	require.NoError(t, os.Remove(filepath.Join(dir, "layering/worker.yaml")))
	code, out, errs := dayone(t, "plan", "--dir", dir)
	require.Equal(t, cli.ExitOK, code, errs)
	assert.Contains(t, out, "dayone generates MachineOSConfig: layering/99_dayone-machineosconfig-worker.yaml")
	assert.Contains(t, out, "rendered config and 1 instruction of layering/99_dayone-machineosconfig-worker.yaml")
	assert.Contains(t, out, "append engine: the Containerfile has only LABEL, ENV and COPY of inline files")
	assert.NoFileExists(t, filepath.Join(dir, "layering/99_dayone-machineosconfig-worker.yaml"), "nothing is written")
}

func TestPlanOfAnotherDirectory(t *testing.T) {
	t.Setenv("KUBECONFIG", "/nowhere")
	before := installDir(t)
	for _, c := range []struct {
		name    string
		changes []string
		code    int
		want    []string
	}{
		{"nothing", nil, 0, []string{"pool master: nothing happens to its nodes",
			"pool worker: nothing happens to its nodes"}},
		{"a file without a rule", []string{masterFile}, 4, []string{"Reboot for 3 nodes: Drain on 3, Reboot on 3",
			"/etc/sysctl.d/90-demo.conf", "no policy covers this path", "config only"}},
		{"its owner gives a rule", []string{masterFile, masterOwner}, 2,
			[]string{"Reload for 3 nodes: Restart systemd-sysctl.service on 3", "MachineConfig 20-master-sysctl"}},
		{"the admin gives another", []string{masterFile, masterOwner, noPolicy}, 0,
			[]string{"Quiet for 3 nodes", "MachineConfiguration cluster"}},
		{"another Containerfile", []string{"layering/worker.yaml: RUN =>RUN true && "}, 4,
			[]string{"pool worker:", "Reboot for each node", "image image", "with other content"}},
		{"another base image", []string{"install-config.yaml: base-os:1=>base-os:2"}, 4,
			[]string{"pool master:", "pool worker:", "its base, its Containerfile or its extensions differ"}},
		{"a MachineConfig's name", []string{"openshift/10-master-motd.yaml: 10-master-motd=>11-master-motd"}, 0,
			[]string{"pool master: nothing happens"}},
		{"what no node can take", []string{"openshift/20-master-sysctl.yaml:       files:=>      disks: [{device: " +
			"/dev/sdb}]\n      files:"}, 5, []string{"Impossible", "install the node anew"}},
		{"a policy that cannot be used", []string{masterFile, strings.Replace(noPolicy, "path: /etc/sysctl.d/90-demo.conf,",
			"path: etc,", 1)}, 4, []string{"refused: spec.nodeDisruptionPolicy.files[etc]"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			now := installDir(t, c.changes...)
			code, out, errs := dayone(t, "plan", "--dir", now, "--from", before, "--exit-code")
			assert.Equal(t, c.code, code, "%s%s", out, errs)
			for _, want := range c.want {
				assert.Contains(t, out, want)
			}
			code, out, errs = dayone(t, "plan", "--dir", now, "--from", before, "-o", "json")
			require.Equal(t, cli.ExitOK, code, errs)
			planIn(t, out)
		})
	}
}

func TestPlanOfADirectoryOverACluster(t *testing.T) {
	t.Setenv("KUBECONFIG", "/nowhere")
	dump := writeDump(t, effectWorld(t))
	add := func(value string) string {
		return "openshift/50-app.yaml: =>" + strings.ReplaceAll(appConfig, "old", value)
	}
	// The sample makes the cluster's workers layered; without that the file alone decides.
	plain := func(changes ...string) string {
		dir := installDir(t, append(changes, "install-config.yaml:   - name: worker\n=>")...)
		require.NoError(t, os.Remove(filepath.Join(dir, "layering/worker.yaml")))
		require.NoError(t, os.Remove(filepath.Join(dir, "openshift/10-worker-motd.yaml")))
		return dir
	}
	code, out, errs := dayone(t, "plan", "--dir", plain(add("old")), "--from", dump, "--exit-code")
	require.Equal(t, 0, code, "%s%s", out, errs)
	assert.Contains(t, out, "pool worker: nothing happens to its nodes")
	code, out, errs = dayone(t, "plan", "--dir", plain(add("new")), "--from", dump, "--exit-code")
	require.Equal(t, 4, code, "%s%s", out, errs)
	assert.Contains(t, out, "file /etc/app.conf")
	assert.Contains(t, out, "w0")
	code, out, errs = dayone(t, "plan", "--dir", installDir(t), "--from", dump, "-o", "json", "--exit-code")
	require.Equal(t, 4, code, "%s%s", out, errs)
	p := planIn(t, out)
	at := 0
	for i := range p.Pools {
		if p.Pools[i].Pool == "worker" {
			at = i
		}
	}
	assert.True(t, p.Pools[at].Effect.Remade, "the nodes' first image")
}

// TestPlanOfADirectoryNamesWhatItDoesNotForecast has objects in the directory that no forecast covers, and one that
// reaches no node.
func TestPlanOfADirectoryNamesWhatItDoesNotForecast(t *testing.T) {
	t.Setenv("KUBECONFIG", "/nowhere")
	dump := writeDump(t, effectWorld(t))
	dir := installDir(t,
		"openshift/60-pins.yaml: =>apiVersion: machineconfiguration.openshift.io/v1\nkind: PinnedImageSet\nmetadata: "+
			"{name: apps}\nspec: {pinnedImages: [{name: r.example.com/a@sha256:"+strings.Repeat("a", 64)+"}]}\n",
		"openshift/61-nobody.yaml: =>"+strings.NewReplacer("50-app", "61-nobody", "role: worker", "role: wroker").
			Replace(appConfig))
	code, out, errs := dayone(t, "plan", "--dir", dir, "--from", dump, "--exit-code")
	require.Equal(t, int(cli.ExitIncomplete), code, "%s%s", out, errs)
	assert.Regexp(t, `not known: PinnedImageSet apps \(.*openshift/60-pins.yaml:1:1\) is not forecast`, out)
	assert.Regexp(t, `no effect: MachineConfig 61-nobody \(.*openshift/61-nobody.yaml.*no pool's machineConfigSelector`,
		out)
	_, out, _ = dayone(t, "plan", "--dir", dir, "--from", dump, "-o", "json")
	p := planIn(t, out)
	assert.Len(t, p.Unknown, 1, "%v", p.Unknown)
	assert.NotEmpty(t, p.Hints)
}

func TestPlansOfWrongInput(t *testing.T) {
	t.Setenv("KUBECONFIG", "/nowhere")
	good := installDir(t)
	for _, c := range []struct {
		name string
		args []string
		code int
		want string
	}{
		{"no directory", []string{"--dir", "/nowhere"}, cli.ExitRefused, "/nowhere"},
		{"no field", []string{"--dir", t.TempDir()}, cli.ExitRefused, "not-prepared"},
		{"an annotation that cannot be read", []string{"--dir",
			installDir(t, strings.Replace(masterOwner, "Restart systemd-sysctl.service", "Explode", 1))}, cli.ExitRefused,
			`no action "Explode"`},
		{"nothing at --from", []string{"--dir", good, "--from", "/nowhere"}, cli.ExitFailed, "/nowhere"},
		{"an empty directory at --from", []string{"--dir", good, "--from", t.TempDir()}, cli.ExitFailed,
			"kubectl get nodes,machineconfigpools"},
		{"a moment", []string{"--dir", good, "--at", "soon"}, cli.ExitUsage, "2026-01-31T22:00:00Z"},
		{"a form", []string{"--dir", good, "-o", "xml"}, cli.ExitUsage, "text, json or yaml"},
		{"an argument", []string{good}, cli.ExitUsage, "type: dayone plan [flags]"},
		{"an earlier directory that is bad", []string{"--dir", good, "--from",
			installDir(t, "install-config.yaml:   flow:=>  flwo:")}, cli.ExitRefused, "flwo"},
	} {
		t.Run(c.name, func(t *testing.T) {
			code, _, errs := dayone(t, append([]string{"plan"}, c.args...)...)
			assert.Equal(t, c.code, code, errs)
			assert.Contains(t, errs, c.want)
			code, _, _ = dayone(t, append([]string{"plan", "--exit-code"}, c.args...)...)
			assert.Equal(t, cli.ExitFailed, code, "no failure is taken for an answer")
		})
	}
}

// TestPlanOfANewMachineOSConfig asks for a MachineOSConfig that opts a pool in.
func TestPlanOfANewMachineOSConfig(t *testing.T) {
	t.Setenv("KUBECONFIG", "/nowhere")
	objects := effectWorld(t)
	mosc := func(content string) *mcfgv1.MachineOSConfig {
		m := &mcfgv1.MachineOSConfig{ObjectMeta: metav1.ObjectMeta{Name: "worker"}, Spec: mcfgv1.MachineOSConfigSpec{
			MachineConfigPool:       mcfgv1.MachineConfigPoolReference{Name: "worker"},
			ImageBuilder:            mcfgv1.MachineOSImageBuilder{ImageBuilderType: mcfgv1.JobBuilder},
			RenderedImagePushSecret: mcfgv1.ImageSecretObjectReference{Name: "push"},
			RenderedImagePushSpec:   "r.example.com/os/worker:x",
			Containerfile:           []mcfgv1.MachineOSContainerfile{{ContainerfileArch: mcfgv1.NoArch, Content: content}}}}
		m.SetGroupVersionKind(mcfgv1.GroupVersion.WithKind("MachineOSConfig"))
		return m
	}
	apply := func(m client.Object) string {
		raw, err := json.Marshal(m)
		require.NoError(t, err)
		return write(t, "new.yaml", string(raw))
	}
	dir := writeDump(t, objects)
	code, out, errs := dayone(t, "cluster", "plan", "--from", dir, "-f", apply(mosc("FROM configs AS final\n")),
		"--exit-code")
	assert.Equal(t, 4, code, "%s%s", out, errs)
	assert.Contains(t, out, "Reboot for 2 nodes")
	assert.Contains(t, out, "its image is built first, with other content than the nodes have")
}

// TestKubectlRunsThePlugin lets the tests' own kubectl find this program by the name that make build links it to.
func TestKubectlRunsThePlugin(t *testing.T) {
	if testing.Short() {
		t.Skip("needs the tests' own kubectl, which is left out with -short")
	}
	path := t.TempDir()
	self, err := os.Executable()
	require.NoError(t, err)
	require.NoError(t, os.Symlink(self, filepath.Join(path, "kubectl-dayone")))
	assetsDir, err := kube.Assets(t.Context(), nil)
	require.NoError(t, err)
	cmd := exec.CommandContext(t.Context(), filepath.Join(assetsDir, "kubectl"), "dayone", "plan", "--from",
		writeDump(t, effectWorld(t)), "-f", write(t, "new.yaml", strings.ReplaceAll(appConfig, "old", "new")), "--exit-code")
	cmd.Env = append(os.Environ(), "PATH="+path+":"+os.Getenv("PATH"), "KUBECONFIG=/nowhere")
	out, err := cmd.CombinedOutput()
	var exit *exec.ExitError
	require.ErrorAs(t, err, &exit, "%s", out)
	assert.Equal(t, 4, exit.ExitCode(), "the answer is kubectl's exit code, too: %s", out)
	assert.Contains(t, string(out), "Reboot for 2 nodes")
}

// TestThePlanOfAPoolOfTheUsers has a pool that openshift-install does not know: its nodes join as workers.
func TestThePlanOfAPoolOfTheUsers(t *testing.T) {
	t.Setenv("KUBECONFIG", "/nowhere")
	for _, c := range []struct {
		name, at, want string
		boots          int
	}{
		{"built in the cluster", "", "pool infra: nodes join with the base OS image, at most 2 boots; the cluster builds", 2},
		{"built on the bootstrap host", "buildAt: bootstrap", "registry.example.com/ocp/infra-os after at most 3 boots", 3},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "install")
			require.NoError(t, assets.WriteOpenShiftSample(dir))
			worker, err := os.ReadFile(filepath.Join(dir, "layering/worker.yaml"))
			require.NoError(t, err)
			for file, text := range map[string]string{
				"layering/infra.yaml": strings.ReplaceAll(strings.ReplaceAll(string(worker), "name: worker", "name: infra"),
					"worker-os", "infra-os"),
				"openshift/99_infra.yaml": "apiVersion: machineconfiguration.openshift.io/v1\nkind: MachineConfigPool\n" +
					"metadata: {name: infra}\nspec:\n  machineConfigSelector:\n    matchExpressions:\n    - {key: " +
					"machineconfiguration.openshift.io/role, operator: In, values: [worker, infra]}\n" +
					"  nodeSelector: {matchLabels: {node-role.kubernetes.io/infra: \"\"}}\n"} {
				require.NoError(t, os.WriteFile(filepath.Join(dir, file), []byte(text), 0o600))
			}
			file := filepath.Join(dir, "install-config.yaml")
			raw, err := os.ReadFile(file)
			require.NoError(t, err)
			named := strings.Replace(string(raw), "  - name: worker\npull",
				"  - name: worker\n  - {name: infra, "+c.at+"}\npull", 1)
			require.NoError(t, os.WriteFile(file, []byte(named), 0o600))
			code, out, errs := dayone(t, "plan", "--dir", dir)
			require.Equal(t, cli.ExitOK, code, errs)
			assert.Contains(t, out, c.want)
			assert.Contains(t, out, "the installer's user data make its nodes join as worker")
			assert.NotContains(t, out, "the label of pool worker")
			code, out, errs = dayone(t, "plan", "--dir", dir, "-o", "json")
			require.Equal(t, cli.ExitOK, code, errs)
			pools := planIn(t, out).Install.Pools
			require.Equal(t, "infra", pools[0].Name)
			assert.Equal(t, "worker", pools[0].JoinsAs)
			assert.Equal(t, c.boots, pools[0].Boots)
		})
	}
}
