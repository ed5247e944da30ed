package deployers

import (
	"bytes"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"dayone.dev/dayone/rebase/deploy"
	"dayone.dev/dayone/rebase/deploy/deploytest"
	"dayone.dev/dayone/rebase/deploy/pull"
	"dayone.dev/dayone/rebase/firstboot"
)

// signed is the policy that a node has from its config: a key for the final name, and where its signatures are read.
// For the mirror the config server adds the same; a second file about it would break every pull.
func signed(f *fixture, policy []byte) {
	f.put(pull.PolicyPath, 0o644, policy)
	f.put("/etc/containers/registries.d/50-test.yaml", 0o644, deploytest.Attachments("registry.invalid"))
}

// TestOnlySignedImagesAreStaged: the same policy holds on Day 1 and on Day 2, and also for what the host's own program
// pulls.
func TestOnlySignedImagesAreStaged(t *testing.T) {
	forEach(t, func(t *testing.T, kind deploy.Kind, programs []string) {
		key, stranger := deploytest.NewKey(t), deploytest.NewKey(t)
		f := newFixture(t, kind, programs)
		signed(f, deploytest.Policy(repository, deploytest.Required(key)))
		f.start()
		require.NoError(t, f.node.WaitReady(t.Context()))
		f.waitFor(deploy.ClassUnsigned, "no signature exists.*next: sign the image")
		f.registry.Sign(t, stranger, f.image, f.image)
		f.waitFor(deploy.ClassUnsigned, "does not allow it from 192.168.77.1:5000")
		assert.Zero(t, f.record().Reboots)
		f.registry.Sign(t, key, f.image, f.image)
		r := f.waitDone()
		require.NoError(t, f.node.WaitBoot(t.Context(), 2))
		assert.Equal(t, f.image, r.Booted)
		assert.Equal(t, 2, f.boots())

		// The new deployment has what the test wrote below /etc.
		next := f.push(f.layered(deploytest.Entry{Name: "etc/next", Body: "x"}))
		refused := func(name, says string) {
			t.Helper()
			r, err := f.node.Exec(t.Context(), firstboot.DaemonPath, "stage", next)
			require.NoError(t, err)
			assert.Equal(t, 1, r.ExitCode, name)
			assert.Regexp(t, says, r.Stderr, name)
			assert.Contains(t, r.Stderr, "next: ", name)
			assert.NotContains(t, f.output("ostree", "admin", "status"), "(staged)", name)
		}
		refused("unsigned", "no signature exists")
		f.registry.Sign(t, stranger, next, next)
		refused("by a stranger", "does not allow it")
		f.registry.Sign(t, key, next, "registry.invalid/ocp/worker-os@"+deployed(next))
		refused("for another repository", "worker-os")
		f.registry.Sign(t, key, next, next)
		f.registry.Unsign(t, next)
		refused("its signatures were deleted", "no signature exists")
		f.registry.Sign(t, key, next, next)
		f.registry.Spoil(func(w http.ResponseWriter, r *http.Request) bool {
			if strings.HasSuffix(r.URL.Path, ".sig") {
				_, _ = w.Write(bytes.Repeat([]byte(" "), 5<<20)) // the client may have had enough
			}
			return strings.HasSuffix(r.URL.Path, ".sig")
		})
		refused("its signatures never end", "exceeded maximum allowed size")
		f.registry.Spoil(nil)
		f.output(firstboot.DaemonPath, "stage", next)
		assert.Equal(t, next, f.status().Staged.Image.String())

		f.output("sh", "-c", "echo '{\"default\":[{\"type\":\"reject\"}]}' >"+pull.PolicyPath)
		next = f.push(f.layered(deploytest.Entry{Name: "etc/later", Body: "x"}))
		r2, err := f.node.Exec(t.Context(), firstboot.DaemonPath, "stage", next)
		require.NoError(t, err)
		assert.Equal(t, 1, r2.ExitCode)
		assert.Contains(t, r2.Stderr, "add the scope "+repository)
		for _, broken := range []string{"{", `{"default":[{"type":"notary"}]}`} {
			f.output("sh", "-c", "echo '"+broken+"' >"+pull.PolicyPath)
			r2, err = f.node.Exec(t.Context(), firstboot.DaemonPath, "stage", next)
			require.NoError(t, err)
			assert.Equal(t, 1, r2.ExitCode)
			assert.Contains(t, r2.Stderr, "next: repair "+pull.PolicyPath)
		}
		assert.NotContains(t, f.log(), deploytest.Password)
	})
}

// deployed is the digest of a name.
func deployed(image string) string {
	i, err := deploy.ParseImage(image)
	if err != nil {
		return ""
	}
	return i.Digest.String()
}
