package phasetest

import (
	"encoding/base64"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"dayone.dev/dayone/installconfig"
	"dayone.dev/dayone/registry"
)

// What the sample install directory says of its final registry.
const (
	sampleRegistry = "registry.example.com"
	samplePush     = "ZGVtby1wdXNoOm5vdC1hLXJlYWwtcGFzc3dvcmQ="
	samplePull     = "ZGVtby1wdWxsOm5vdC1hLXJlYWwtcGFzc3dvcmQ="
)

// UseRegistry makes a copy of the sample install directory, or a part of it, name a registry that is there, with its
// accounts.
func UseRegistry(t testing.TB, dir, address string, push, pull registry.User) {
	t.Helper()
	auth := func(u registry.User) string {
		return base64.StdEncoding.EncodeToString([]byte(u.Name + ":" + u.Password))
	}
	words := strings.NewReplacer(sampleRegistry, address, samplePush, auth(push), samplePull, auth(pull))
	require.NoError(t, filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		raw, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		return os.WriteFile(path, []byte(words.Replace(string(raw))), 0o600)
	}))
}

// infraPool takes the worker's MachineConfigs and its own, as users make such a pool.
const infraPool = `apiVersion: machineconfiguration.openshift.io/v1
kind: MachineConfigPool
metadata: {name: infra}
spec:
  machineConfigSelector:
    matchExpressions:
    - {key: machineconfiguration.openshift.io/role, operator: In, values: [worker, infra]}
  nodeSelector: {matchLabels: {node-role.kubernetes.io/infra: ""}}
`

// AddInfra puts a pool of the user's own into a copy of the sample install directory, beside masters and workers: its
// MachineOSConfig is the worker's with an annotation. The cluster builds its image.
func AddInfra(t testing.TB, dir string) {
	t.Helper()
	read := func(name string) string {
		raw, err := os.ReadFile(filepath.Join(dir, name))
		require.NoError(t, err)
		return string(raw)
	}
	write := func(name, text string) {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600))
	}
	infra := strings.NewReplacer("metadata:\n  name: worker\n",
		"metadata:\n  name: infra\n  annotations: {example.com/owner: platform}\n",
		"    name: worker\n", "    name: infra\n", "worker-os", "infra-os").Replace(read("layering/worker.yaml"))
	require.Contains(t, infra, "example.com/owner")
	write("layering/infra.yaml", infra)
	write("openshift/99_infra-pool.yaml", infraPool)
	text := read(installconfig.FileName)
	named := strings.Replace(text, "  pools:\n  - name: master\n  - name: worker\n",
		"  pools:\n  - name: master\n  - name: worker\n  - name: infra\n", 1)
	require.NotEqual(t, text, named)
	write(installconfig.FileName, named)
}

// HostAddress is an address of this machine that is not a loopback address: one that a bootstrap host may have.
func HostAddress(t testing.TB) string {
	t.Helper()
	addresses, err := net.InterfaceAddrs()
	require.NoError(t, err)
	for _, a := range addresses {
		if n, ok := a.(*net.IPNet); ok && n.IP.To4() != nil && n.IP.IsGlobalUnicast() {
			return n.IP.String()
		}
	}
	t.Fatal("this machine has no IPv4 address beside 127.0.0.1: add one, for example with ip address add")
	return ""
}
