package mirrorfiles_test

import (
	"context"
	"encoding/json"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/containers/image/v5/docker/reference"
	"github.com/containers/image/v5/pkg/sysregistriesv2"
	"github.com/containers/image/v5/types"
	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/v1/random"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"dayone.dev/dayone/rebase/daemon/mirrorfiles"
	dayone "dayone.dev/dayone/registry"
	"dayone.dev/dayone/registry/credentials"
	"dayone.dev/dayone/registry/forwarder"
	"dayone.dev/dayone/registry/registrytest"
)

// TestContainersOfPods: podman reads the drop-in, too. With the credentials that kubelet gives for an image, those of
// its name, the forwarder refuses the pull and podman goes to the registry itself; with the node's it pulls through it.
func TestContainersOfPods(t *testing.T) {
	podman, err := exec.LookPath("podman")
	if err != nil || os.Geteuid() != 0 {
		require.Empty(t, os.Getenv("CI"), "needs root and the package podman")
		t.Skip("needs root and the package podman")
	}
	r := registrytest.Start(t, func(o *dayone.Options) {
		o.Listen = net.JoinHostPort(registrytest.HostAddress(t), strconv.Itoa(registrytest.Port(t)))
	})
	img, err := random.Image(300_000, 2)
	require.NoError(t, err)
	d, err := img.Digest()
	require.NoError(t, err)
	image := r.Addr + "/app/web@" + d.String()
	to, err := name.NewDigest(image)
	require.NoError(t, err)
	require.NoError(t, remote.Write(to, img, r.Pusher(t)...))

	root := t.TempDir()
	list, err := json.Marshal(map[string]any{"apiVersion": "dayone.dev/v1", "kind": "RegistryPeers", "registry": r.Addr,
		"peers": []map[string]string{{"name": "m0", "address": r.Addr}}})
	require.NoError(t, err)
	peersFile := filepath.Join(root, "peers.json")
	require.NoError(t, os.WriteFile(peersFile, list, 0o600))
	account := credentials.Account{Username: "forwarder", Password: "p"}
	served := make(chan forwarder.Mirror, 1)
	f, err := forwarder.New(forwarder.Options{Node: "w0", PeersFile: peersFile, CertsDirs: []string{r.CertsDir},
		AuthFiles: []string{r.PullAuthFile}, Account: account,
		Listen:  net.JoinHostPort("127.0.0.1", strconv.Itoa(registrytest.Port(t))),
		Serving: func(m forwarder.Mirror) error { served <- m; return nil }})
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- f.Run(ctx) }()
	t.Cleanup(func() { cancel(); assert.NoError(t, <-ended) })
	var m forwarder.Mirror
	select {
	case m = <-served:
	case <-time.After(time.Minute):
		t.Fatalf("the forwarder does not serve: %+v", f.State())
	}

	conf, certs, nodes := filepath.Join(root, "registries.conf"), filepath.Join(root, "certs"), filepath.Join(root, "auth")
	require.NoError(t, os.WriteFile(conf, mirrorfiles.DropIn(m.Registry, m.Address), 0o600))
	ca, err := os.ReadFile(r.CAFile)
	require.NoError(t, err)
	require.NoError(t, os.Mkdir(certs, 0o700))
	require.NoError(t, os.WriteFile(filepath.Join(certs, "ca.crt"), []byte(string(ca)+"\n"+m.CA), 0o600))
	kubelets, err := os.ReadFile(r.PullAuthFile)
	require.NoError(t, err)
	own, err := credentials.Encode(account, m.Address)
	require.NoError(t, err)
	merged, err := credentials.Merge(kubelets, own)
	require.NoError(t, err)
	require.NoError(t, credentials.Write(nodes, merged))
	for _, tc := range []struct {
		name, auth string
		through    bool
	}{{"a pod's", r.PullAuthFile, false}, {"the node's", nodes, true}} {
		t.Run(tc.name, func(t *testing.T) {
			short, err := os.MkdirTemp("/tmp", "pod") // podman refuses a runroot of more than 50 characters
			require.NoError(t, err)
			t.Cleanup(func() { assert.NoError(t, os.RemoveAll(short)) })
			ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
			defer cancel()
			dir := t.TempDir()
			cmd := exec.CommandContext(ctx, podman, "--root", filepath.Join(dir, "root"), "--runroot", short,
				"--storage-driver", "vfs", "pull", "--cert-dir", certs, "--authfile", tc.auth, image)
			cmd.Env = append(os.Environ(), "CONTAINERS_REGISTRIES_CONF="+conf, "HOME="+dir, "TMPDIR="+dir)
			out, err := cmd.CombinedOutput()
			require.NoError(t, err, "%s", out)
			assert.Equal(t, tc.through, f.State().Peers[0].Bytes >= 300_000, "%+v", f.State().Peers)
		})
	}
}

// TestMirrorSets: what an ImageDigestMirrorSet makes of registries.conf beside the drop-in. Where the cluster's own
// registry is a mirror of another one, pulls go to its name and not through the forwarder: mirrors have no mirrors. One
// for the cluster's own registry gives way to the drop-in.
func TestMirrorSets(t *testing.T) {
	root := t.TempDir()
	conf := filepath.Join(root, "etc/containers/registries.conf")
	require.NoError(t, os.MkdirAll(filepath.Dir(conf), 0o755))
	require.NoError(t, os.WriteFile(conf, []byte("[[registry]]\nlocation = \"quay.example.com/app\"\n"+
		"[[registry.mirror]]\n"+
		"location = \""+registry+"/app\"\npull-from-mirror = \"digest-only\"\n[[registry]]\nlocation = \""+registry+
		"\"\n[[registry.mirror]]\nlocation = \"other.example.com\"\npull-from-mirror = \"digest-only\"\n"), 0o644))
	_, err := mirrorfiles.Apply(root, address, mirrorfiles.Mirror{Registry: registry, CA: "pem",
		Account: mirrorfiles.Account(root, address)})
	require.NoError(t, err)
	assert.Equal(t, []string{address, registry}, places(t, root))

	sys := &types.SystemContext{RootForImplicitAbsolutePaths: root}
	named, err := reference.ParseNamed("quay.example.com/app/web@sha256:" +
		"0000000000000000000000000000000000000000000000000000000000000000")
	require.NoError(t, err)
	found, err := sysregistriesv2.FindRegistry(sys, named.Name())
	require.NoError(t, err)
	sources, err := found.PullSourcesFromReference(named)
	require.NoError(t, err)
	require.Len(t, sources, 2)
	assert.Equal(t, registry, reference.Domain(sources[0].Reference))
	assert.Equal(t, "quay.example.com", reference.Domain(sources[1].Reference))
}
