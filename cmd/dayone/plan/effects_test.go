package plan_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	configv1 "github.com/openshift/api/config/v1"
	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	opv1 "github.com/openshift/api/operator/v1"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"dayone.dev/dayone/cmd/internal/cli"
	"dayone.dev/dayone/manifests"
	"dayone.dev/dayone/manifests/render"
	"dayone.dev/dayone/manifests/rendercontroller/inputs"
	"dayone.dev/dayone/rebase/fleet/snapshot"
	"dayone.dev/dayone/rebase/forecast"
)

const appConfig = `apiVersion: machineconfiguration.openshift.io/v1
kind: MachineConfig
metadata: {name: 50-app, labels: {machineconfiguration.openshift.io/role: worker}}
spec: {config: {ignition: {version: 3.5.0}, storage: {files: [{path: /etc/app.conf, contents: {source: "data:,old"}}]}}}
`

// effectWorld is two workers that have what their pool's MachineConfig and mirror set render to.
func effectWorld(t *testing.T) []client.Object {
	t.Helper()
	role := map[string]string{manifests.LabelRole: "worker"}
	pool := &mcfgv1.MachineConfigPool{ObjectMeta: metav1.ObjectMeta{Name: "worker"}, Spec: mcfgv1.MachineConfigPoolSpec{
		NodeSelector:          &metav1.LabelSelector{MatchLabels: map[string]string{"node-role.kubernetes.io/worker": ""}},
		MachineConfigSelector: &metav1.LabelSelector{MatchLabels: role}}}
	set, err := manifests.Read([]byte(appConfig), "app.yaml", manifests.ReadOptions{})
	require.NoError(t, err)
	mirrors := &configv1.ImageDigestMirrorSet{ObjectMeta: metav1.ObjectMeta{Name: "mirrors"},
		Spec: configv1.ImageDigestMirrorSetSpec{
			ImageDigestMirrors: []configv1.ImageDigestMirrors{{Source: "a.example.com/b",
				Mirrors: []configv1.ImageMirror{"m.example.com/b"}}}}}
	objects := []client.Object{pool, set.MachineConfigs[0].Object, mirrors}
	d, err := snapshot.ReadDump(writeDump(t, objects))
	require.NoError(t, err)
	config, err := inputs.Preview(t.Context(), d, pool,
		inputs.Options{Versions: render.VersionsOf("v0")})
	require.NoError(t, err)
	pool.Spec.Configuration = mcfgv1.MachineConfigPoolStatusConfiguration{
		ObjectReference: corev1.ObjectReference{Name: config.Name}}
	objects = append(objects, config)
	for _, name := range []string{"w0", "w1"} {
		n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name,
			Labels: map[string]string{"node-role.kubernetes.io/worker": ""}, Annotations: map[string]string{
				manifests.AnnotationCurrentConfig: config.Name, manifests.AnnotationDesiredConfig: config.Name,
				manifests.AnnotationState:       "Done",
				manifests.AnnotationUpdateTimes: `{"seconds":{"Reload":12,"Reboot":300}}`}}}
		n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}
		objects = append(objects, n)
	}
	return objects
}

