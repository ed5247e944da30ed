package upstream_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"sigs.k8s.io/yaml"

	"dayone.dev/dayone/manifests"
	"dayone.dev/dayone/manifests/machineconfig"
	"dayone.dev/dayone/manifests/render"
)

// kubeletSpec is a KubeletConfig for the workers.
func kubeletSpec(fields []string) string {
	return fmt.Sprintf(`apiVersion: machineconfiguration.openshift.io/v1
kind: KubeletConfig
metadata: {name: workers}
spec:
  machineConfigPoolSelector: {matchLabels: {pools.operator.machineconfiguration.openshift.io/worker: ""}}
%s`, "  "+strings.Join(fields, "\n  ")+"\n")
}

func apiServer(profile string) string {
	return fmt.Sprintf("apiVersion: config.openshift.io/v1\nkind: APIServer\nmetadata: {name: cluster}\n"+
		"spec: {tlsSecurityProfile: %s}\n", profile)
}

// TestKubeletSettings lets the real controller and dayone turn the same KubeletConfigs and APIServers into files of the
// nodes. The operator writes the kubelet's whole configuration and dayone drop-ins: each field of ours is the same
// there.
func TestKubeletSettings(t *testing.T) {
	m := run.mco(t)
	all := arrangements()
	b := m.operator(t, all[slices.IndexFunc(all, func(a arrangement) bool { return a.name == "none" })])
	plain, out, err := m.controller(t, b)
	require.NoError(t, err, out)
	for _, c := range []struct {
		name    string
		kubelet []string // lines of the spec
		server  string
	}{
		{"an old profile", []string{"tlsSecurityProfile: {type: Old, old: {}}"}, ""},
		{"a modern profile", []string{"tlsSecurityProfile: {type: Modern, modern: {}}"}, ""},
		{"a profile without a type", []string{"tlsSecurityProfile: {}"}, ""},
		{"a profile of one's own", []string{"tlsSecurityProfile: {type: Custom, custom: {minTLSVersion: VersionTLS11, " +
			"ciphers: [ECDHE-ECDSA-CHACHA20-POLY1305, ECDHE-RSA-AES256-SHA384, AES128-GCM-SHA256, DES-CBC3-SHA]}}"}, ""},
		{"the kubelet's own fields beside a profile", []string{"tlsSecurityProfile: {type: Modern}",
			"kubeletConfig: {tlsMinVersion: VersionTLS12, tlsCipherSuites: [TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256]}"}, ""},
		{"the API server's profile", []string{"logLevel: 4"}, "{type: Old, old: {}}"},
		{"another one than the API server's", []string{"tlsSecurityProfile: {type: Intermediate}"},
			"{type: Modern, modern: {}}"},
		{"the API server's own, no KubeletConfig", nil, "{type: Custom, custom: {minTLSVersion: VersionTLS12, ciphers: [" +
			"ECDHE-RSA-AES128-GCM-SHA256]}}"},
		{"automatic sizing", []string{"autoSizingReserved: true"}, ""},
		{"no automatic sizing, a log level", []string{"autoSizingReserved: false", "logLevel: 0"}, ""},
		{"automatic sizing beside amounts", []string{"autoSizingReserved: true",
			`kubeletConfig: {systemReserved: {cpu: "1"}}`}, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			fields := 0
			run.record(t, func() string { return fmt.Sprintf("%d fields and files", fields) })
			settings := map[string]string{}
			if c.kubelet != nil {
				settings["99_kubelet.yaml"] = kubeletSpec(c.kubelet)
			}
			if c.server != "" {
				settings["99_apiserver.yaml"] = apiServer(c.server)
			}
			theirs, out, failure := m.controller(t, b.with(t, settings))
			set, err := manifests.ReadDir(b.with(t, components(t, plain)).with(t, settings).dir, manifests.ReadOptions{})
			require.NoError(t, err)
			ours, err := render.Render(set, render.Options{Versions: versionsIn(t, b, plain)})
			if failure != nil {
				require.Error(t, err, out)
				return
			}
			require.NoError(t, err)
			pools, _ := result(t, theirs)
			for _, p := range pools.Pools {
				fields += sameSettings(t, read(t, theirs, p.Object.Spec.Configuration.Name), ours.Config(p.Object.Name))
			}
		})
	}
}

// sameSettings compares the fields of dayone's drop-ins, and the files beside them, with the operator's.
func sameSettings(t *testing.T, theirs, ours *mcfgv1.MachineConfig) int {
	t.Helper()
	want, got := nodeFiles(t, theirs), nodeFiles(t, ours)
	var whole map[string]any
	require.NoError(t, yaml.Unmarshal([]byte(want["/etc/kubernetes/kubelet.conf"]), &whole))
	fields := map[string]any{}
	for _, name := range []string{"98-apiserver-tls.conf", "99-kubeletconfig.conf"} {
		var more map[string]any
		require.NoError(t, yaml.Unmarshal([]byte(got["/etc/kubernetes/kubelet.conf.d/"+name]), &more))
		maps.Copy(fields, more)
	}
	for name, value := range fields {
		assert.Equal(t, whole[name], value, name)
	}
	for _, name := range []string{"/etc/node-sizing-enabled.env",
		"/etc/systemd/system/kubelet.service.d/20-logging.conf"} {
		assert.Equal(t, want[name], got[name], name)
	}
	return len(fields) + 2
}

// nodeFiles are the files of a rendered config by path.
func nodeFiles(t *testing.T, m *mcfgv1.MachineConfig) map[string]string {
	t.Helper()
	config, err := machineconfig.ParseRendered(m.Spec.Config.Raw)
	require.NoError(t, err)
	out := map[string]string{}
	for _, f := range config.Storage.Files {
		data, err := machineconfig.Contents(f.Contents)
		require.NoError(t, err)
		out[f.Path] = string(data)
	}
	return out
}
