package machineconfig

import (
	"testing"

	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/runtime"
)

func specOf(config string, change func(*mcfgv1.MachineConfigSpec)) mcfgv1.MachineConfigSpec {
	spec := mcfgv1.MachineConfigSpec{Config: runtime.RawExtension{Raw: []byte(config)}}
	if change != nil {
		change(&spec)
	}
	return spec
}

func TestContentHash(t *testing.T) {
	const config = `{"ignition":{"version":"3.5.0"},"storage":{"files":[{"path":"/etc/a","mode":420},{"path":"/etc/b"}]}}`
	base, err := ContentHash(specOf(config, nil))
	require.NoError(t, err)
	assert.Regexp(t, `^sha256:[0-9a-f]{64}$`, base)

	cases := []struct {
		name string
		spec mcfgv1.MachineConfigSpec
		same bool
	}{
		{"key order and white space do not count", specOf(
			`{"storage": {"files":[{"mode":420,"path":"/etc/a"},{"path":"/etc/b"}]}, "ignition":{"version":"3.5.0"}}`, nil),
			true},
		{"null members do not count", specOf(
			`{"ignition":{"version":"3.5.0","proxy":null},"storage":{"files":[{"path":"/etc/a","mode":420},
				{"path":"/etc/b","mode":null}]}}`, nil), true},
		{"the image does not count", specOf(config, func(s *mcfgv1.MachineConfigSpec) {
			s.OSImageURL, s.BaseOSExtensionsContainerImage = "r/a@sha256:1", "r/b@sha256:2"
		}), true},
		{"kernel type default is no kernel type", specOf(config,
			func(s *mcfgv1.MachineConfigSpec) { s.KernelType = "default" }), true},
		{"another kernel type counts", specOf(config,
			func(s *mcfgv1.MachineConfigSpec) { s.KernelType = "realtime" }), false},
		{"kernel arguments count", specOf(config,
			func(s *mcfgv1.MachineConfigSpec) { s.KernelArguments = []string{"quiet"} }), false},
		{"extensions count", specOf(config,
			func(s *mcfgv1.MachineConfigSpec) { s.Extensions = []string{"usbguard"} }), false},
		{"FIPS counts", specOf(config, func(s *mcfgv1.MachineConfigSpec) { s.FIPS = true }), false},
		{"list order counts", specOf(
			`{"ignition":{"version":"3.5.0"},"storage":{"files":[{"path":"/etc/b"},{"path":"/etc/a","mode":420}]}}`, nil),
			false},
		{"a file's mode counts", specOf(
			`{"ignition":{"version":"3.5.0"},"storage":{"files":[{"path":"/etc/a","mode":384},{"path":"/etc/b"}]}}`, nil),
			false},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			got, err := ContentHash(c.spec)
			require.NoError(t, err)
			assert.Equal(t, c.same, got == base)
		})
	}
	for name, bad := range map[string]string{"not JSON": "a: b", "a list": "[]", "two values": "{}{}"} {
		t.Run(name, func(t *testing.T) {
			_, err := ContentHash(specOf(bad, nil))
			assert.Error(t, err)
		})
	}
	empty, err := ContentHash(specOf("", nil))
	require.NoError(t, err)
	object, err := ContentHash(specOf("{}", nil))
	require.NoError(t, err)
	assert.Equal(t, empty, object, "no config is the empty config")
}
