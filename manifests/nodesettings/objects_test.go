package nodesettings

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"dayone.dev/dayone/installconfig"
	"dayone.dev/dayone/manifests"
	"dayone.dev/dayone/manifests/machineconfig"
)

func pool(name string, roles ...string) manifests.Item[*mcfgv1.MachineConfigPool] {
	return manifests.NewItem(&mcfgv1.MachineConfigPool{ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: mcfgv1.MachineConfigPoolSpec{MachineConfigSelector: &metav1.LabelSelector{
			MatchExpressions: []metav1.LabelSelectorRequirement{{Key: manifests.LabelRole,
				Operator: metav1.LabelSelectorOpIn, Values: roles}}}}})
}

// files are those of the first MachineConfig, with their modes.
func files(t *testing.T, set *manifests.Set) (content map[string]string, modes map[string]int) {
	t.Helper()
	content, modes = map[string]string{}, map[string]int{}
	require.NotEmpty(t, set.MachineConfigs)
	config, err := machineconfig.Parse(set.MachineConfigs[0].Object.Spec.Config.Raw)
	require.NoError(t, err)
	for _, f := range config.Storage.Files {
		raw, err := machineconfig.Contents(f.Contents)
		require.NoError(t, err)
		content[f.Path], modes[f.Path] = string(raw), *f.Mode
	}
	return content, modes
}

func TestObjects(t *testing.T) {
	n := installconfig.NodeSettings{PullSecret: []byte(`{"auths":{}}`),
		SSHKeys:     []string{"ssh-ed25519 A a", "ssh-rsa B b"},
		TrustBundle: []byte("bundle\n"), FIPS: true, SingleThread: []string{"master"},
		Proxy:   installconfig.Proxy{HTTPS: `http://u:p%40"\@192.0.2.8:3128`, No: ".svc,192.0.2.1"},
		Mirrors: []installconfig.MirrorSource{{Source: "a.example.com", Mirrors: []string{"b.example.com"}, Never: true}}}
	set, err := Objects(n, []manifests.Item[*mcfgv1.MachineConfigPool]{pool("master", "master"), pool("worker", "worker"),
		pool("infra", "worker", "infra"), pool("odd", "other")})
	require.NoError(t, err)

	require.Len(t, set.MachineConfigs, 2, "infra takes over those of worker")
	master := set.MachineConfigs[0].Object
	assert.Equal(t, "00-master-install-config", master.Name)
	assert.Equal(t, map[string]string{manifests.LabelRole: "master"}, master.Labels)
	assert.True(t, master.Spec.FIPS)
	assert.Equal(t, []string{"nosmt", "smt-enabled=0"}, master.Spec.KernelArguments)
	assert.Empty(t, set.MachineConfigs[1].Object.Spec.KernelArguments)
	content, modes := files(t, set)
	assert.Equal(t, map[string]int{PullSecretPath: 0o600, linkPath: 0o644, anchorPath: 0o644, proxyPath: 0o600}, modes)
	assert.JSONEq(t, `{"auths":{}}`, content[PullSecretPath])
	assert.Contains(t, content[linkPath], "L /var/lib/kubelet/config.json - - - - ../../../etc/dayone/pull-secret.json\n")
	assert.Equal(t, "[Manager]\n"+
		`DefaultEnvironment="HTTPS_PROXY=http://u:p%%40\"\\@192.0.2.8:3128"`+"\n"+
		`DefaultEnvironment="NO_PROXY=.svc,192.0.2.1"`+"\n"+
		`DefaultEnvironment="https_proxy=http://u:p%%40\"\\@192.0.2.8:3128"`+"\n"+
		`DefaultEnvironment="no_proxy=.svc,192.0.2.1"`+"\n", content[proxyPath])

	require.Len(t, set.IDMSs, 1)
	assert.Equal(t, "NeverContactSource", string(set.IDMSs[0].Object.Spec.ImageDigestMirrors[0].MirrorSourcePolicy))
	require.Len(t, set.Findings, 1)
	assert.Equal(t, "settings-not-selected", set.Findings[0].Rule)
	assert.Contains(t, set.Findings[0].Message, "pool odd")

	set, err = Objects(installconfig.NodeSettings{}, []manifests.Item[*mcfgv1.MachineConfigPool]{pool("master", "master"),
		pool("odd", "other")})
	require.NoError(t, err)
	assert.Equal(t, &manifests.Set{}, set, "without settings there is nothing")
}

// TestUnitIsAsSystemdWantsIt asks the real systemd.
func TestUnitIsAsSystemdWantsIt(t *testing.T) {
	if _, err := exec.LookPath("systemd-analyze"); err != nil {
		require.Empty(t, os.Getenv("CI"), "systemd-analyze is missing")
		t.Skip("needs systemd-analyze")
	}
	name := filepath.Join(t.TempDir(), "dayone-ca-trust.service")
	// The documentation's host cannot be asked, and the unit refers to no man page.
	require.NoError(t, os.WriteFile(name, []byte(trustUnit), 0o600))
	out, err := exec.Command("systemd-analyze", "verify", "--man=no", name).CombinedOutput()
	require.NoError(t, err, string(out))
	assert.NotContains(t, string(out), filepath.Base(name)+":", strings.TrimSpace(string(out)))
}
