package registry_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"dayone.dev/dayone/registry/registrytest"
)

// TestPodmanAndBuildah logs in, pulls, pushes, is refused and logs out with the programs of the
// host's packages, which keep their storage and credentials in a directory of the test.
func TestPodmanAndBuildah(t *testing.T) {
	if os.Geteuid() != 0 {
		if os.Getenv("CI") != "" {
			t.Fatal("needs root for the programs' storage")
		}
		t.Skip("needs root for the programs' storage")
	}
	for _, program := range []string{"podman", "buildah"} {
		t.Run(program, func(t *testing.T) {
			path := tool(t, program, program)
			r := registrytest.Start(t)
			ref, img := pushRandom(t, r, "interop/base:v1", 3)
			want, err := img.ConfigName()
			require.NoError(t, err)
			dir := t.TempDir()
			auth := filepath.Join(dir, "auth.json")
			short, err := os.MkdirTemp("/tmp", "reg") // podman refuses a runroot of more than 50 characters
			require.NoError(t, err)
			t.Cleanup(func() { assert.NoError(t, os.RemoveAll(short)) })
			storage := []string{"--root", filepath.Join(dir, "root"), "--runroot", short, "--storage-driver", "vfs"}
			run := func(ok bool, stdin string, args ...string) string {
				t.Helper()
				cmd := exec.CommandContext(t.Context(), path, append(storage, args...)...)
				cmd.Env = append(os.Environ(), "HOME="+dir, "XDG_RUNTIME_DIR="+dir, "TMPDIR="+dir)
				cmd.Stdin = strings.NewReader(stdin)
				out, err := cmd.CombinedOutput()
				require.Equal(t, ok, err == nil, "%s %v: %s", program, args, out)
				return string(out)
			}
			access := []string{"--cert-dir", filepath.Join(r.CertsDir, r.Addr), "--authfile", auth}
			with := func(command string, rest ...string) []string {
				return append(append([]string{command}, access...), rest...)
			}

			run(false, "wrong", with("login", "-u", r.Push.Name, "--password-stdin", r.Addr)...)
			run(true, r.Push.Password, with("login", "-u", r.Push.Name, "--password-stdin", r.Addr)...)
			assert.Contains(t, run(true, "", with("pull", ref.String())...), want.Hex)
			run(true, "", "tag", ref.String(), r.Addr+"/interop/"+program+":v2")
			run(true, "", with("push", r.Addr+"/interop/"+program+":v2")...)
			run(true, "", with("push", r.Addr+"/interop/"+program+":v2", "docker://"+r.Addr+"/other/"+program+":v3")...)
			for _, pushed := range []string{"interop/" + program + ":v2", "other/" + program + ":v3"} {
				there, err := name.ParseReference(r.Addr + "/" + pushed)
				require.NoError(t, err)
				got, err := remote.Image(there, gcr(t, r, r.Pull)...)
				require.NoError(t, err)
				layers, err := got.Layers()
				require.NoError(t, err)
				assert.Len(t, layers, 3)
			}
			run(true, "", "rmi", "-f", "-a")
			run(true, "", with("pull", r.Addr+"/interop/"+program+":v2")...)
			run(true, "", "logout", "--authfile", auth, r.Addr)
			run(false, "", with("pull", r.Addr+"/other/"+program+":v3")...)
			run(true, r.Pull.Password, with("login", "-u", r.Pull.Name, "--password-stdin", r.Addr)...)
			assert.Contains(t, run(false, "", with("push", r.Addr+"/interop/"+program+":v2",
				"docker://"+r.Addr+"/denied/x:v1")...), "denied")
		})
	}
}
