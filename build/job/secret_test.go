package job_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"dayone.dev/dayone/build/job"
)

func secret(key, text string) *corev1.Secret {
	return &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "push"},
		Data: map[string][]byte{key: []byte(text)}}
}

func TestRegistrySecretsOfEveryFormGiveTheSame(t *testing.T) {
	const want = `{"auths":{"r.example:5000":{"auth":"dTpwYXNzd29yZA=="}}}`
	for name, s := range map[string]*corev1.Secret{
		"today's form": secret(corev1.DockerConfigJsonKey,
			`{"auths":{"r.example:5000":{"auth":"dTpwYXNzd29yZA=="}}}`),
		"user and password": secret(corev1.DockerConfigJsonKey,
			`{"auths":{"r.example:5000":{"username":"u","password":"password","email":"x@y"}},"credHelpers":{}}`),
		"both, as kubectl writes": secret(corev1.DockerConfigJsonKey,
			`{"auths":{"r.example:5000":{"username":"u","password":"password","auth":"dTpwYXNzd29yZA=="}}}`),
		"the old form": secret(corev1.DockerConfigKey,
			`{"r.example:5000":{"auth":"dTpwYXNzd29yZA==","email":"x@y"}}`),
	} {
		got, err := job.Canonical(s)
		require.NoError(t, err, name)
		assert.Equal(t, want, string(got), name)
	}
}

func TestRegistrySecretsThatAreNoneAreNamedAndNotQuoted(t *testing.T) {
	for name, c := range map[string]struct {
		secret *corev1.Secret
		want   string
	}{
		"no Secret":   {nil, "there is none"},
		"another key": {secret("token", canary), "ns/push: it has neither key .dockerconfigjson nor key .dockercfg"},
		"no JSON": {secret(corev1.DockerConfigJsonKey, canary),
			"key .dockerconfigjson is not in auth.json form"},
		"no JSON, old": {secret(corev1.DockerConfigKey, canary), "key .dockercfg is not in dockercfg form"},
		"no entries":   {secret(corev1.DockerConfigJsonKey, `{"auths":{}}`), "no credentials"},
		"no base64": {secret(corev1.DockerConfigJsonKey, `{"auths":{"r.example":{"auth":"%%%`+canary+`"}}}`),
			"entry r.example"},
		"an entry of nothing": {secret(corev1.DockerConfigJsonKey, `{"auths":{"r.example":{}}}`),
			"neither auth nor username"},
		"base64 without colon": {secret(corev1.DockerConfigJsonKey, `{"auths":{"r.example":{"auth":"Y2FuYXJ5"}}}`),
			"USER:PASSWORD"},
	} {
		_, err := job.Canonical(c.secret)
		require.ErrorContains(t, err, c.want, name)
		assert.NotContains(t, err.Error(), canary)
	}
}

func TestPushAndPullCredentialsOfOneRegistryStayApart(t *testing.T) {
	const pull, push = `{"auths":{"https://quay.example/":{"auth":"pull"},"other.example":{"auth":"other"}}}`,
		`{"auths":{"quay.example":{"auth":"push"},"third.example/a":{"auth":"third"}}}`
	got, err := job.MergeAuth([]byte(pull), []byte(push), "quay.example/me/os")
	require.NoError(t, err)
	assert.JSONEq(t,
		`{"auths":{"quay.example":{"auth":"pull"},"quay.example/me/os":{"auth":"push"},"other.example":{"auth":"other"},"third.example/a":{"auth":"third"}}}`, string(got))
	got, err = job.MergeAuth(nil, []byte(push), "third.example/a/b")
	require.NoError(t, err)
	assert.JSONEq(t,
		`{"auths":{"quay.example":{"auth":"push"},"third.example/a":{"auth":"third"},"third.example/a/b":{"auth":"third"}}}`,
		string(got))
	_, err = job.MergeAuth([]byte(pull), []byte(push), "other.example/a")
	assert.ErrorContains(t, err, "no entry for other.example; add one to the push Secret")
	_, err = job.MergeAuth([]byte(canary), []byte(push), "quay.example/a")
	require.Error(t, err)
	assert.NotContains(t, err.Error(), canary)
}

func TestCredentialsOfDockerHubAreMergedUnderTheNameThatBuildsUse(t *testing.T) {
	for _, key := range []string{"docker.io", "index.docker.io/v1", "https://index.docker.io/v1/",
		"registry-1.docker.io"} {
		for _, target := range []string{"docker.io/acme/os", "index.docker.io/acme/os"} {
			got, err := job.MergeAuth([]byte(`{"auths":{"https://index.docker.io/v1/":{"auth":"pull"}}}`),
				[]byte(`{"auths":{"`+key+`":{"auth":"push"}}}`), target)
			require.NoError(t, err, key)
			assert.JSONEq(t, `{"auths":{"docker.io":{"auth":"pull"},"docker.io/acme/os":{"auth":"push"}}}`, string(got), key)
		}
		got, err := job.AuthFor([]byte(`{"auths":{"`+key+`":{"auth":"push"}}}`), "docker.io/acme/os", "localhost:5000")
		require.NoError(t, err, key)
		assert.JSONEq(t, `{"auths":{"localhost:5000":{"auth":"push"}}}`, string(got), key)
	}
}

func FuzzCanonical(f *testing.F) {
	f.Add([]byte(`{"auths":{"a":{"auth":"dTpw"}}}`))
	f.Fuzz(func(t *testing.T, raw []byte) {
		got, err := job.Canonical(&corev1.Secret{Data: map[string][]byte{corev1.DockerConfigJsonKey: raw}})
		if err != nil {
			return
		}
		again, err := job.Canonical(&corev1.Secret{Data: map[string][]byte{corev1.DockerConfigJsonKey: got}})
		require.NoError(t, err)
		assert.Equal(t, got, again)
	})
}
