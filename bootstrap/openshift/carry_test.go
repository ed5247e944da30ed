package openshift_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/opencontainers/go-digest"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"dayone.dev/dayone/bootstrap/handover"
	"dayone.dev/dayone/bootstrap/openshift"
)

// TestCarry brings a registry to a disk, also where an earlier run was cut off, and refuses what would leave the first
// boot without it.
func TestCarry(t *testing.T) {
	content := "a blob"
	d := digest.FromString(content).Encoded()
	name := filepath.Join("registry/docker/registry/v2/blobs/sha256", d[:2], d, "data")
	for _, c := range []struct {
		name                  string
		blob, ignition, wrong string
		unready               bool
		systems               []string
		cutOff                bool
	}{
		{name: "all is well"},
		{name: "cut off before", cutOff: true},
		{name: "not built", unready: true, wrong: "not built yet"},
		{name: "a damaged blob", blob: "b blob", wrong: "is damaged"},
		{name: "var on its own", ignition: `{"storage":{"filesystems":[{"path":"/var"}]}}`, wrong: "would hide the images"},
		{name: "lib on its own", ignition: `{"storage":{"filesystems":[{"path":"/var/lib/"}]}}`, wrong: "would hide"},
		{name: "containers on their own", ignition: `{"storage":{"filesystems":[{"path":"/var/lib/containers"},{"path":"/"}]}}`},
		{name: "no config", ignition: "{", wrong: "read the disk's Ignition config"},
		{name: "two systems", systems: []string{"a", "b"}, wrong: "2 operating systems"},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := t.TempDir()
			write := func(file, text string) string {
				full := filepath.Join(dir, file)
				require.NoError(t, os.MkdirAll(filepath.Dir(full), 0o755))
				require.NoError(t, os.WriteFile(full, []byte(text), 0o600))
				return full
			}
			if c.blob == "" {
				c.blob = content
			}
			if c.ignition == "" {
				c.ignition = `{"ignition":{"version":"3.2.0"}}`
			}
			if c.systems == nil {
				c.systems = []string{"rhcos"}
			}
			write("state/"+name, c.blob)
			state := filepath.Join(dir, "state")
			if !c.unready {
				require.NoError(t, handover.Mark{Time: time.Now()}.Write(state))
			}
			for _, s := range c.systems {
				require.NoError(t, os.MkdirAll(filepath.Join(dir, "disk/ostree/deploy", s, "var"), 0o755))
			}
			target := filepath.Join(dir, "disk/ostree/deploy/rhcos/var")
			if c.cutOff {
				write("disk/ostree/deploy/rhcos/var/lib/dayone/registry.new/half", "x")
				write("disk/ostree/deploy/rhcos/var/lib/dayone/registry/old", "x")
			}
			err := openshift.Carry(t.Context(), openshift.Disk{StateDir: state, Root: filepath.Join(dir, "disk"),
				Ignition: write("master.ign", c.ignition), Program: write("dayone-registry", "program")})
			there := filepath.Join(target, "lib/dayone", name)
			if c.wrong != "" {
				require.ErrorContains(t, err, c.wrong)
				assert.NoFileExists(t, there)
				return
			}
			require.NoError(t, err)
			raw, err := os.ReadFile(there)
			require.NoError(t, err)
			assert.Equal(t, content, string(raw))
			info, err := os.Stat(filepath.Join(target, "usrlocal/bin/dayone-registry"))
			require.NoError(t, err)
			assert.Equal(t, os.FileMode(0o755), info.Mode().Perm())
			entries, err := os.ReadDir(filepath.Join(target, "lib/dayone"))
			require.NoError(t, err)
			require.Len(t, entries, 1, "nothing of an earlier run")
			require.NoError(t, filepath.WalkDir(target, func(p string, _ os.DirEntry, err error) error {
				assert.False(t, strings.Contains(p, "identity"), p)
				return err
			}))
		})
	}
}
