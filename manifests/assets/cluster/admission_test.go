package cluster_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"dayone.dev/dayone/hack/kube/kubetest"
	"dayone.dev/dayone/manifests"
	"dayone.dev/dayone/manifests/postconfig"
)

func annotated(o client.Object, key, value string) client.Object {
	annotations := o.GetAnnotations()
	if annotations == nil {
		annotations = map[string]string{}
	}
	annotations[key] = value
	o.SetAnnotations(annotations)
	return o
}

func machineConfig(name string) *mcfgv1.MachineConfig {
	return &mcfgv1.MachineConfig{ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: mcfgv1.MachineConfigSpec{Config: runtime.RawExtension{Raw: []byte(`{"ignition":{"version":"3.5.0"}}`)}}}
}

func labelled(o client.Object, key, value string) client.Object {
	o.SetLabels(map[string]string{key: value})
	return o
}

// withImage is a role's MachineConfig with an osImageURL.
func withImage(name, role string) *mcfgv1.MachineConfig {
	mc := machineConfig(name)
	mc.Labels = map[string]string{manifests.LabelRole: role}
	mc.Spec.OSImageURL = "registry.example.test/os@sha256:" + strings.Repeat("a", 64)
	return mc
}

func pool(name string, machines int32) *mcfgv1.MachineConfigPool {
	return &mcfgv1.MachineConfigPool{ObjectMeta: metav1.ObjectMeta{Name: name},
		Status: mcfgv1.MachineConfigPoolStatus{MachineCount: machines}}
}

// machineConfiguration has rules as somebody types them.
func machineConfiguration(rules string) *unstructured.Unstructured {
	var policy map[string]any
	if err := json.Unmarshal([]byte(rules), &policy); err != nil {
		panic(err)
	}
	spec := map[string]any{"managementState": "Managed"}
	if len(policy) > 0 {
		spec["nodeDisruptionPolicy"] = policy
	}
	o := &unstructured.Unstructured{Object: map[string]any{"spec": spec}}
	o.SetAPIVersion("operator.openshift.io/v1")
	o.SetKind("MachineConfiguration")
	o.SetName("other") // the installation makes the one that counts
	return o
}

func file(path, actions string) string {
	return fmt.Sprintf(`{"files":[{"path":%q,"actions":%s}]}`, path, actions)
}

const none, drain = `[{"type":"None"}]`, `[{"type":"Drain"}]`

