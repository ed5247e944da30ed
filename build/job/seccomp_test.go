package job_test

import (
	"encoding/json"
	"slices"
	"testing"

	specs "github.com/opencontainers/runtime-spec/specs-go"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"dayone.dev/dayone/build/job"
)

func TestSeccompProfile(t *testing.T) {
	var profile specs.LinuxSeccomp
	require.NoError(t, json.Unmarshal(job.SeccompProfile(), &profile))
	require.Len(t, profile.Syscalls, 1)
	names := profile.Syscalls[0].Names
	assert.True(t, slices.IsSorted(names))
	for _, needed := range []string{"clone", "clone3", "unshare", "mount", "umount2", "pivot_root", "setns", "chroot",
		"sethostname"} {
		assert.NotContains(t, names, needed)
	}
	for _, forbidden := range []string{"bpf", "init_module", "keyctl", "open_by_handle_at", "ptrace", "userfaultfd"} {
		assert.Contains(t, names, forbidden)
	}
}
