package buildahengine_test

import (
	"os/exec"
	"testing"

	"github.com/stretchr/testify/assert"
)

// TestChildrenEndEarly: a call of the libraries is done before buildah's own package is initialised, which comes with
// hundreds of others.
func TestChildrenEndEarly(t *testing.T) {
	for _, c := range []struct {
		name  string
		early bool
	}{
		{"buildah-copier", true},
		{"chrootuser-open", true},
		{"storage-untar", true},
		{"anything else", false},
	} {
		t.Run(c.name, func(t *testing.T) {
			child := exec.Command("/proc/self/exe")
			child.Args = []string{c.name, "-test.list=^$"}
			child.Env = []string{"GODEBUG=inittrace=1"}
			said, _ := child.CombinedOutput() // without its input it may well fail
			assert.Contains(t, string(said), "init github.com/containers/storage/pkg/reexec @")
			if c.early {
				assert.NotContains(t, string(said), "init github.com/containers/buildah @")
			} else {
				assert.Contains(t, string(said), "init github.com/containers/buildah @")
			}
		})
	}
}
