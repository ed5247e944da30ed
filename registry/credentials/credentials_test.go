package credentials_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/containers/image/v5/pkg/docker/config"
	"github.com/containers/image/v5/types"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"dayone.dev/dayone/registry/credentials"
)

const canary = "s3cret-canary"

func TestFind(t *testing.T) {
	accounts, err := credentials.Parse([]byte(`{"auths":{
		"https://index.docker.io/v1/":{"username":"login"}, "docker.io":{"username":"podman"},
		"registry-1.docker.io":{"username":"host"}, "index.docker.io/acme":{"username":"acme"},
		"https://quay.io":{"username":"url"}, "http://quay.io":{"username":"plain"},
		"r.example.com":{"auth":"aG9zdDpwdw=="}, "r.example.com/team":{"auth":"dGVhbTpwdwAA"},
		"token.example.com":{"auth":"dTpw","identitytoken":"i","registrytoken":"r"},
		"helper.example.com":{}, "broken.example.com":{"auth":"!s3cret-canary"}, "list.example.com":["s3cret-canary"]}}`))
	require.NoError(t, err)
	for _, c := range []struct {
		repository string
		want       credentials.Account
		found      bool
	}{
		{"docker.io/library/os", credentials.Account{Username: "podman"}, true},
		{"index.docker.io/library/os", credentials.Account{Username: "podman"}, true},
		{"index.docker.io/acme/os", credentials.Account{Username: "acme"}, true},
		{"docker.io/acme", credentials.Account{Username: "acme"}, true},
		{"docker.io/acmes/os", credentials.Account{Username: "podman"}, true},
		{"quay.io/a", credentials.Account{Username: "plain"}, true},
		{"other.example/docker.io", credentials.Account{}, false},
		{"r.example.com/a/b", credentials.Account{Username: "host", Password: "pw"}, true},
		{"r.example.com/team/image", credentials.Account{Username: "team", Password: "pw"}, true},
		{"r.example.com/teamwork/x", credentials.Account{Username: "host", Password: "pw"}, true},
		{"token.example.com/a", credentials.Account{Username: "u", Password: "p", IdentityToken: "i", RegistryToken: "r"},
			true},
		{"helper.example.com/a", credentials.Account{}, true},
	} {
		got, found, err := accounts.Find(c.repository)
		require.NoError(t, err, c.repository)
		assert.Equal(t, c.found, found, c.repository)
		assert.Equal(t, c.want, got, c.repository)
	}
	for _, host := range []string{"broken.example.com", "list.example.com"} {
		_, found, err := accounts.Find(host + "/a")
		assert.True(t, found)
		require.ErrorContains(t, err, "entry "+host)
		assert.NotContains(t, err.Error(), canary)
	}
	assert.Equal(t, "helper.example.com", accounts.WithoutPassword())
}

func TestCovers(t *testing.T) {
	for _, c := range []struct {
		key  string
		want bool
	}{
		{"r.example.com:5000", true},
		{"https://r.example.com:5000/v1/", true},
		{"r.example.com:5000/ocp", true},
		{"r.example.com:5000/ocp/master-os", true},
		{"r.example.com", false},
		{"r.example.com:5000/oc", false},
		{"r.example.com:5000/ocp/master-os/x", false},
		{"quay.io", false},
		{"", false},
	} {
		raw := []byte(`{"auths":{"` + c.key + `":{"auth":"x"}}}`)
		assert.Equal(t, c.want, credentials.Covers(raw, "r.example.com:5000/ocp/master-os"), c.key)
	}
}

func TestRead(t *testing.T) {
	accounts, err := credentials.Read("")
	require.NoError(t, err)
	assert.Empty(t, accounts)
	path := filepath.Join(t.TempDir(), "auth.json")
	_, err = credentials.Read(path)
	require.ErrorIs(t, err, os.ErrNotExist)
	for _, content := range []string{canary, `{"auths":"` + canary + `"}`, `["` + canary + `"]`} {
		require.NoError(t, os.WriteFile(path, []byte(content), 0o600))
		_, err = credentials.Read(path)
		require.ErrorContains(t, err, path)
		require.ErrorContains(t, err, "auth.json form")
		assert.NotContains(t, err.Error(), canary)
	}
}

func TestWrite(t *testing.T) {
	raw, err := credentials.Encode(credentials.Account{Username: "u", Password: "p:q"}, "a.example.com", "b:5000/os")
	require.NoError(t, err)
	assert.Equal(t, `{"auths":{"a.example.com":{"auth":"dTpwOnE="},"b:5000/os":{"auth":"dTpwOnE="}}}`, string(raw))
	path := filepath.Join(t.TempDir(), "auth.json")
	require.NoError(t, os.WriteFile(path, nil, 0o644))
	require.NoError(t, credentials.Write(path, raw))
	info, err := os.Stat(path)
	require.NoError(t, err)
	assert.Equal(t, os.FileMode(0o600), info.Mode(), "also where the file before could be read by others")
	accounts, err := credentials.Read(path)
	require.NoError(t, err)
	account, _, err := accounts.Find("b:5000/os")
	require.NoError(t, err)
	assert.Equal(t, credentials.Account{Username: "u", Password: "p:q"}, account)
}

func TestFile(t *testing.T) {
	dir := t.TempDir()
	path, err := credentials.File(dir, "ca.crt", []byte("a CA"))
	require.NoError(t, err)
	assert.Equal(t, filepath.Join(dir, "ca.crt"), path)
	info, err := os.Stat(path)
	require.NoError(t, err)
	assert.Equal(t, os.FileMode(0o600), info.Mode())
	path, err = credentials.File(dir, "auth.json", nil)
	require.NoError(t, err)
	assert.Empty(t, path, "anonymous clients have no file")
	_, err = credentials.File(filepath.Join(dir, "none"), "auth.json", []byte("{}"))
	require.ErrorIs(t, err, os.ErrNotExist)
}

