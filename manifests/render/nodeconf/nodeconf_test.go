package nodeconf

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"dayone.dev/dayone/installconfig/report"
	"dayone.dev/dayone/manifests"
)

func read(t *testing.T, kind, spec string) *manifests.Set {
	t.Helper()
	set, err := manifests.Read(
		[]byte("apiVersion: machineconfiguration.openshift.io/v1\nkind: "+kind+"\nmetadata: {name: a}\nspec: "+spec),
		"k.yaml", manifests.ReadOptions{})
	require.NoError(t, err)
	return set
}

func TestRefusedSettings(t *testing.T) {
	for _, c := range []struct {
		name             string
		kind, spec, path string
	}{
		{"automatic sizing beside amounts", "KubeletConfig",
			"{autoSizingReserved: true, kubeletConfig: {systemReserved: {cpu: \"1\"}}}", "spec.autoSizingReserved"},
		{"an unknown TLS profile", "KubeletConfig", "{tlsSecurityProfile: {type: Newest}}", "spec.tlsSecurityProfile"},
		{"a TLS profile without its text", "KubeletConfig", "{tlsSecurityProfile: {type: Custom}}",
			"spec.tlsSecurityProfile"},
		{"an unknown TLS version", "KubeletConfig", "{tlsSecurityProfile: {type: Custom, custom: {minTLSVersion: TLS12, " +
			"ciphers: [ECDHE-RSA-AES128-GCM-SHA256]}}}", "spec.tlsSecurityProfile.custom.minTLSVersion"},
		{"no cipher left", "KubeletConfig", "{tlsSecurityProfile: {type: Custom, custom: {minTLSVersion: VersionTLS12, " +
			"ciphers: [ECDHE-RSA-AES256-SHA384]}}}", "spec.tlsSecurityProfile.custom.ciphers"},
		{"a log level too high", "KubeletConfig", "{logLevel: 11}", "spec.logLevel"},
		{"the platform's field", "KubeletConfig", "{kubeletConfig: {cgroupDriver: systemd}}",
			"spec.kubeletConfig.cgroupDriver"},
		{"a field without sense", "KubeletConfig", "{kubeletConfig: {maxPod: 1}}", "spec.kubeletConfig.maxPod"},
		{"text for a number", "KubeletConfig", `{kubeletConfig: {maxPods: "1"}}`, "spec.kubeletConfig.maxPods"},
		{"nothing given", "ContainerRuntimeConfig", "{}", "spec.containerRuntimeConfig"},
		{"few processes", "ContainerRuntimeConfig", "{containerRuntimeConfig: {pidsLimit: 19}}",
			"spec.containerRuntimeConfig.pidsLimit"},
		{"no limit of processes", "ContainerRuntimeConfig", "{containerRuntimeConfig: {pidsLimit: -1}}",
			"spec.containerRuntimeConfig.pidsLimit"},
		{"a small log", "ContainerRuntimeConfig", "{containerRuntimeConfig: {logSizeMax: 8192}}",
			"spec.containerRuntimeConfig.logSizeMax"},
		{"a negative layer", "ContainerRuntimeConfig", "{containerRuntimeConfig: {overlaySize: -1G}}",
			"spec.containerRuntimeConfig.overlaySize"},
		{"an unknown level", "ContainerRuntimeConfig", "{containerRuntimeConfig: {logLevel: loud}}",
			"spec.containerRuntimeConfig.logLevel"},
		{"an unknown runtime", "ContainerRuntimeConfig", "{containerRuntimeConfig: {defaultRuntime: kata}}",
			"spec.containerRuntimeConfig.defaultRuntime"},
		{"other stores of layers", "ContainerRuntimeConfig",
			"{containerRuntimeConfig: {additionalLayerStores: [{path: /x}]}}",
			"spec.containerRuntimeConfig.additionalLayerStores"},
		{"other stores of artifacts", "ContainerRuntimeConfig",
			"{containerRuntimeConfig: {additionalArtifactStores: [{path: /x}]}}",
			"spec.containerRuntimeConfig.additionalArtifactStores"},
		{"a resource that the kubelet cannot reserve", "KubeletConfig",
			"{kubeletConfig: {systemReserved: {memry: 1Gi}}}", "spec.kubeletConfig.systemReserved[memry]"},
		{"a number for a quantity", "KubeletConfig", "{kubeletConfig: {evictionHard: {memory.available: 500}}}",
			"spec.kubeletConfig.evictionHard[memory.available]"},
		{"a number for a duration", "KubeletConfig", "{kubeletConfig: {shutdownGracePeriod: soon}}",
			"spec.kubeletConfig.shutdownGracePeriod"},
		{"other stores", "ContainerRuntimeConfig", "{containerRuntimeConfig: {additionalImageStores: [{path: /x}]}}",
			"spec.containerRuntimeConfig.additionalImageStores"},
	} {
		t.Run(c.name, func(t *testing.T) {
			set := read(t, c.kind, c.spec)
			var findings []report.Finding
			var err error
			if c.kind == "KubeletConfig" {
				_, findings, err = Kubelet(set.KubeletConfigs[0])
			} else {
				_, findings, err = Runtime(set.ContainerRuntimeConfigs[0])
			}
			require.NoError(t, err)
			require.NotEmpty(t, findings)
			assert.Equal(t, report.Error, findings[0].Severity)
			assert.Equal(t, c.path, findings[0].Path)
			assert.NotEmpty(t, findings[0].Next)
		})
	}
}

