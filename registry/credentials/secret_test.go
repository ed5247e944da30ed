package credentials_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"dayone.dev/dayone/registry/credentials"
)

func data(key, text string) map[string][]byte { return map[string][]byte{key: []byte(text)} }

func TestCanonical(t *testing.T) {
	for _, c := range []struct {
		name string
		data map[string][]byte
	}{
		{"today's form", data(".dockerconfigjson", `{"auths":{"r.example:5000":{"auth":"dTpwYXNzd29yZA=="}}}`)},
		{"user and password", data(".dockerconfigjson",
			`{"auths":{"r.example:5000":{"username":"u","password":"password","email":"x@y"}},"credHelpers":{}}`)},
		{"both, as kubectl writes", data(".dockerconfigjson",
			`{"auths":{"r.example:5000":{"username":"u","password":"password","auth":"dTpwYXNzd29yZA=="}}}`)},
		{"the old form", data(".dockercfg", `{"r.example:5000":{"auth":"dTpwYXNzd29yZA==","email":"x@y"}}`)},
	} {
		got, err := credentials.Canonical(c.data)
		require.NoError(t, err, c.name)
		assert.Equal(t, `{"auths":{"r.example:5000":{"auth":"dTpwYXNzd29yZA=="}}}`, string(got), c.name)
	}
}

func TestCanonicalRefuses(t *testing.T) {
	for _, c := range []struct {
		name string
		data map[string][]byte
		want string
	}{
		{"no data", nil, "it has neither key .dockerconfigjson nor key .dockercfg"},
		{"another key", data("token", canary), "it has neither key .dockerconfigjson nor key .dockercfg"},
		{"no JSON", data(".dockerconfigjson", canary), "key .dockerconfigjson is not in auth.json form"},
		{"no JSON, old", data(".dockercfg", canary), "key .dockercfg is not in dockercfg form"},
		{"no entries", data(".dockerconfigjson", `{"auths":{}}`), "no credentials"},
		{"no base64", data(".dockerconfigjson", `{"auths":{"r.example":{"auth":"%%%`+canary+`"}}}`), "entry r.example"},
		{"empty entry", data(".dockerconfigjson", `{"auths":{"r.example":{}}}`), "neither auth nor username"},
		{"no colon", data(".dockerconfigjson", `{"auths":{"r.example":{"auth":"Y2FuYXJ5"}}}`), "USER:PASSWORD"},
	} {
		_, err := credentials.Canonical(c.data)
		require.ErrorContains(t, err, c.want, c.name)
		assert.NotContains(t, err.Error(), canary, c.name)
	}
}

func TestCheck(t *testing.T) {
	for _, c := range []struct{ name, entry, want string }{
		{"an account", `{"auth":"dTpwYXNzd29yZA=="}`, ""},
		{"user and password", `{"username":"u","password":"p"}`, ""},
		{"an identity token", `{"auth":"dTo=","identitytoken":"x"}`, ""},
		{"a registry token", `{"registrytoken":"x"}`, ""},
		{"no base64", `{"auth":"%%%` + canary + `"}`, "entry r.example: auth is not USER:PASSWORD"},
		{"no colon", `{"auth":"Y2FuYXJ5"}`, "USER:PASSWORD"},
		{"no user", `{"auth":"OnBhc3M="}`, "USER:PASSWORD"},
		{"an empty auth", `{"auth":""}`, "neither auth nor username"},
		{"another key", `{"atuh":"dTpwYXNzd29yZA=="}`, "neither auth nor username"},
		{"no object", `"` + canary + `"`, "auth.json form"},
	} {
		err := credentials.Check([]byte(`{"auths":{"r.example":` + c.entry + `}}`))
		if c.want == "" {
			require.NoError(t, err, c.name)
			continue
		}
		require.ErrorContains(t, err, c.want, c.name)
		assert.NotContains(t, err.Error(), canary, c.name)
	}
	require.ErrorContains(t, credentials.Check([]byte(`{"auts":{}}`)), "no entry")
	require.Error(t, credentials.Check([]byte("none")))
}

func TestForPush(t *testing.T) {
	const pull, push = `{"auths":{"https://quay.example/":{"auth":"pull"},"other.example":{"auth":"other"}}}`,
		`{"auths":{"quay.example":{"auth":"push"},"third.example/a":{"auth":"third"}}}`
	got, err := credentials.ForPush([]byte(pull), []byte(push), "quay.example/me/os")
	require.NoError(t, err)
	assert.JSONEq(t, `{"auths":{"quay.example":{"auth":"pull"},"quay.example/me/os":{"auth":"push"},
		"other.example":{"auth":"other"},"third.example/a":{"auth":"third"}}}`, string(got))
	got, err = credentials.ForPush(nil, []byte(push), "third.example/a/b")
	require.NoError(t, err)
	assert.JSONEq(t, `{"auths":{"quay.example":{"auth":"push"},"third.example/a":{"auth":"third"},
		"third.example/a/b":{"auth":"third"}}}`, string(got))
	_, err = credentials.ForPush([]byte(pull), []byte(push), "other.example/a")
	require.ErrorContains(t, err, "no entry for other.example; add one to the push Secret")
	for _, c := range [][2]string{{canary, push}, {pull, canary}} {
		_, err = credentials.ForPush([]byte(c[0]), []byte(c[1]), "quay.example/a")
		require.Error(t, err)
		assert.NotContains(t, err.Error(), canary)
	}
}

func TestDockerHubNames(t *testing.T) {
	for _, key := range []string{"docker.io", "index.docker.io/v1", "https://index.docker.io/v1/",
		"registry-1.docker.io"} {
		push := []byte(`{"auths":{"` + key + `":{"auth":"push"}}}`)
		for _, target := range []string{"docker.io/acme/os", "index.docker.io/acme/os"} {
			got, err := credentials.ForPush([]byte(`{"auths":{"https://index.docker.io/v1/":{"auth":"pull"}}}`), push, target)
			require.NoError(t, err, key)
			assert.JSONEq(t, `{"auths":{"docker.io":{"auth":"pull"},"docker.io/acme/os":{"auth":"push"}}}`, string(got), key)
		}
		got, err := credentials.ForName(push, "docker.io/acme/os", "localhost:5000")
		require.NoError(t, err, key)
		assert.JSONEq(t, `{"auths":{"localhost:5000":{"auth":"push"}}}`, string(got), key)
	}
}

func TestFromOldForm(t *testing.T) {
	for _, c := range []struct{ name, in, want string }{
		{"old", `{"r:5000":{"auth":"x"}}`, `{"auths":{"r:5000":{"auth":"x"}}}`},
		{"today's", `{"auths": {}}`, `{"auths": {}}`},
		{"no host", `{}`, `{}`},
		{"nothing", " ", ""},
	} {
		got, err := credentials.FromOldForm([]byte(c.in))
		require.NoError(t, err, c.name)
		assert.Equal(t, c.want, string(got), c.name)
	}
	_, err := credentials.FromOldForm([]byte(canary))
	require.Error(t, err)
	assert.NotContains(t, err.Error(), canary)
}

func FuzzCanonical(f *testing.F) {
	f.Add([]byte(`{"auths":{"a":{"auth":"dTpw"}}}`))
	f.Fuzz(func(t *testing.T, raw []byte) {
		got, err := credentials.Canonical(map[string][]byte{".dockerconfigjson": raw})
		if err != nil {
			return
		}
		again, err := credentials.Canonical(map[string][]byte{".dockerconfigjson": got})
		require.NoError(t, err)
		assert.Equal(t, got, again)
	})
}
