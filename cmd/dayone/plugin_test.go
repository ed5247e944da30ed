package main

import (
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	builder "dayone.dev/dayone/hack/program"
)

// TestThePluginForDarwin lists what kubectl dayone links there: nothing that only Linux can do.
func TestThePluginForDarwin(t *testing.T) {
	list := exec.CommandContext(t.Context(), "go", "list", "-tags=containers_image_openpgp", "-deps", ".")
	list.Env = append(os.Environ(), "GOOS=darwin", "CGO_ENABLED=0")
	out, err := list.Output()
	require.NoError(t, err)
	linked := strings.Fields(string(out))
	assert.Contains(t, linked, "dayone.dev/dayone/cmd/dayone/cluster")
	for _, host := range []string{"build/buildahengine", "bootstrap/standalone", "rebase/firstboot", "rebase/deploy/pull",
		"rebase/deploy/host"} {
		assert.NotContains(t, linked, "dayone.dev/dayone/"+host)
	}
}

// TestNoControllersInCommands keeps out what a manager of controllers brings: all typed clients and informers.
func TestNoControllersInCommands(t *testing.T) {
	out, err := exec.CommandContext(t.Context(), "go", "list", "-tags="+builder.Tags, "-deps", ".").Output()
	require.NoError(t, err)
	for _, dep := range strings.Fields(string(out)) {
		for _, banned := range []string{"sigs.k8s.io/controller-runtime/pkg/manager", "k8s.io/client-go/informers"} {
			assert.NotEqual(t, banned, dep)
		}
		assert.NotEqual(t, "k8s.io/client-go/kubernetes", dep)
	}
}