func TestPlanOfFiles(t *testing.T) {
	t.Setenv("KUBECONFIG", "/nowhere")
	dir := writeDump(t, effectWorld(t))
	changed := strings.ReplaceAll(appConfig, "old", "new")
	annotated := strings.Replace(changed, "{name: 50-app,",
		"{name: 50-app, annotations: {dayone.dev/post-config-action: Restart app.service},", 1)
	const policy = "---\napiVersion: operator.openshift.io/v1\nkind: MachineConfiguration\nmetadata: {name: " +
		"cluster%}\nspec: {managementState: Managed, nodeDisruptionPolicy: {files: [{path: /etc/app.conf, actions: " +
		"[{type: None}]}]}}\n"
	const noMirrors = "apiVersion: config.openshift.io/v1\nkind: ImageDigestMirrorSet\nmetadata: {name: " +
		"mirrors}\nspec: {imageDigestMirrors: [{source: a.example.com/b, mirrors: [n.example.com/b]}]}\n"
	for _, c := range []struct {
		name string
		file string
		code int
		want []string
	}{
		{"nothing new", appConfig, 0, []string{"nothing happens to its nodes"}},
		{"a file without a rule", changed, 4, []string{"Reboot for 2 nodes: Drain on 2, Reboot on 2; about 10m0s",
			"file /etc/app.conf", "no policy covers this path", "nothing delays the change"}},
		{"its owner gives a rule", annotated, 2, []string{"Reload for 2 nodes: Restart app.service on 2; about 24s",
			"MachineConfig 50-app"}},
		{"the admin gives another", annotated + strings.ReplaceAll(policy, "%", ""), 0,
			[]string{"Quiet for 2 nodes", "MachineConfiguration cluster"}},
		{"a mirror goes", noMirrors, 3, []string{"Drain for 2 nodes: Drain on 2, Reload crio.service on 2",
			"mirror m.example.com/b removed", "unsafe"}},
		{"a mirror goes, permitted", noMirrors + strings.ReplaceAll(policy, "%",
			`, annotations: {dayone.dev/mirror-policy: "ImageDigestMirrorSet=None"}`), 2, []string{"Reload for 2 nodes"}},
		{"what cannot be applied", strings.Replace(changed, "storage: {", `storage: {disks: [{device: /dev/sdb}], `, 1), 5,
			[]string{"Impossible", "install the node anew"}},
		{"an OS image by tag", strings.Replace(appConfig, "spec: {", "spec: {osImageURL: r.example.com/os:9.6, ", 1), 5,
			[]string{"Impossible for 2 nodes", "osImageURL: nodes refuse it", "write host/path@sha256:…"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			code, out, errs := dayone(t, "cluster", "plan", "--from", dir, "-f", write(t, "new.yaml", c.file), "--exit-code")
			t.Log(out)
			assert.Equal(t, c.code, code, "%s%s", out, errs)
			for _, want := range c.want {
				assert.Contains(t, out, want)
			}
		})
	}
	code, out, _ := dayone(t, "cluster", "plan", "--from", dir, "-f", write(t, "new.yaml", annotated), "-o", "json")
	assert.Zero(t, code, "without --exit-code an answer is no failure")
	var p forecast.Plan
	require.NoError(t, json.Unmarshal([]byte(out), &p))
	require.NotNil(t, p.Pools[0].Effect)
	assert.Equal(t, map[string]int{"Restart app.service": 2}, p.Pools[0].Effect.Counts)
	assert.Equal(t, "/etc/app.conf", p.Pools[0].Effect.Details[0].Changes[0].Name)
	code, _, errs := dayone(t, "cluster", "plan", "--from", dir, "-f", write(t, "new.yaml", "a: b\n"))
	assert.Equal(t, cli.ExitRefused, code)
	assert.Contains(t, errs, "new.yaml:1:1: apiVersion: the document has no apiVersion")
	code, _, errs = dayone(t, "cluster", "plan", "--from", dir, "-f",
		write(t, "new.yaml", strings.Replace(changed, "3.5.0", "9.9.9", 1)))
	assert.Equal(t, cli.ExitRefused, code, errs)
}

