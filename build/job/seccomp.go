package job

import (
	_ "embed" // for the profile
	"strings"
)

//go:embed seccomp.json
var seccompProfile string

// SeccompFile is where SeccompProfile belongs, below the directory seccomp of the kubelet's root directory, and the
// value of Options.SeccompLocalhost for it.
const SeccompFile = "profiles/dayone-build.json"

// SeccompProfile is a seccomp profile for build pods on nodes that set one for all pods, in the form of the OCI runtime
// specification. It allows what a user namespace needs for a build (clone, unshare, mount, pivot_root) and forbids what
// no build has a use for: modules, keys, other processes' memory, clocks, tracing, io_uring. It is for little-endian
// machines: libseccomp takes no list of architectures with both byte orders, so that s390x needs one of its own.
func SeccompProfile() []byte { return []byte(strings.TrimSpace(seccompProfile) + "\n") }