func TestAdmissionOfWords(t *testing.T) {
	e := install(t)
	restart := func(service string) string {
		return fmt.Sprintf(`[{"type":"Restart","restart":{"serviceName":%q}}]`, service)
	}
	unit := func(name string) string {
		return fmt.Sprintf(`{"units":[{"name":%q,"actions":[{"type":"DaemonReload"}]}]}`, name)
	}
	for _, c := range []struct {
		name string
		o    client.Object
		// why is in the refusal; empty: the object is accepted.
		why string
	}{
		{"a MachineConfig without annotations", machineConfig("case"), ""},
		{"an absolute path", machineConfiguration(file("/etc/app", none)), ""},
		{"the root", machineConfiguration(file("/", drain)), ""},
		{"no policy", machineConfiguration("{}"), ""},
		{"keys", machineConfiguration(`{"sshkey":{"actions":` + restart("a.service") + `}}`), ""},
		{"a repeated restart", machineConfiguration(file("/etc/app", `[
			{"type":"Restart","restart":{"serviceName":"a.service"}},{"type":"DaemonReload"},
			{"type":"Restart","restart":{"serviceName":"a.service"}}]`)), ""},
		{"a relative path", machineConfiguration(file("etc/app", none)), `"etc/app": a path that does not begin with /`},
		{"an empty path", machineConfiguration(file("", none)), `"": a path that does not begin with /`},
		{"a wildcard", machineConfiguration(file("/etc/app/*.conf", none)), "/etc/app/*.conf: a path has no wildcards"},
		{"no action", machineConfiguration(file("/etc/app", "[]")), "/etc/app: there is no action"},
		{"a unit without an action", machineConfiguration(`{"units":[{"name":"a.service","actions":[]}]}`),
			"a.service: there is no action"},
		{"a unit", machineConfiguration(unit("a.b-c_d.service")), ""},
		{"a unit with a space", machineConfiguration(unit("a.b c.service")), "no unit has such a name"},
		{"a restart of a unit with a slash", machineConfiguration(file("/etc/app", restart("a.b/c.service"))),
			`"a.b/c.service": no unit has such a name`},
		{"a restart after a change of keys", machineConfiguration(`{"sshkey":{"actions":` + restart("a.b/c.service") + `}}`),
			`"a.b/c.service": no unit has such a name`},
		{"None beside another action", machineConfiguration(file("/etc/app", `[{"type":"None"},{"type":"Drain"}]`)),
			"None action can only be specified standalone"},
		{"Reboot beside another action", machineConfiguration(file("/etc/app", `[{"type":"Reboot"},{"type":"Drain"}]`)),
			"Reboot action can only be specified standalone"},
		{"two entries for a path", machineConfiguration(`{"files":[{"path":"/etc/a/","actions":` + none +
			`},{"path":"/etc/a","actions":` + drain + `}]}`), "/etc/a/: two entries mean this path"},
		{"two entries that agree", machineConfiguration(`{"files":[{"path":"/etc/a/","actions":` + none +
			`},{"path":"/etc/a","actions":` + none + `}]}`), ""},
		{"a kind of mirrors", machineConfiguration(file("/etc/containers/registries.conf#ImageDigestMirrorSet", none)), ""},
		{"an unknown kind of mirrors", machineConfiguration(file("/etc/containers/registries.conf#Mirrors", none)),
			"a rule for a kind of mirrors"},
		{"another action for a kind of mirrors", machineConfiguration(file("/etc/containers/registries.conf#Image",
			`[{"type":"Reboot"}]`)), "is None or Drain"},
		{"the annotation of earlier versions", annotated(machineConfiguration("{}"), manifests.AnnotationMirrorPolicy,
			"ImageContentSourcePolicy=None, Image=Drain"), ""},
		{"half a pair", annotated(machineConfiguration("{}"), manifests.AnnotationMirrorPolicy, "Image"),
			"annotation dayone.dev/mirror-policy"},
		{"a level", annotated(pool("case", 0), manifests.AnnotationMaxDisruption, " Drain"), ""},
		{"an unknown level", annotated(pool("case", 0), manifests.AnnotationMaxDisruption, "drain"),
			`"drain" is no level`},
		{"a reboot policy", annotated(pool("case", 0), manifests.AnnotationRebootPolicy, "SoftIfPossible"), ""},
		{"an unknown reboot policy", annotated(pool("case", 0), manifests.AnnotationRebootPolicy, "Soft"),
			`"Soft" is no policy: policies are Hard (Reboot), SoftIfPossible (SoftReboot) and SoftRequired`},
		{"a reboot policy in the words of actions", annotated(pool("case", 0), manifests.AnnotationRebootPolicy,
			"SoftReboot"), ""},
		{"soft reboots that a gate never lets through", annotated(annotated(pool("case", 0),
			manifests.AnnotationRebootPolicy, "SoftRequired"), manifests.AnnotationMaxDisruption, "Drain"),
			"SoftRequired never takes effect with dayone.dev/max-disruption: Drain"},
		{"a pool's rebuild", annotated(pool("case", 0), manifests.AnnotationRebuildImage, ""), ""},
		{"a pool's rebuild that is not meant", annotated(pool("case", 0), manifests.AnnotationRebuildImage, "false"),
			`request of a rebuild: "false" is not known`},
		{"a pool's rebuild by a label that is not meant", labelled(pool("case", 0), manifests.AnnotationRebuild, "no"),
			`request of a rebuild: "no" is not known`},
		{"a rebuild", annotated(machineOSConfig("case", "r.example.test/os:tag"), manifests.AnnotationRebuild, ""), ""},
		{"a rebuild in words", annotated(machineOSConfig("case", "r.example.test/os:tag"), manifests.AnnotationRebuild,
			"true"), ""},
		{"a rebuild that is not meant", annotated(machineOSConfig("case", "r.example.test/os:tag"),
			manifests.AnnotationRebuild, "false"), `request of a rebuild: "false" is not known`},
		{"a second MachineOSConfig for a pool", second("case"), "name"},
	} {
		t.Run(c.name, func(t *testing.T) {
			err := e.Client.Create(t.Context(), c.o, client.DryRunAll)
			if c.why == "" {
				require.NoError(t, err)
				return
			}
			require.True(t, apierrors.IsInvalid(err), "%v", err)
			require.ErrorContains(t, err, c.why)
		})
	}
}

// second is a MachineOSConfig for a pool under another name than the pool's.
func second(pool string) client.Object {
	m := machineOSConfig(pool, "r.example.test/os:tag")
	m.Name = "another"
	return m
}

