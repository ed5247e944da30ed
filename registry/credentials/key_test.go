package credentials

import (
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestKey(t *testing.T) {
	for _, c := range []struct{ name, want string }{
		{"quay.io", "quay.io"},
		{"quay.io/acme/os", "quay.io/acme/os"},
		{"registry.example:5000/a", "registry.example:5000/a"},
		{"https://quay.io/", "quay.io"},
		{"http://quay.io/acme", "quay.io/acme"},
		{"https://quay.io/v1/", "quay.io"},
		{"https://quay.io/v2", "quay.io"},
		{"quay.io/v1", "quay.io/v1"},
		{"docker.io", "docker.io"},
		{"docker.io/acme/os", "docker.io/acme/os"},
		{"index.docker.io", "docker.io"},
		{"index.docker.io/v1", "docker.io"},
		{"index.docker.io/acme/os", "docker.io/acme/os"},
		{"https://index.docker.io/v1/", "docker.io"},
		{"registry-1.docker.io", "docker.io"},
		{"https://registry-1.docker.io/v2/", "docker.io"},
		{"my.docker.io", "my.docker.io"},
		{"mirror.example/docker.io/library/os", "mirror.example/docker.io/library/os"},
		{"", ""},
	} {
		assert.Equal(t, c.want, canonicalKey(c.name), c.name)
		assert.Equal(t, c.want, canonicalKey(c.want), "of the form itself: %s", c.name)
	}
}
