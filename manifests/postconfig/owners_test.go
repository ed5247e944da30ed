package postconfig_test

import (
	"fmt"
	"testing"

	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"dayone.dev/dayone/manifests"
	"dayone.dev/dayone/manifests/postconfig"
)

func config(name, action, ignition string) *mcfgv1.MachineConfig {
	mc := &mcfgv1.MachineConfig{ObjectMeta: metav1.ObjectMeta{Name: name}}
	if action != "" {
		mc.Annotations = map[string]string{manifests.AnnotationOwnPostConfigAction: action}
	}
	mc.Spec.Config = runtime.RawExtension{Raw: []byte(`{"ignition":{"version":"3.5.0"},` + ignition + `}`)}
	return mc
}

func files(paths ...string) string {
	out := `"storage":{"files":[`
	for i, p := range paths {
		if i > 0 {
			out += ","
		}
		out += fmt.Sprintf(`{"path":%q,"contents":{"source":"data:,x"}}`, p)
	}
	return out + "]}"
}

func TestOwnersOfAPath(t *testing.T) {
	one := config("50-one", "Restart u.service",
		files("/etc/a", "/etc/b")+`,"systemd":{"units":[{"name":"u.service","contents":"[Unit]"}]}`)
	two := config("60-two", "", files("/etc/b"))
	bad := config("70-bad", "Explode", files("/etc/c"))
	never := config("80-never", "SoftReboot", files("/etc/d", "/etc/sysctl.d/d.conf"))
	r, err := postconfig.Owners([]*mcfgv1.MachineConfig{one, two, bad, never, {}})
	require.ErrorContains(t, err, "70-bad")
	require.ErrorContains(t, err, "MachineConfig 80-never, annotation dayone.dev/post-config-action: SoftReboot never "+
		"takes effect for /etc/sysctl.d/d.conf: only a start of the kernel brings sysctl settings: write Reboot")
	require.Len(t, r.Files, 1)
	assert.Equal(t, postconfig.Rule{Name: "/etc/a",
		Actions: []postconfig.Action{{Type: postconfig.Restart, Service: "u.service"}}, Origin: "MachineConfig 50-one"},
		r.Files[0])
	assert.Equal(t, "u.service", r.Units[0].Name)
}

func TestWhatIsEncodedIsDecoded(t *testing.T) {
	empty, err := postconfig.Encode(postconfig.Rules{})
	require.NoError(t, err)
	assert.Empty(t, empty)
	r, err := postconfig.Owners([]*mcfgv1.MachineConfig{config("50-one", "Drain, Reload a.service", files("/etc/a"))})
	require.NoError(t, err)
	text, err := postconfig.Encode(r)
	require.NoError(t, err)
	again, err := postconfig.Decode(map[string]string{manifests.AnnotationPostConfigActions: text})
	require.NoError(t, err)
	assert.Equal(t, r.Files, again.Files)
	var many postconfig.Rules
	for i := range 2000 {
		many.Files = append(many.Files, postconfig.Rule{Name: fmt.Sprintf("/etc/%d", i),
			Actions: []postconfig.Action{{Type: postconfig.Restart, Service: "u.service"}}})
	}
	_, err = postconfig.Encode(many)
	require.ErrorContains(t, err, "directory")
	_, err = postconfig.Decode(
		map[string]string{manifests.AnnotationPostConfigActions: `{"files":[{"name":"/a","actions":[{"type":"Explode"}]}]}`})
	require.ErrorContains(t, err, "Explode")
}

func TestParseActions(t *testing.T) {
	for _, s := range []string{"", "Drain,", "None, Drain", "Reboot, Restart a.service", "SoftReboot, Drain",
		"softreboot", "SoftReboot a.service", "Restart", "Restart a",
		"Drain now", "Special", "restart a.service", "Restart .service", "Restart a/b.service", "Restart a.service b"} {
		_, err := postconfig.ParseActions(s)
		assert.Error(t, err, s)
	}
	got, err := postconfig.ParseActions(" Drain ,DaemonReload,  Restart  getty@tty1.service, Reload a.socket")
	require.NoError(t, err)
	assert.Equal(t, "[Drain DaemonReload Restart getty@tty1.service Reload a.socket]", fmt.Sprint(got))
}

func FuzzParseActions(f *testing.F) {
	f.Add("Drain, Restart a.service")
	f.Fuzz(func(t *testing.T, s string) {
		actions, err := postconfig.ParseActions(s)
		if err == nil && postconfig.Validate(actions) != nil {
			t.Fatalf("%q was read as %v, which is not valid", s, actions)
		}
	})
}
