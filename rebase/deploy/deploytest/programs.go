package deploytest

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// Script plays a host program: it answers by command line and notes what was asked. An answer that begins with "error:
// " is a failure.
type Script struct {
	Answers map[string]string
	Calls   []string
}

// Run answers a command line.
func (s *Script) Run(_ context.Context, name string, args ...string) ([]byte, error) {
	call := strings.Join(append([]string{name}, args...), " ")
	s.Calls = append(s.Calls, call)
	if answer, ok := s.Answers[call]; ok {
		if text, bad := strings.CutPrefix(answer, "error: "); bad {
			return nil, errors.New(text)
		}
		return []byte(answer), nil
	}
	return nil, nil
}

// Host makes a root with a kernel command line.
func Host(t testing.TB, cmdline string) string {
	t.Helper()
	root := t.TempDir()
	for _, dir := range []string{"proc", "run"} {
		require.NoError(t, os.Mkdir(filepath.Join(root, dir), 0o755))
	}
	require.NoError(t, os.WriteFile(filepath.Join(root, "proc/cmdline"), []byte(cmdline+"\n"), 0o644))
	require.NoError(t, os.WriteFile(filepath.Join(root, "run/ostree-booted"), nil, 0o644))
	return root
}

// Commits of the tests.
const (
	CommitA = "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"
	CommitB = "bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb"
)

// RPMOSTreeStatus is how rpm-ostree is asked for its status.
const RPMOSTreeStatus = "rpm-ostree status --json"

// RPMOSTreeDeployment is one deployment in its answer.
func RPMOSTreeDeployment(image, flags string) string {
	return `{"id":"x","osname":"rhcos","serial":0,"checksum":"` + CommitA + `","version":"9.6",` + flags +
		`"container-image-reference":"ostree-unverified-registry:` + image + `","container-image-reference-digest":"` +
		image[strings.Index(image, "@")+1:] + `","unknown":1}`
}

// RPMOSTreeHost is the answer.
func RPMOSTreeHost(deployments ...string) string {
	return `{"deployments":[` + strings.Join(deployments, ",") + `],"transaction":null,"cached-update":null}`
}

// BootcStatus is how bootc is asked for its status.
const BootcStatus = "bootc status --format=json"

// BootcDeployment is one deployment in its answer.
func BootcDeployment(image string, incompatible bool) string {
	flag := "false"
	if incompatible {
		flag = "true"
	}
	return `{"image":{"image":{"image":"` + image +
		`","transport":"registry"},"version":"9.6","timestamp":null,"imageDigest":"` + image[strings.Index(image, "@")+1:] +
		`"},"cachedUpdate":null,"incompatible":` + flag + `,"pinned":false,"ostree":{"stateroot":"default","checksum":"` +
		CommitA + `","deploySerial":2}}`
}

// ComposefsDeployment is one that has no ostree: bootc tells its image's fs-verity digest.
func ComposefsDeployment(image, verity string) string {
	entry := BootcDeployment(image, false)
	return entry[:strings.Index(entry, `"ostree"`)] + `"store":null,"ostree":null,"composefs":{"verity":"` + verity +
		`","bootType":"Bls","bootloader":"Grub","bootDigest":"` + CommitB + `","missingVerityAllowed":false}}`
}

// BootcHost is the answer.
func BootcHost(staged, booted, rollback string) string {
	return `{"apiVersion":"org.containers.bootc/v1","kind":"BootcHost","metadata":{"name":"host"},` +
		`"spec":{"image":null,"bootOrder":"default"},"status":{"staged":` + staged + `,"booted":` + booted +
		`,"rollback":` + rollback + `,"rollbackQueued":false,"type":"bootcHost"}}`
}

// Images of the tests.
const (
	WantImage  = "registry.example.com/ocp/os@sha256:aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"
	OtherImage = "registry.example.com/ocp/os@sha256:bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb"
)
