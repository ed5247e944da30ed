package registryauth_test

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"dayone.dev/dayone/manifests/registryauth"
)

func TestKey(t *testing.T) {
	for key, want := range map[string]string{
		"quay.io":                             "quay.io",
		"quay.io/acme/os":                     "quay.io/acme/os",
		"registry.example:5000/a":             "registry.example:5000/a",
		"https://quay.io/":                    "quay.io",
		"http://quay.io/acme":                 "quay.io/acme",
		"https://quay.io/v1/":                 "quay.io",
		"https://quay.io/v2":                  "quay.io",
		"quay.io/v1":                          "quay.io/v1",
		"docker.io":                           "docker.io",
		"docker.io/acme/os":                   "docker.io/acme/os",
		"index.docker.io":                     "docker.io",
		"index.docker.io/v1":                  "docker.io",
		"index.docker.io/acme/os":             "docker.io/acme/os",
		"https://index.docker.io/v1/":         "docker.io",
		"registry-1.docker.io":                "docker.io",
		"https://registry-1.docker.io/v2/":    "docker.io",
		"my.docker.io":                        "my.docker.io",
		"mirror.example/docker.io/library/os": "mirror.example/docker.io/library/os",
		"":                                    "",
	} {
		assert.Equal(t, want, registryauth.Key(key), key)
		assert.Equal(t, want, registryauth.Key(want), "the form is its own: %s", key)
	}
}

func TestFind(t *testing.T) {
	entries := registryauth.ByKey(map[string]string{
		"https://index.docker.io/v1/": "login", "docker.io": "podman", "registry-1.docker.io": "host",
		"index.docker.io/acme": "acme",
		"https://quay.io":      "url", "http://quay.io": "plain",
	})
	for repository, want := range map[string]string{
		"docker.io/library/os": "podman", "index.docker.io/library/os": "podman", "index.docker.io/acme/os": "acme",
		"docker.io/acme":     "acme",
		"docker.io/acmes/os": "podman", "quay.io/a": "plain", "other.example/docker.io": "",
	} {
		got, found := registryauth.Find(entries, repository)
		assert.Equal(t, want, got, repository)
		assert.Equal(t, want != "", found, repository)
	}
}
