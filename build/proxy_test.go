package build_test

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"dayone.dev/dayone/build"
)

func TestProxies(t *testing.T) {
	assert.Empty(t, build.Proxies("", "", ".svc"), "names that need no proxy are nothing without one")
	both := map[string]string{"https_proxy": "http://p:1", "HTTPS_PROXY": "http://p:1", "no_proxy": ".svc",
		"NO_PROXY": ".svc"}
	assert.Equal(t, both, build.Proxies("", "http://p:1", ".svc"))
	assert.Equal(t, both, build.HostProxies([]string{"PATH=/bin", "HTTPS_PROXY=http://other:1", "https_proxy=http://p:1",
		"NO_PROXY=.svc", "http_proxy="}))
	assert.Empty(t, build.HostProxies([]string{"PATH=/bin"}))
	assert.Equal(t, []string{"bWU6cGFzcy93b3JkMQ==", "pass%2Fword1", "pass/word1"},
		build.ProxySecrets(build.Proxies("http://me:pass%2Fword1@p:1/", "", "localhost")))
	assert.Empty(t, build.ProxySecrets(build.Proxies("http://p:1/a@b", "p:1", "")))
}