func TestKubeletDropIn(t *testing.T) {
	files, findings, err := Kubelet(read(t, "KubeletConfig",
		"{kubeletConfig: {kind: KubeletConfiguration, podPidsLimit: 4096, evictionHard: {memory.available: 1Gi}, "+
			"crashLoopBackOff: {maxContainerRestartPeriod: 30s}}}").
		KubeletConfigs[0])
	require.NoError(t, err)
	assert.Empty(t, findings)
	require.Len(t, files, 1)
	assert.Equal(t, kubeletDropIn, files[0].Path)
	assert.Equal(t,
		"apiVersion: kubelet.config.k8s.io/v1beta1\ncrashLoopBackOff:\n  maxContainerRestartPeriod: 30s\n"+
			"evictionHard:\n  memory.available: 1Gi\nkind: KubeletConfiguration\npodPidsLimit: 4096\n", string(files[0].Data))
}

// TestRuntimeFiles holds what MCO makes of the same objects.
func TestRuntimeFiles(t *testing.T) {
	for _, c := range []struct {
		name, spec string
		want       []File
	}{
		{"a log without a limit of its own", `{logSizeMax: "0"}`, nil},
		{"a log without limit", `{logSizeMax: "-1"}`, []File{{crioDir + "logSizeMax",
			[]byte("[crio]\n[crio.runtime]\nlog_size_max = -1\n")}}},
		{"a quota", `{overlaySize: 8G}`, []File{{storagePath, []byte(`[storage]
  driver = "overlay"
  runroot = "/run/containers/storage"
  graphroot = "/var/lib/containers/storage"
  [storage.options]
    size = "8G"
    force_mask = 0
    auto-userns-min-size = 0
    auto-userns-max-size = 0
    [storage.options.overlay]
      skip_mount_home = "true"
    [storage.options.pull_options]
      enable_partial_images = "false"
      ostree_repos = ""
      use_hard_links = "false"
`)}}},
		{"no quota", `{overlaySize: "0"}`, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			set := read(t, "ContainerRuntimeConfig", "{containerRuntimeConfig: "+c.spec+"}")
			files, findings, err := Runtime(set.ContainerRuntimeConfigs[0])
			require.NoError(t, err)
			assert.Empty(t, findings)
			assert.Equal(t, c.want, files)
		})
	}
}
