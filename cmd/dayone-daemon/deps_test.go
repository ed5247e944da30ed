package main

import (
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestAgentLinksNoBuilderAndNoRegistry(t *testing.T) {
	list := exec.CommandContext(t.Context(), "go", "list", "-tags=containers_image_openpgp", "-deps", ".")
	list.Env = append(os.Environ(), "CGO_ENABLED=0")
	out, err := list.Output()
	require.NoError(t, err)
	for _, dep := range strings.Fields(string(out)) {
		if slices.Contains([]string{"certs", "credentials", "dial", "forwarder", "imagepolicy", "peers", "places",
			"poolaccounts", "quiet", "route", "wanted"},
			strings.TrimPrefix(dep, "dayone.dev/dayone/registry/")) { // files, names and a client, without a registry
			continue
		}
		for _, banned := range []string{"github.com/containers/buildah", "github.com/containers/storage/drivers",
			"github.com/distribution/distribution/",
			"k8s.io/client-go/kubernetes", "k8s.io/client-go/informers", "sigs.k8s.io/controller-runtime",
			"github.com/prometheus",
			"dayone.dev/dayone/build", "dayone.dev/dayone/registry", "testing"} {
			assert.False(t, dep == banned || strings.HasPrefix(dep, strings.TrimSuffix(banned, "/")+"/"), "%s is linked", dep)
		}
		assert.NotEqual(t, "github.com/containers/storage", dep, "the library itself, with its drivers")
	}
}

func TestCommandsSayWhatTheyWant(t *testing.T) {
	for _, args := range [][]string{{"stage"}, {"stage", "host/os:tag"}, {"firstboot", "extra"}, {"nothing"},
		{"end-trust"}, {"add-auth"}, {"add-auth", "/nowhere"},
		{"start", "extra"}, {"start", "--log-level", "loud"}, {"start", "--root", "/nowhere"}} {
		c := newCommand(version)
		c.SetArgs(args)
		c.SetOut(new(strings.Builder))
		c.SetErr(new(strings.Builder))
		require.Error(t, c.ExecuteContext(t.Context()), args)
	}
}
