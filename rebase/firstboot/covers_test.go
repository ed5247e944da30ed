package firstboot

import (
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestCredentialsCoverARepository(t *testing.T) {
	for name, c := range map[string]struct {
		auths string
		want  bool
	}{
		"the host":                    {`{"auths":{"r.example.com:5000":{"auth":"x"}}}`, true},
		"the host as a URL":           {`{"auths":{"https://r.example.com:5000/v1/":{"auth":"x"}}}`, true},
		"the namespace":               {`{"auths":{"r.example.com:5000/ocp":{"auth":"x"}}}`, true},
		"the repository":              {`{"auths":{"r.example.com:5000/ocp/master-os":{"auth":"x"}}}`, true},
		"another port":                {`{"auths":{"r.example.com":{"auth":"x"}}}`, false},
		"another namespace":           {`{"auths":{"r.example.com:5000/oc":{"auth":"x"}}}`, false},
		"another repository below it": {`{"auths":{"r.example.com:5000/ocp/master-os/x":{"auth":"x"}}}`, false},
		"another host":                {`{"auths":{"quay.io":{"auth":"x"}}}`, false},
		"none":                        {`{"auths":{"":{}}}`, false},
	} {
		t.Run(name, func(t *testing.T) {
			assert.Equal(t, c.want, AuthCovers([]byte(c.auths), "r.example.com:5000/ocp/master-os"))
		})
	}
}

func TestDockerHubsCredentialsCoverItUnderEachOfItsNames(t *testing.T) {
	for _, auths := range []string{`{"auths":{"docker.io":{"auth":"x"}}}`,
		`{"auths":{"https://index.docker.io/v1/":{"auth":"x"}}}`, `{"auths":{"registry-1.docker.io":{"auth":"x"}}}`} {
		assert.True(t, AuthCovers([]byte(auths), "docker.io/acme/os"), auths)
		assert.False(t, AuthCovers([]byte(auths), "quay.io/acme/os"), auths)
	}
}
