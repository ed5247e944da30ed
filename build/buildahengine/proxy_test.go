package buildahengine_test

import (
	"os"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"dayone.dev/dayone/build"
	"dayone.dev/dayone/build/buildahengine"
)

func TestProxyReachesRunOnly(t *testing.T) {
	const password = "canary-9f8e7d6c"
	for _, isolation := range []string{buildahengine.IsolationChroot, buildahengine.IsolationAuto} {
		t.Run(isolation, func(t *testing.T) {
			b := newBench(t, buildahengine.Options{Isolation: isolation})
			text := "FROM configs\nRUN echo \"$http_proxy $HTTPS_PROXY\" && test \"$no_proxy\" = .svc,127.0.0.1\n"
			r := b.request(text)
			r.Options.ProxyEnvironment = build.Proxies("http://me:"+password+"@proxy.example:3128", "http://proxy.example:3129",
				".svc,127.0.0.1")
			want, err := b.request(text).Address()
			require.NoError(t, err)
			got, err := r.Address()
			require.NoError(t, err)
			assert.Equal(t, want, got, "the way to the network is no content")
			result, err := b.builder.Build(t.Context(), r)
			require.NoError(t, err)
			log, err := os.ReadFile(result.Log)
			require.NoError(t, err)
			assert.Contains(t, string(log), "http://me:*****@proxy.example:3128 http://proxy.example:3129\n")
			assert.NotContains(t, string(log), password)
			digest, err := name.NewDigest(result.Reference)
			require.NoError(t, err)
			image, err := remote.Image(digest, remote.WithTransport(b.reg.Transport(t)),
				remote.WithAuth(&authn.Basic{Username: b.reg.Pull.Name, Password: b.reg.Pull.Password}))
			require.NoError(t, err)
			config, err := image.RawConfigFile()
			require.NoError(t, err)
			assert.NotContains(t, strings.ToLower(string(config)), "proxy.example", "neither environment nor history has it")
			assert.NotContains(t, string(config), password)
			b.clean()
		})
	}
}
