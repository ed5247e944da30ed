package buildpod

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/elastic/go-seccomp-bpf/arch"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"
)

// The filter forbids the same calls to programs of 64 and of 32 bits, and lets through what a build needs.
func TestSeccompFilter(t *testing.T) {
	const allow, eperm, enosys = unix.SECCOMP_RET_ALLOW, unix.SECCOMP_RET_ERRNO | int(unix.EPERM),
		unix.SECCOMP_RET_ERRNO | int(unix.ENOSYS)
	for goarch, abis := range map[string][]*arch.Info{"amd64": {arch.X86_64, arch.I386},
		"arm64": {arch.AARCH64, arch.ARM}} {
		raw, err := seccompFilter(goarch)
		require.NoError(t, err)
		program, all := bpf.Disassemble(raw)
		require.True(t, all)
		vm, err := bpf.NewVM(program)
		require.NoError(t, err)
		says := func(abi uint32, call int) int {
			data := binary.BigEndian.AppendUint32(binary.BigEndian.AppendUint32(nil, uint32(call)), abi)
			verdict, err := vm.Run(data)
			require.NoError(t, err)
			return verdict
		}
		for _, abi := range abis {
			for call, want := range map[string]int{"read": allow, "clone": allow, "unshare": allow, "mount": allow,
				"pivot_root": allow, "setns": allow, "bpf": eperm, "init_module": eperm, "keyctl": eperm, "ptrace": eperm,
				"acct": eperm, "userfaultfd": eperm, "io_uring_setup": eperm} {
				number, has := abi.SyscallNames[call]
				require.True(t, has, call)
				assert.Equal(t, want, says(uint32(abi.ID), number), "%s of %s", call, abi.Name)
			}
			assert.Equal(t, eperm, says(uint32(abi.ID), firstX32), "the ABI x32 is no way round")
		}
		assert.Equal(t, enosys, says(1, 0), "an architecture that this kernel does not have")
	}
	_, err := seccompFilter("s390x")
	require.ErrorContains(t, err, "the system calls of s390x are not known")
}

// What a process starts after it confined itself is confined, and its own other threads are.
func TestConfine(t *testing.T) {
	const asked = "DAYONE_TEST_CONFINE"
	if os.Getenv(asked) != "" {
		if err := confine(); err != nil {
			fmt.Println(err)
			return
		}
		errno := make(chan error)
		go func() { errno <- unix.Acct("") }()
		fmt.Println("acct:", errors.Is(<-errno, unix.EPERM))
		out, err := exec.Command("grep", "Seccomp:", "/proc/self/status").Output()
		fmt.Println(string(out), err)
		return
	}
	if os.Geteuid() != 0 {
		if os.Getenv("CI") != "" {
			t.Fatal("setting a seccomp filter needs root")
		}
		t.Skip("setting a seccomp filter needs root")
	}
	cmd := exec.Command("/proc/self/exe", "-test.run=^TestConfine$", "-test.v")
	cmd.Env = append(os.Environ(), asked+"=1")
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, string(out))
	assert.Contains(t, string(out), "acct: true")
	assert.Contains(t, strings.Join(strings.Fields(string(out)), " "), "Seccomp: 2 <nil>")
}
