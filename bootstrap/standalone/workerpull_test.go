package standalone_test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"dayone.dev/dayone/bootstrap/phasetest"
	"dayone.dev/dayone/bootstrap/preflight"
	"dayone.dev/dayone/installconfig"
	"dayone.dev/dayone/manifests/assets"
	"dayone.dev/dayone/manifests/machineconfig"
	"dayone.dev/dayone/manifests/render"
	"dayone.dev/dayone/rebase/daemon/trustfiles"
	"dayone.dev/dayone/rebase/deploy"
	"dayone.dev/dayone/rebase/deploy/deploytest"
	"dayone.dev/dayone/rebase/deploy/pull"
	"dayone.dev/dayone/rebase/firstboot"
	"dayone.dev/dayone/registry/credentials"
	"dayone.dev/dayone/registry/registrytest"
	"dayone.dev/dayone/registry/transfer"
)

// workerDisk is what a worker has in /etc after its first boot: the files of its pool's rendered config.
func workerDisk(t *testing.T, dir string) (root string) {
	t.Helper()
	versions := render.Versions{Raw: "test", Hash: "test", Payload: "test"}
	in, err := preflight.Load(dir, "linux/amd64")
	require.NoError(t, err)
	base := "registry.example.com/ocp/base-os@sha256:" + strings.Repeat("1", 64)
	result, err := render.Render(in.Inputs(base, versions), in.Options(versions))
	require.NoError(t, err)
	config, err := machineconfig.ParseRendered(result.Config("worker").Spec.Config.Raw)
	require.NoError(t, err)
	root = t.TempDir()
	for _, f := range config.Storage.Files {
		raw, err := machineconfig.Contents(f.Contents)
		require.NoError(t, err)
		at := filepath.Join(root, f.Path)
		require.NoError(t, os.MkdirAll(filepath.Dir(at), 0o755))
		require.NoError(t, os.WriteFile(at, raw, os.FileMode(*f.Mode)))
	}
	return root
}

// TestWorkersPullWithInstallConfigsSecret: the bootstrap registry is gone and the cluster rolls out a worker image from
// a private registry. What install-config.yaml brings onto the node, and the agent's own way to merge and to pull, must
// be enough.
func TestWorkersPullWithInstallConfigsSecret(t *testing.T) {
	final := registrytest.Start(t)
	image := deploytest.Image(t, deploytest.Options{}, deploytest.Layer(t, deploytest.Base("2")...))
	to := transfer.Endpoint{Reference: "docker://" + final.Addr + "/ocp/worker-os:2", CAFile: final.CAFile,
		AuthFile: final.PushAuthFile}
	copied, err := transfer.Copy(t.Context(), transfer.Endpoint{Reference: deploytest.WriteOCI(t, image)}, to,
		transfer.Options{})
	require.NoError(t, err)
	reference := final.Addr + "/ocp/worker-os@" + copied.Digest.String()
	own, err := os.ReadFile(final.PullAuthFile)
	require.NoError(t, err)
	const others = `{"auths":{"quay.io":{"auth":"cXVheTpwdWxs"}}}`
	const bootstraps = `{"auths":{"192.0.2.1:5000":{"auth":"Ym9vdDpwdWxs"}}}`
	both, err := credentials.Merge([]byte(others), own)
	require.NoError(t, err)
	for _, c := range []struct {
		name, secret string
		class        deploy.Class
	}{
		{"another registry's credentials", others, deploy.ClassUnauthorized},
		{"the registry's among others", string(both), ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "cluster")
			require.NoError(t, assets.WriteSample(dir))
			phasetest.UseRegistry(t, dir, final.Addr, final.Push, final.Pull)
			file := filepath.Join(dir, installconfig.FileName)
			raw, err := os.ReadFile(file)
			require.NoError(t, err)
			before, rest, _ := strings.Cut(string(raw), "pullSecret:")
			_, after, _ := strings.Cut(rest, "\n")
			secret, err := json.Marshal(c.secret) // a JSON string is a YAML string
			require.NoError(t, err)
			require.NoError(t, os.WriteFile(file, []byte(fmt.Sprintf("%spullSecret: %s\n%s", before, secret, after)), 0o600))

			root := workerDisk(t, dir)
			_, err = firstboot.AddAuth(root, []byte(bootstraps)) // what Day 1 has left
			require.NoError(t, err)
			_, err = trustfiles.Set{}.Apply(root, func(string) bool { return false })
			require.NoError(t, err)
			merged, err := os.ReadFile(filepath.Join(root, trustfiles.PullAuthPath))
			require.NoError(t, err)
			for _, host := range []string{"quay.io", "192.0.2.1:5000"} {
				assert.Contains(t, string(merged), host, "nothing gets lost")
			}
			done, err := pull.Import(t.Context(), deploytest.NewRepository(t), reference,
				pull.Options{Root: root, CertsDir: final.CertsDir, Architecture: "amd64"})
			if c.class != "" {
				require.Error(t, err)
				assert.Equal(t, c.class, deploy.ClassOf(err))
				return
			}
			require.NoError(t, err)
			assert.Equal(t, copied.Digest, done.ManifestDigest)
		})
	}
}
