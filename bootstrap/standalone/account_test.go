package standalone_test

import (
	"encoding/base64"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/containers/image/v5/pkg/compression"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"dayone.dev/dayone/bootstrap/phasetest"
	"dayone.dev/dayone/bootstrap/preflight"
	"dayone.dev/dayone/installconfig"
	"dayone.dev/dayone/registry"
	"dayone.dev/dayone/registry/certs"
	"dayone.dev/dayone/registry/credentials"
)

// mastersHaveRegistries turns the install directory into one whose masters keep the images, and whose one pool is
// theirs, with this Containerfile.
func (b *bench) mastersHaveRegistries(containerfile string) *installconfig.Sidecar {
	t, dir := b.t, b.order.Dir
	require.NoError(t, os.RemoveAll(filepath.Join(dir, "layering")))
	file := filepath.Join(dir, installconfig.FileName)
	raw, err := os.ReadFile(file)
	require.NoError(t, err)
	const pools = "  - name: master\n  - name: worker\n"
	require.Contains(t, string(raw), pools)
	require.NoError(t, os.WriteFile(file, []byte(strings.Replace(string(raw), pools,
		"  - name: master\n    containerfile: "+strconv.Quote(containerfile)+"\n", 1)), 0o600))
	layering, err := preflight.Layering(dir)
	require.NoError(t, err)
	require.True(t, layering.Config.InCluster())
	require.NoError(t, preflight.MakeShared(dir, layering))
	return layering
}

// TestNoImageHasSecretsOfTheMastersRegistries builds the image of masters that have registries of their own, and looks
// into its layers and into the rendered configs for the account that pulls, the key of the CA and the list of users.
// What must not be there and what must be is looked for alike.
func TestNoImageHasSecretsOfTheMastersRegistries(t *testing.T) {
	b := newBench(t)
	layering := b.mastersHaveRegistries("FROM configs")
	dir := b.order.Dir
	ended := phasetest.Start(t, b.order)()
	require.NoError(t, ended.Err, ended.Log)

	shared := preflight.SharedDir(dir)
	accounts, err := credentials.Read(filepath.Join(shared, registry.PullAuthFile))
	require.NoError(t, err)
	account, found, err := accounts.Find(layering.Config.Registry.Name)
	require.NoError(t, err)
	require.True(t, found)
	line := func(file string, n int) string {
		raw, err := os.ReadFile(filepath.Join(shared, file))
		require.NoError(t, err)
		return strings.Split(string(raw), "\n")[n]
	}
	key, user, cert := line(certs.CAKeyFile, 1), line(registry.UsersFile, 0), line(certs.CACertFile, 1)
	auth := base64.StdEncoding.EncodeToString([]byte(account.Username + ":" + account.Password)) // as auth.json has it
	mine := unpacked(t, shared)
	secrets := []string{account.Password, auth, key, user}
	for _, secret := range secrets {
		assert.True(t, hasSecret(mine, secret), "this finds it")
	}
	for _, part := range []string{"registry", "rendered-first", "rendered"} {
		text := unpacked(t, filepath.Join(b.order.State, part))
		assert.True(t, hasSecret(text, cert), "%s has the MachineConfig's files", part)
		for i, secret := range secrets {
			assert.False(t, hasSecret(text, secret), "%s has secret %d of %s", part, i, shared)
		}
	}
}

// hasSecret looks for a secret as it is, and in base64 as a part of whatever.
func hasSecret(text, secret string) bool {
	for pad := range 3 {
		encoded := base64.RawStdEncoding.EncodeToString([]byte(strings.Repeat("x", pad) + secret))
		if strings.Contains(text, encoded[4:len(encoded)-2]) { // without what the neighbours decide
			return true
		}
	}
	return strings.Contains(text, secret)
}

// unpacked is the content of all files of a directory, layers among them.
func unpacked(t *testing.T, dir string) string {
	t.Helper()
	var out strings.Builder
	require.NoError(t, filepath.WalkDir(dir, func(name string, e fs.DirEntry, err error) error {
		if err != nil || !e.Type().IsRegular() {
			return err
		}
		f, err := os.Open(name)
		if err != nil {
			return err
		}
		defer f.Close()
		plain, _, err := compression.AutoDecompress(f)
		if err != nil {
			return err
		}
		defer plain.Close()
		_, err = io.Copy(&out, plain)
		return err
	}))
	return out.String()
}