// TestAdmissionReadsActionsAsTheRendererDoes holds the policy's pattern against the parser.
func TestAdmissionReadsActionsAsTheRendererDoes(t *testing.T) {
	e := install(t)
	texts := []string{"", " ", "None", " Reboot ", "Drain", "None, Drain", "Reboot, Drain", "Drain, None",
		"DaemonReload,Drain", "Drain,", ",Drain", "Restart", "Restart a", "Restart a.service",
		"Restart  a.service ,Reload b.socket", "restart a.service", "Restart a.service b.service", "Reload a/b.service",
		"Restart .service", "Restart getty@tty1.service", "Special", `Restart a\x2db.mount`, "Drain now", "Explode", "Restart a.service, Restart a.service", "None, None",
		strings.Repeat("Drain, ", 9) + "Drain", strings.Repeat("Drain, ", 10) + "Drain", "Restart a.conf",
		"SoftReboot", "softreboot", "SoftReboot, Drain", "Drain, SoftReboot",
		"Drain\nReload a.timer", "Drain,\n Reload a.timer", "Drain " + strings.Repeat("x", 5000)}
	refused := 0
	for _, text := range texts {
		_, parsing := postconfig.ParseActions(text)
		err := e.Client.Create(t.Context(), annotated(machineConfig("case"), manifests.AnnotationOwnPostConfigAction, text),
			client.DryRunAll)
		assert.Equal(t, parsing == nil, err == nil, "%q: the renderer says %v, admission %v", text, parsing, err)
		if err != nil {
			refused++
			assert.True(t, apierrors.IsInvalid(err), "%v", err)
			assert.ErrorContains(t, err, "annotation dayone.dev/post-config-action")
		}
	}
	assert.Greater(t, refused, 10)
}

// TestAdmissionRefusesSoftRebootsThatNeverAre holds the policy's paths against the renderer's.
func TestAdmissionRefusesSoftRebootsThatNeverAre(t *testing.T) {
	e := install(t)
	refused := 0
	for _, path := range []string{"/etc/app.conf", "/etc/sysctl.d/50-app.conf", "/etc/sysctl.conf", "/etc/sysctl.d",
		"/etc/sysctl.d/a/b", "/etc/modules-load.d/a.conf", "/etc/modules", "/etc/modprobe.d/a.conf",
		"/etc/udev/rules.d/1.rules", "/etc/udev/hwdb.d/a", "/etc/fstab", "/etc/crypttab", "/etc/ima/ima-policy",
		"/etc/selinux/config", "/etc/selinux/targeted/policy/policy.33", "/etc/selinux/targeted/booleans",
		"/etc/system-fips", "/etc/crypto-policies/config", "/etc/ostree/prepare-root.conf", "/var/lib/a"} {
		mc := machineConfig("case")
		mc.Spec.Config.Raw = fmt.Appendf(nil, `{"ignition":{"version":"3.5.0"},"storage":{"files":[
			{"path":"/etc/first"},{"path":%q}]}}`, path)
		for _, action := range []string{"Reboot", "SoftReboot"} {
			annotated(mc, manifests.AnnotationOwnPostConfigAction, action)
			_, reading := postconfig.Owners([]*mcfgv1.MachineConfig{mc})
			err := e.Client.Create(t.Context(), mc.DeepCopy(), client.DryRunAll)
			assert.Equal(t, reading == nil, err == nil, "%s %s: the renderer says %v, admission %v", action, path, reading, err)
			if err != nil {
				refused++
				assert.True(t, apierrors.IsInvalid(err), "%v", err)
				assert.ErrorContains(t, err, "SoftReboot never takes effect for "+path)
			}
		}
	}
	assert.Equal(t, 14, refused)
	plain := annotated(machineConfig("case"), manifests.AnnotationOwnPostConfigAction, "SoftReboot")
	require.NoError(t, e.Client.Create(t.Context(), plain, client.DryRunAll), "no files")
	admin := machineConfiguration(file("/etc/app", `[{"type":"SoftReboot"}]`))
	require.ErrorContains(t, e.Client.Create(t.Context(), admin, client.DryRunAll), `Unsupported value: "SoftReboot"`)
}

func TestAdmissionLeavesWhatWasThere(t *testing.T) {
	e := install(t)
	old := annotated(machineConfig("50-old"), manifests.AnnotationOwnPostConfigAction, "None")
	require.NoError(t, e.Client.Create(t.Context(), old))
	defer func() { require.NoError(t, e.Client.Delete(t.Context(), old)) }()
	without(t, e, "dayone-post-config-action", func() {
		require.EventuallyWithT(t, func(c *assert.CollectT) {
			assert.NoError(c, e.Client.Update(t.Context(), annotated(old, manifests.AnnotationOwnPostConfigAction, "Explode")))
		}, waitLimit, waitEvery)
	})
	require.NoError(t, e.Client.Update(t.Context(), annotated(old, "edited", "elsewhere")))
	require.True(t, apierrors.IsInvalid(e.Client.Update(t.Context(),
		annotated(old, manifests.AnnotationOwnPostConfigAction, "Explode twice"))))
}