func TestPlanOfFilesIsStrict(t *testing.T) {
	t.Setenv("KUBECONFIG", "/nowhere")
	dir := writeDump(t, effectWorld(t))
	const policy = "---\napiVersion: config.openshift.io/v1\nkind: ImagePolicy\n" +
		"metadata: {name: signed, namespace: default}\n" +
		"spec: {scopes: [a.example.com], policy: {rootOfTrust: {policyType: PublicKey, publicKey: {keyData: Zm9v}}}}\n"
	changed := strings.ReplaceAll(appConfig, "old", "new")
	for _, c := range []struct {
		name string
		file string
		args []string
		code int
		want string
	}{
		{"an unknown field", strings.Replace(appConfig, "spec: {", "spec: {kernelArgs: [quiet], ", 1), nil, cli.ExitRefused,
			"did you mean kernelArguments?"},
		{"what is not forecast", appConfig + policy, []string{"--exit-code"}, cli.ExitIncomplete,
			"not known: ImagePolicy "},
		{"the worst answer stays", strings.Replace(changed, "storage: {", `storage: {disks: [{device: /dev/sdb}], `, 1) +
			policy, []string{"--exit-code"}, cli.ExitAttention, "not known: ImagePolicy "},
		{"what nothing selects", strings.Replace(appConfig, "role: worker", "role: infra", 1), []string{"--exit-code"}, 4,
			"no effect: MachineConfig 50-app ("},
		{"an object that goes", "", []string{"--delete", "idms/mirrors", "--exit-code"}, 3, "Drain for 2 nodes"},
		{"an object that is not there", "", []string{"--delete", "idms/mirror"}, 1, "did you mean mirrors?"},
	} {
		t.Run(c.name, func(t *testing.T) {
			args := append([]string{"cluster", "plan", "--from", dir}, c.args...)
			if c.file != "" {
				args = append(args, "-f", write(t, "new.yaml", c.file))
			}
			code, out, errs := dayone(t, args...)
			assert.Contains(t, out+errs, c.want)
			assert.Equal(t, c.code, code, "%s%s", out, errs)
		})
	}
}

func TestPlanOfADumpWithoutConfigs(t *testing.T) {
	t.Setenv("KUBECONFIG", "/nowhere")
	objects := slices.DeleteFunc(effectWorld(t), func(o client.Object) bool {
		_, is := o.(*mcfgv1.MachineConfig)
		return is
	})
	objects[0].(*mcfgv1.MachineConfigPool).Spec.Configuration.Name = "rendered-worker-next"
	dir := writeDump(t, objects)
	code, _, errs := dayone(t, "cluster", "plan", "--from", dir, "-f", write(t, "new.yaml", appConfig))
	assert.Equal(t, cli.ExitFailed, code)
	assert.Contains(t, errs, "there are no MachineConfigs in it")
	assert.Contains(t, errs, "write machineconfigs,controllerconfigs,")
	code, _, errs = dayone(t, "cluster", "plan", "--from", dir)
	assert.Zero(t, code, "who goes next is known without them: %s", errs)
	code, out, errs := dayone(t, "cluster", "plan", "--from", dir, "--exit-code")
	assert.Equal(t, cli.ExitIncomplete, code, errs)
	assert.Contains(t, out, "not known: pool worker: what its target does to its nodes: "+
		"foresee pool worker: there is no rendered config rendered-worker-next")
}

func TestPlanNamesTheGate(t *testing.T) {
	t.Setenv("KUBECONFIG", "/nowhere")
	objects := effectWorld(t)
	objects[0].SetAnnotations(map[string]string{manifests.AnnotationMaxDisruption: "Reload"})
	_, out, errs := dayone(t, "cluster", "plan", "--from", writeDump(t, objects), "-f",
		write(t, "new.yaml", strings.ReplaceAll(appConfig, "old", "new")))
	assert.Contains(t, out, "its gate allows Reload at most: this plan is Reboot and is not delivered", errs)
}

func TestPoliciesOfADump(t *testing.T) {
	t.Setenv("KUBECONFIG", "/nowhere")
	objects := effectWorld(t)
	config := objects[3]
	annotations := config.GetAnnotations()
	annotations[manifests.AnnotationPostConfigActions] = `{"files":[{"name":"/etc/app.conf",` +
		`"actions":[{"type":"Restart","service":"app.service"}],"origin":"MachineConfig 50-app"}]}`
	objects = append(objects, &opv1.MachineConfiguration{ObjectMeta: metav1.ObjectMeta{Name: "cluster",
		Annotations: map[string]string{manifests.AnnotationMirrorPolicy: "Image=None"}},
		Spec: opv1.MachineConfigurationSpec{NodeDisruptionPolicy: opv1.NodeDisruptionPolicyConfig{
			Files: []opv1.NodeDisruptionPolicySpecFile{
				{Path: "/etc/x", Actions: []opv1.NodeDisruptionPolicySpecAction{{Type: opv1.RestartSpecAction,
					Restart: &opv1.RestartService{ServiceName: "missing.service"}}}},
				{Path: "relative", Actions: []opv1.NodeDisruptionPolicySpecAction{{Type: opv1.NoneSpecAction}}}}}}})
	code, out, errs := dayone(t, "cluster", "policies", "--from", writeDump(t, objects))
	require.Zero(t, code, errs)
	for _, want := range []string{"KIND", "/etc/containers/policy.json", "cluster default", "Restart missing.service",
		"MachineConfiguration cluster", "MachineConfig 50-app", "no change of an Image drains",
		"refused: spec.nodeDisruptionPolicy.files[relative]", "doubtful: files[/etc/x]"} {
		assert.Contains(t, out, want)
	}
	code, out, _ = dayone(t, "cluster", "policies", "--from", writeDump(t, objects), "-o", "json")
	require.Zero(t, code)
	var p forecast.Policies
	require.NoError(t, json.Unmarshal([]byte(out), &p))
	assert.Equal(t, []string{"Image"}, p.Mirrors)
}

