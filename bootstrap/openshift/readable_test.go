package openshift

import (
	"os"
	"testing"

	configv1 "github.com/openshift/api/config/v1"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"dayone.dev/dayone/bootstrap/day1"
	"dayone.dev/dayone/installconfig/report"
)

// TestUnreadableFirstRendering stops before the build: MCO reads the rendered config of a pool with an image of its
// own, and would refuse it only after the build.
func TestUnreadableFirstRendering(t *testing.T) {
	for _, c := range []struct{ name, file, rule string }{
		{"readable", `{"path":"/etc/a","overwrite":true,"contents":{"source":"data:,a"}}`, ""},
		{"without contents", `{"path":"/etc/a","overwrite":true,"mode":384}`, "contents-missing"},
		{"append only", `{"path":"/etc/a","overwrite":true,"append":[{"source":"data:,a"}]}`, "contents-missing"},
		{"a drop-in that is no TOML",
			`{"path":"/etc/crio/crio.conf.d/1","overwrite":true,"contents":{"source":"data:,a"}}`, "crio-drop-in"},
		{"invalid otherwise", `{"path":"relative","overwrite":true,"contents":{"source":"data:,a"}}`, "ignition"},
	} {
		t.Run(c.name, func(t *testing.T) {
			o := Options{Options: day1.Options{StateDir: t.TempDir()}}
			require.NoError(t, os.MkdirAll(o.Path(firstDir), 0o700))
			require.NoError(t, os.WriteFile(o.Path(firstDir, "master.yaml"), []byte(`{"apiVersion":`+
				`"machineconfiguration.openshift.io/v1","kind":"MachineConfig","metadata":{"name":"rendered-master-1"},`+
				`"spec":{"config":{"ignition":{"version":"3.5.0"},"storage":{"files":[`+c.file+`]}}}}`), 0o600))
			err := firstRendering{Pools: map[string]firstPool{"master": {}}}.readable(o)
			if c.rule == "" {
				require.NoError(t, err)
				return
			}
			require.ErrorContains(t, err, "master")
			found := report.Of(err)
			require.NotEmpty(t, found)
			assert.Equal(t, c.rule, found[0].Rule)
		})
	}
}

// TestRegistryBehindTheProxy stops before the build where nodes could not pull from this host, whose address nobody
// named before.
func TestRegistryBehindTheProxy(t *testing.T) {
	behind := func(no string) *configv1.ProxyStatus {
		return &configv1.ProxyStatus{HTTPSProxy: "http://192.0.2.8:3128", NoProxy: no}
	}
	for _, c := range []struct {
		name   string
		proxy  *configv1.ProxyStatus
		direct bool
	}{
		{"no proxy", nil, true},
		{"a proxy without an address", &configv1.ProxyStatus{NoProxy: ".cluster.local"}, true},
		{"the machines' network", behind(".cluster.local,192.0.2.0/24"), true},
		{"the host itself", behind("192.0.2.1"), true},
		{"another network", behind(".cluster.local,10.0.0.0/16"), false},
	} {
		t.Run(c.name, func(t *testing.T) {
			err := firstRendering{proxy: c.proxy}.direct("192.0.2.1:22625")
			if c.direct {
				require.NoError(t, err)
				return
			}
			require.ErrorContains(t, err, "192.0.2.1, through their proxy: install again with 192.0.2.1 in proxy.noProxy")
			assert.NotContains(t, err.Error(), "3128", "a proxy's address may hold a password")
		})
	}
}
