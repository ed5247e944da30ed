package hostfiles_test

import (
	"os"
	"path/filepath"
	"testing"

	ign35 "github.com/coreos/ignition/v2/config/v3_5/types"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"dayone.dev/dayone/rebase/daemon/hostfiles"
)

func TestUnitsThatAreNotEnabledAreSaid(t *testing.T) {
	h := hostfiles.Host{Root: t.TempDir()}
	const wanted = "[Service]\nExecStart=/bin/a\n[Install]\nWantedBy=multi-user.target\n"
	unit := func(name, text string, enabled bool) ign35.Unit {
		return ign35.Unit{Name: name, Contents: &text, Enabled: &enabled}
	}
	c := ign35.Config{Systemd: ign35.Systemd{Units: []ign35.Unit{unit("linked.service", wanted, true),
		unit("vendor@.service", wanted, true), unit("lost.service", wanted, true),
		unit("off.service", wanted, false), unit("static.service", "[Service]\nExecStart=/bin/a\n# [Install]\n", true),
		{Name: "stock.service", Enabled: new(true)}}}}
	for _, u := range c.Systemd.Units {
		if u.Contents != nil {
			write(t, h.Root, "/etc/systemd/system/"+u.Name, *u.Contents)
			require.NoError(t, os.Chmod(filepath.Join(h.Root, "/etc/systemd/system", u.Name), 0o644))
		}
	}
	link := func(at, text string) {
		require.NoError(t, os.MkdirAll(filepath.Dir(filepath.Join(h.Root, at)), 0o755))
		require.NoError(t, os.Symlink(text, filepath.Join(h.Root, at)))
	}
	link("/etc/systemd/system/multi-user.target.wants/linked.service", "//etc/systemd/system/linked.service")
	link("/usr/lib/systemd/system/multi-user.target.wants/vendor@one.service", "../vendor@.service")
	mismatches, err := h.Verify(c)
	require.NoError(t, err)
	if os.Getuid() != 0 { // the files are the test's, not root's
		return
	}
	assert.Equal(t, []hostfiles.Mismatch{{Path: "/etc/systemd/system/lost.service", Why: hostfiles.NotEnabled}},
		mismatches)
}
