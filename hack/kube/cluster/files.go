package cluster

import (
	"fmt"
	"os"
	"path/filepath"

	"dayone.dev/dayone/hack/kube/process"
	"dayone.dev/dayone/registry"
)

// Where the node's programs find each other.
const (
	containerdSocket = inside + "/containerd.sock"
	certsDir         = inside + "/certs.d"
	// pullCertsDir is certsDir with the registry's pull account: it is only for the pause image, which no pod's pull
	// secret covers.
	pullCertsDir = inside + "/pull-certs.d"
	cniConfDir   = inside + "/cni"
)

// containerdConfig is in version 2, which containerd 1.4 and later read. The OOM score needs a capability that
// containers lack.
const containerdConfig = `version = 2
root = "` + inside + `/containerd"
state = "/run/containerd-state"
disabled_plugins = ["io.containerd.internal.v1.opt"]
[grpc]
  address = "` + containerdSocket + `"
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "%s"
  restrict_oom_score_adj = true
  disable_apparmor = true
  stream_server_address = "127.0.0.1"
  [plugins."io.containerd.grpc.v1.cri".registry]
    config_path = "` + certsDir + `"
  [plugins."io.containerd.grpc.v1.cri".containerd]
    snapshotter = "overlayfs"
    default_runtime_name = "runc"
    [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
      runtime_type = "io.containerd.runc.v2"
      [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]
        SystemdCgroup = false
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "%s"
    conf_dir = "` + cniConfDir + `"
`

// kubeletConfig lets the node run on any machine: swap, little free disk and control groups of version 1 do not stop
// it.
const kubeletConfig = `apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
failCgroupV1: false
cgroupDriver: cgroupfs
cgroupRoot: /%s
containerRuntimeEndpoint: unix://` + containerdSocket + `
imageServiceEndpoint: unix://` + containerdSocket + `
authentication:
  anonymous: {enabled: false}
  webhook: {enabled: true}
  x509: {clientCAFile: %s}
authorization: {mode: Webhook}
clusterDNS: [` + dnsAddress + `]
clusterDomain: ` + clusterDomain + `
enforceNodeAllocatable: [pods]
failSwapOn: false
oomScoreAdj: 0
evictionHard: {memory.available: 50Mi, nodefs.available: 64Mi, imagefs.available: 64Mi}
imageGCHighThresholdPercent: 100
imageGCLowThresholdPercent: 99
nodeStatusUpdateFrequency: 5s
volumePluginDir: ` + inside + `/volumeplugins
podLogsDir: ` + inside + "/" + podLogDir + `
resolvConf: ""
`

// cniConfig puts pods on a bridge of the node; addresses are forgotten with the node.
const cniConfig = `{"cniVersion": "0.4.0", "name": "pods", "plugins": [
 {"type": "bridge", "bridge": "cni0", "isGateway": true, "ipMasq": false,
  "ipam": {"type": "host-local", "dataDir": "/run/ipam", "ranges": [[{"subnet": "` + podRange + `"}]],
   "routes": [{"dst": "0.0.0.0/0"}]}}]}
`

// hostsConfig tells containerd of the registry's authority; %s are a place for it and for further lines.
const hostsConfig = `server = "https://` + RegistryName + `"
[host."https://` + RegistryName + `"]
  capabilities = ["pull", "resolve"]
  ca = "%s"
%s`

// authorizationHeader goes with every request for the pause image.
const authorizationHeader = `  [host."https://` + RegistryName + `".header]
    Authorization = ["Basic %s"]
`

// writeNodeFiles writes the settings of containerd and kubelet.
func writeNodeFiles(cgroup, clusterCA, pauseImage, pullAuth string) error {
	ca := registry.Options{Root: filepath.Join(inside, registryDir)}.CAFile()
	files := map[string]string{
		inside + "/containerd.toml":                   fmt.Sprintf(containerdConfig, pauseImage, cniDir()),
		inside + "/kubelet.yaml":                      fmt.Sprintf(kubeletConfig, cgroup, clusterCA),
		cniConfDir + "/10-pods.conflist":              cniConfig,
		certsDir + "/" + RegistryName + "/hosts.toml": fmt.Sprintf(hostsConfig, ca, ""),
		pullCertsDir + "/" + RegistryName + "/hosts.toml": fmt.Sprintf(hostsConfig, ca,
			fmt.Sprintf(authorizationHeader, pullAuth)),
	}
	for path, text := range files {
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			return err
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			return err
		}
	}
	return nil
}

func logFile(name string) string { return filepath.Join(inside, logDir, name+".log") }

func containerdSpec() process.Spec {
	return process.Spec{Path: "containerd", Args: []string{"--config", inside + "/containerd.toml"}, Env: temporary(),
		Log: logFile("containerd")}
}
