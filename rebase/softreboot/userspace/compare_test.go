package userspace

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"

	"dayone.dev/dayone/manifests/postconfig"
)

// What the nodes compare below /etc, and what owners of MachineConfigs may not ask a soft reboot for, is the same,
// under the same names.
func TestOwnersFilesOfTheKernel(t *testing.T) {
	for _, p := range parts {
		for _, pattern := range p.patterns {
			if name, found := strings.CutPrefix(pattern, "usr/etc/"); found {
				assert.Equal(t, p.name, postconfig.OfKernel("/etc/"+strings.ReplaceAll(name, "*", "x")), pattern)
			}
		}
	}
	for _, file := range []string{"/etc/app.conf", "/etc/sysctl.d", "/usr/lib/sysctl.d/x", "/etc/sysctl.d/x/y"} {
		assert.Empty(t, postconfig.OfKernel(file), file)
	}
	assert.NotEmpty(t, postconfig.OfKernel("/etc//sysctl.d/./x.conf"))
}