// without runs f while a policy is not in force.
func without(t *testing.T, e *kubetest.Env, name string, f func()) {
	t.Helper()
	require.NoError(t, e.Client.Delete(t.Context(), policyBinding(name)))
	f()
	install(t)
}

func TestAdmissionOfAnImageBesideAMachineOSConfig(t *testing.T) {
	e := install(t)
	require.NoError(t, e.Client.Create(t.Context(), withImage("50-before", "layered")), "nothing is opted in")
	mosc := machineOSConfig("layered", "r.example.test/os:tag")
	require.NoError(t, e.Client.Create(t.Context(), mosc))
	defer func() {
		require.NoError(t, e.Client.Delete(t.Context(), mosc))
		require.NoError(t, e.Client.Delete(t.Context(), machineConfig("50-before")))
	}()
	require.EventuallyWithT(t, func(c *assert.CollectT) { // the apiserver hears of MachineOSConfigs by a watch
		err := e.Client.Create(t.Context(), withImage("50-image", "layered"), client.DryRunAll)
		assert.True(c, apierrors.IsInvalid(err), "%v", err)
		assert.ErrorContains(c, err, "pool layered has a MachineOSConfig")
	}, waitLimit, waitEvery)
	for _, accepted := range []client.Object{
		withImage("50-image", "plain"), withImage("10-prebuiltimage-osimageurl-layered", "layered"),
		withImage("rendered-layered-1", "layered"),
		annotated(withImage("50-image", "layered"), manifests.AnnotationBaseImage, "true"),
	} {
		require.NoError(t, e.Client.Create(t.Context(), accepted, client.DryRunAll), accepted.GetName())
	}
	before := &mcfgv1.MachineConfig{}
	require.NoError(t, e.Client.Get(t.Context(), client.ObjectKey{Name: "50-before"}, before))
	require.NoError(t, e.Client.Update(t.Context(), annotated(before, "edited", "elsewhere")), "it was there before")
}

// warnings collects what the API server says beside its answers.
type warnings struct {
	mu   sync.Mutex
	said []string
}

func (w *warnings) HandleWarningHeader(_ int, _ string, text string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.said = append(w.said, text)
}

// heard gives what was said since it was last asked.
func (w *warnings) heard() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	out := w.said
	w.said = nil
	return out
}

// heeding is a client whose warnings w collects.
func heeding(t *testing.T, e *kubetest.Env, w *warnings) client.Client {
	t.Helper()
	config := rest.CopyConfig(e.Config)
	config.WarningHandler = w
	c, err := client.New(config, client.Options{Scheme: e.Scheme})
	require.NoError(t, err)
	return c
}

func TestOptingOutWarns(t *testing.T) {
	e := install(t)
	var w warnings
	c := heeding(t, e, &w)
	for name, machines := range map[string]int32{"busy": 3, "idle": 0} {
		p := pool(name, machines)
		require.NoError(t, e.Client.Create(t.Context(), p))
		p.Status.MachineCount = machines
		require.NoError(t, e.Client.Status().Update(t.Context(), p))
		m := machineOSConfig(name, "r.example.test/os:tag")
		require.NoError(t, e.Client.Create(t.Context(), m))
		m.Status.CurrentImagePullSpec = mcfgv1.ImageDigestFormat("r.example.test/os@sha256:" + strings.Repeat("a", 64))
		require.NoError(t, e.Client.Status().Update(t.Context(), m))
	}
	remove := func(name string, o ...client.DeleteOption) []string {
		t.Helper()
		w.heard()
		require.NoError(t, c.Delete(t.Context(), machineOSConfig(name, ""), o...), "it is allowed")
		return w.heard()
	}
	require.EventuallyWithT(t, func(c *assert.CollectT) { // the apiserver hears of pools by a watch
		assert.True(c, slices.ContainsFunc(remove("busy", client.DryRunAll), func(text string) bool {
			return strings.Contains(text, "pool busy is opted out: its 3 nodes go back to the base image")
		}))
	}, waitLimit, waitEvery)
	assert.Empty(t, remove("idle"), "no node has it")
	assert.NotEmpty(t, remove("busy"))
	for _, name := range []string{"busy", "idle"} {
		require.NoError(t, e.Client.Delete(t.Context(), pool(name, 0)))
	}
}