func TestSensitive(t *testing.T) {
	assert.ElementsMatch(t, []string{"dTpwOnE=", "u:p:q", "p:q", "plain", "token"}, credentials.Sensitive([]byte(
		`{"auths":{"a":{"auth":"dTpwOnE=","email":"e"},"b":{"username":"n","password":"plain","identitytoken":"token"}}}`)))
	assert.Empty(t, credentials.Sensitive([]byte("x")))
}

func TestMerge(t *testing.T) {
	for _, c := range []struct{ name, existing, add, want string }{
		{"adds and replaces", `{"auths":{"quay.io":{"auth":"old"},"r:5000":{"auth":"old"}},"credHelpers":{"x":"y"}}`,
			`{"auths":{"r:5000":{"auth":"new"}}}`,
			`{"auths":{"quay.io":{"auth":"old"},"r:5000":{"auth":"new"}},"credHelpers":{"x":"y"}}`},
		{"to nothing", ``, `{"auths":{"r:5000":{"auth":"new"}}}`, `{"auths":{"r:5000":{"auth":"new"}}}`},
		{"nothing", `{"auths":{"r:5000":{"auth":"old"}}}`, ``, `{"auths":{"r:5000":{"auth":"old"}}}`},
		{"to null", `null`, `{"auths":{"r":{"auth":"new"}}}`, `{"auths":{"r":{"auth":"new"}}}`},
		{"username and password", ``, `{"auths":{"r.example.com":{"username":"u","password":"p:q","email":"e"}}}`,
			`{"auths":{"r.example.com":{"username":"u","password":"p:q","email":"e","auth":"dTpwOnE="}}}`},
	} {
		got, err := credentials.Merge([]byte(c.existing), []byte(c.add))
		require.NoError(t, err, c.name)
		assert.JSONEq(t, c.want, string(got), c.name)
	}
	_, err := credentials.Merge([]byte(`{"auths": `+canary), nil)
	require.Error(t, err)
	assert.NotContains(t, err.Error(), canary)
}

func TestRemove(t *testing.T) {
	got, err := credentials.Remove([]byte(`{"auths":{"a":{"auth":"x"},"b":{"auth":"y"}},"k":1}`), "a", "none")
	require.NoError(t, err)
	assert.JSONEq(t, `{"auths":{"b":{"auth":"y"}},"k":1}`, string(got))
}

// TestNormalize: Kubernetes takes username and password, programs that pull on a node take auth alone.
func TestNormalize(t *testing.T) {
	const kubernetes, containers = `{"auths":{"r.example.com":{"username":"u","password":"p:q","email":"e"}}}`,
		`{"auths":{"r.example.com":{"username":"u","password":"p:q","email":"e","auth":"dTpwOnE="}}}`
	got, err := credentials.Normalize([]byte(kubernetes))
	require.NoError(t, err)
	assert.JSONEq(t, containers, string(got))
	sys := &types.SystemContext{AuthFilePath: filepath.Join(t.TempDir(), "auth.json")}
	require.NoError(t, credentials.Write(sys.AuthFilePath, got))
	read, err := config.GetCredentials(sys, "r.example.com")
	require.NoError(t, err)
	assert.Equal(t, types.DockerAuthConfig{Username: "u", Password: "p:q"}, read, "as containers/image reads it")
	for _, c := range []struct{ name, content string }{
		{"auth", `{"auths": {"r":  {"auth":"eA=="}}}`},
		{"auth and username", `{"auths":{"r":{"auth":"eA==","username":"u","password":"p"}}}`},
		{"no account", `{"auths":{"r":{}}}`},
		{"empty", ``},
	} {
		got, err := credentials.Normalize([]byte(c.content))
		require.NoError(t, err, c.name)
		assert.Equal(t, c.content, string(got), c.name)
	}
	_, err = credentials.Normalize([]byte(`{"auths": ` + canary))
	require.Error(t, err)
	assert.NotContains(t, err.Error(), canary)
}

func FuzzMerge(f *testing.F) {
	f.Add([]byte(`{"auths":{"a":{"auth":"x"}}}`), []byte(`{"auths":null}`))
	f.Add([]byte(`{"auths":null}`), []byte(`{"auths":{"a":{"auth":"x"}}}`))
	f.Add([]byte(`null`), []byte(`{"auths":{"a":{"auth":"x"}}}`))
	f.Fuzz(func(t *testing.T, a, b []byte) {
		got, err := credentials.Merge(a, b)
		if err != nil {
			return
		}
		_, err = credentials.Parse(got)
		require.NoError(t, err)
		again, err := credentials.Normalize(got)
		require.NoError(t, err)
		assert.Equal(t, got, again, "a merged file is normalized")
	})
}

func FuzzFind(f *testing.F) {
	f.Add([]byte(`{"auths":{"https://index.docker.io/v1/":{"auth":"dTpw"}}}`), "docker.io/acme/os")
	f.Fuzz(func(t *testing.T, raw []byte, repository string) {
		accounts, err := credentials.Parse(raw)
		if err != nil {
			return
		}
		_, found, err := accounts.Find(repository)
		assert.Equal(t, found, credentials.Covers(raw, repository))
		assert.True(t, found || err == nil)
	})
}
