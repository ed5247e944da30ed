package rotation_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"dayone.dev/dayone/registry"
	"dayone.dev/dayone/registry/certs"
	"dayone.dev/dayone/registry/credentials"
	"dayone.dev/dayone/registry/rotation"
)

const name = "api-int.lab.example.com:22626"

// files are what a directory has, by name.
func files(t *testing.T, dir string) map[string]string {
	t.Helper()
	out := map[string]string{}
	for _, f := range []string{registry.UsersFile, registry.PushAuthFile, registry.PullAuthFile, certs.CACertFile,
		certs.CAKeyFile} {
		raw, err := os.ReadFile(filepath.Join(dir, f))
		require.NoError(t, err)
		out[f] = string(raw)
	}
	return out
}

// account is the name in an auth file.
func account(t *testing.T, dir, file string) string {
	t.Helper()
	accounts, err := credentials.Read(filepath.Join(dir, file))
	require.NoError(t, err)
	a, found, err := accounts.Find(name)
	require.NoError(t, err)
	require.True(t, found)
	return a.Username
}

func users(t *testing.T, dir string) string {
	t.Helper()
	list, err := registry.LoadOrCreateUsers(dir, name)
	require.NoError(t, err)
	var out []string
	for _, u := range list {
		out = append(out, u.Name+" "+string(u.Role))
	}
	return strings.Join(out, ", ")
}

func newDir(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	_, err := registry.LoadOrCreateUsers(dir, name)
	require.NoError(t, err)
	_, err = certs.LoadOrCreateCA(dir, certs.CAOptions{CommonName: "CA"})
	require.NoError(t, err)
	return dir
}

// TestTwoRotations: each step is one of what the registries accept, what is used and who is trusted. What an
// administrator has added stays.
func TestTwoRotations(t *testing.T) {
	dir := newDir(t)
	extra := t.TempDir()
	other, err := certs.LoadOrCreateCA(extra, certs.CAOptions{CommonName: "other"})
	require.NoError(t, err)
	add := func(file, text string) {
		raw, err := os.ReadFile(filepath.Join(dir, file))
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(filepath.Join(dir, file), append(raw, text...), 0o600))
	}
	hash := strings.Split(files(t, dir)[registry.UsersFile], ":")[1]
	add(registry.UsersFile, "# of the CI\nci:"+hash+":pull") // without an end of line
	add(certs.CACertFile, string(other.CertificatePEM()))
	for _, tc := range []struct {
		name                 string
		step                 rotation.Step
		users, push, pull    string
		subject              string
		certificates, folder int
	}{
		{"first", rotation.Added, "push push, pull pull, ci pull, push-2 push, pull-2 pull", "push", "pull", "CA", 3, 1},
		{"first", rotation.Switched, "push push, pull pull, ci pull, push-2 push, pull-2 pull", "push-2", "pull-2", "CA-2", 3,
			1},
		{"first", rotation.Ended, "ci pull, push-2 push, pull-2 pull", "push-2", "pull-2", "CA-2", 2, 0},
		{"second", rotation.Added, "ci pull, push-2 push, pull-2 pull, push-3 push, pull-3 pull", "push-2", "pull-2", "CA-2",
			3, 1},
		{"second", rotation.Switched, "ci pull, push-2 push, pull-2 pull, push-3 push, pull-3 pull", "push-3", "pull-3",
			"CA-3", 3, 1},
		{"second", rotation.Ended, "ci pull, push-3 push, pull-3 pull", "push-3", "pull-3", "CA-3", 2, 0},
	} {
		t.Run(tc.name+" "+string(tc.step), func(t *testing.T) {
			step, err := rotation.Next(dir)
			require.NoError(t, err)
			assert.Equal(t, tc.step, step)
			assert.Equal(t, tc.users, users(t, dir))
			assert.Equal(t, tc.push, account(t, dir, registry.PushAuthFile))
			assert.Equal(t, tc.pull, account(t, dir, registry.PullAuthFile))
			ca, err := certs.LoadOrCreateCA(dir, certs.CAOptions{})
			require.NoError(t, err)
			assert.Equal(t, tc.subject, ca.Certificate().Subject.CommonName)
			assert.Equal(t, tc.certificates, strings.Count(files(t, dir)[certs.CACertFile], "BEGIN CERTIFICATE"))
			assert.Contains(t, files(t, dir)[certs.CACertFile], string(other.CertificatePEM()))
			left, err := filepath.Glob(filepath.Join(dir, "rotation*"))
			require.NoError(t, err)
			assert.Len(t, left, tc.folder, "old passwords and keys go with the rotation")
		})
	}
}

// TestAKillTakesTheSameStep: the step is noted last, so a step that a kill cut short is taken again with the same
// passwords and keys.
func TestAKillTakesTheSameStep(t *testing.T) {
	dir := newDir(t)
	note := filepath.Join(dir, "rotation", "step")
	var before []byte
	for _, want := range []rotation.Step{rotation.Added, rotation.Switched} {
		step, err := rotation.Next(dir)
		require.NoError(t, err)
		require.Equal(t, want, step)
		whole := files(t, dir)
		noted, err := os.ReadFile(note)
		require.NoError(t, err)
		if before == nil {
			require.NoError(t, os.Remove(note))
		} else {
			require.NoError(t, os.WriteFile(note, before, 0o600))
		}
		for f := range whole { // a kill in the middle has written some of them
			if f > registry.PullAuthFile {
				require.NoError(t, os.WriteFile(filepath.Join(dir, f), nil, 0o600))
			}
		}
		step, err = rotation.Next(dir)
		require.NoError(t, err)
		assert.Equal(t, want, step)
		assert.Equal(t, whole, files(t, dir))
		before = noted
	}
	require.NoError(t, os.WriteFile(note, []byte("sideways"), 0o600))
	_, err := rotation.Next(dir)
	assert.ErrorContains(t, err, "from a backup")
}

func TestNothingToRotate(t *testing.T) {
	dir := newDir(t)
	require.NoError(t, os.Remove(filepath.Join(dir, registry.PullAuthFile)))
	before, err := os.ReadDir(dir)
	require.NoError(t, err)
	_, err = rotation.Next(dir)
	require.ErrorContains(t, err, registry.PullAuthFile)
	require.NoError(t, os.WriteFile(filepath.Join(dir, registry.PullAuthFile), []byte(`{"auths":{"x":{"auth":"canary"}}}`),
		0o600))
	_, err = rotation.Next(dir)
	require.Error(t, err)
	assert.NotContains(t, err.Error(), "canary")
	assert.Len(t, before, 4)
}
