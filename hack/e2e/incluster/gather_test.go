package incluster_test

import (
	"path/filepath"
	"strings"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"dayone.dev/dayone/bootstrap/gather/analyze"
	"dayone.dev/dayone/bootstrap/gather/bundle"
	"dayone.dev/dayone/manifests/assets/cluster"
)

// gathered has the administrator gather the cluster while a build has failed: the pods' logs come through a real
// kubelet, and the registry's passwords stay out.
func (w *world) gathered() {
	t, dir := w.t, w.t.TempDir()
	w.dayone("gather", "--cluster", "--out", dir, "--id", "incluster")
	b, err := bundle.Open(filepath.Join(dir, "log-bundle-incluster.tar.gz"))
	require.NoError(t, err)
	assert.Empty(t, b.Damage)
	logs := map[string]bool{}
	for _, f := range b.Below("pods") {
		name := strings.Split(f.Name, "/")[1]
		for _, program := range []string{cluster.Builder, "dayone-controller", "build-"} {
			if strings.HasPrefix(name, program) && len(f.Content) > 0 {
				logs[program] = true
			}
		}
	}
	assert.True(t, logs[cluster.Builder] && logs["dayone-controller"], "%v", b.Names())
	for _, kind := range []string{"nodes", "pods", "deployments", "machineosconfigs", "machineosbuilds",
		"machineconfigs"} {
		require.NotNil(t, b.Get("resources/"+kind+".json"), kind)
	}
	for _, name := range b.Names() {
		for _, secret := range []string{w.reg.Push.Password, w.reg.Pull.Password} {
			assert.NotContains(t, string(b.Get(name).Content), secret, name)
		}
	}
	v := analyze.Bundle(b).Verdict
	assert.Equal(t, analyze.StatusDegraded, v.Status, "%+v", v)
	assert.Equal(t, "machineosconfig worker", v.Phase)
	assert.Equal(t, "containerfile", v.Cause)
	assert.Positive(t, v.Evidence.Line)
}