func TestPoliciesSayWhatTheyDoNow(t *testing.T) {
	t.Setenv("KUBECONFIG", "/nowhere")
	objects := effectWorld(t)
	config := objects[3].(*mcfgv1.MachineConfig)
	config.Annotations[manifests.AnnotationPostConfigActions] = `{"files":[{"name":"/etc/app.conf",` +
		`"actions":[{"type":"Restart","service":"app.service"}],"origin":"MachineConfig 50-app"}]}`
	earlier := config.DeepCopy()
	earlier.Name, earlier.Spec.Config.Raw = "rendered-worker-earlier", []byte(`{"ignition":{"version":"3.5.0"}}`)
	objects = append(objects, earlier)
	objects[4].SetAnnotations(map[string]string{manifests.AnnotationCurrentConfig: earlier.Name,
		manifests.AnnotationDesiredConfig: earlier.Name, manifests.AnnotationState: "Done"})
	for _, c := range []struct {
		name, path string
		want       map[string]string
	}{
		{"the owner's rule", "/etc/other", map[string]string{"/etc/app.conf MachineConfig 50-app": "Reload 1",
			"/etc/containers/registries.conf cluster default": "Reload or Drain 1",
			"/etc/containers/policy.json cluster default":     "Reload 0",
			"/etc/other MachineConfiguration cluster":         "Quiet 0"}},
		{"the admin's directory covers it", "/etc", map[string]string{"/etc MachineConfiguration cluster": "Quiet 1",
			"/etc/containers/registries.conf cluster default": "Reload or Drain 1",
			"/etc/app.conf MachineConfig 50-app":              ""}},
	} {
		t.Run(c.name, func(t *testing.T) {
			policy := &opv1.MachineConfiguration{ObjectMeta: metav1.ObjectMeta{Name: "cluster"},
				Spec: opv1.MachineConfigurationSpec{NodeDisruptionPolicy: opv1.NodeDisruptionPolicyConfig{
					Files: []opv1.NodeDisruptionPolicySpecFile{{Path: c.path,
						Actions: []opv1.NodeDisruptionPolicySpecAction{{Type: opv1.NoneSpecAction}}}}}}}
			code, out, errs := dayone(t, "cluster", "policies", "--from", writeDump(t, append(objects, policy)), "-o", "json")
			require.Zero(t, code, errs)
			var p forecast.Policies
			require.NoError(t, json.Unmarshal([]byte(out), &p))
			have := map[string]string{}
			for _, r := range p.Rules {
				require.NotNil(t, r.Nodes, r.Name)
				have[r.Name+" "+string(r.Origin)] = fmt.Sprintf("%s %d", r.Effect, *r.Nodes)
			}
			for rule, want := range c.want {
				assert.Equal(t, want, have[rule], "%s: %v", rule, have)
			}
			_, out, _ = dayone(t, "cluster", "policies", "--from", writeDump(t, append(objects, policy)))
			assert.Regexp(t, `/etc/containers/registries.conf +Special +cluster default +all +Reload or Drain +1`, out)
		})
	}
}
