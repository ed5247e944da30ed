package buildahengine

import (
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/containers/buildah/define"
	"github.com/containers/storage/pkg/unshare"
)

// Isolation of RUN.
const (
	// IsolationAuto is IsolationOCI with the first runtime that works on this host, and IsolationChroot where none does.
	IsolationAuto = "auto"
	// IsolationChroot works everywhere, also in containers, and shares network and devices with the host.
	IsolationChroot = "chroot"
	// IsolationOCI runs every RUN with an OCI runtime: it alone can cut RUN off the network. The build fails where no
	// runtime works.
	IsolationOCI = "oci"
)

// runtimes are the programs to look for in the child's PATH; the one that is tested most comes first.
func runtimes() []string { return []string{"runc", "crun"} }

// chosen is how RUN is run in this build, and why.
type chosen struct {
	Isolation string `json:"isolation"`
	// Runtime is the OCI runtime's path.
	Runtime string `json:"runtime,omitempty"`
	Reason  string `json:"reason"`
}

// String is the name for people: chroot, or the runtime's.
func (c chosen) String() string {
	if c.Isolation == IsolationOCI {
		return c.Isolation + " (" + filepath.Base(c.Runtime) + ")"
	}
	return c.Isolation
}

// errNoIsolation means that this host cannot do what the request asks for.
var errNoIsolation = errors.New("no OCI runtime works here")

// choose decides how RUN is run: by the first OCI runtime that try accepts. An empty runtime means all known ones.
func choose(isolation, runtime string, offline bool, try func(program string) error) (chosen, error) {
	if isolation == IsolationChroot && !offline {
		return chosen{Isolation: IsolationChroot, Reason: "the engine's options ask for it"}, nil
	}
	candidates := runtimes()
	if runtime != "" {
		candidates = []string{runtime}
	}
	var against []string
	for _, name := range candidates {
		path, err := exec.LookPath(name)
		if err != nil {
			against = append(against, name+" is not installed")
			continue
		}
		if err := try(path); err != nil {
			against = append(against, fmt.Sprintf("%s does not work here: %v", name, err))
			continue
		}
		return chosen{Isolation: IsolationOCI, Runtime: path, Reason: name + " runs containers on this host"}, nil
	}
	reasons := strings.Join(against, "; ")
	switch {
	case offline:
		return chosen{}, fmt.Errorf("RUN without network: %w: %s", errNoIsolation, reasons)
	case isolation == IsolationOCI:
		return chosen{}, fmt.Errorf("%w: %s", errNoIsolation, reasons)
	}
	return chosen{Isolation: IsolationChroot, Reason: reasons}, nil
}

// ociIsolation: in a user namespace of its own the library leaves out what it may not do there.
func ociIsolation() define.Isolation {
	if unshare.IsRootless() {
		return define.IsolationOCIRootless
	}
	return define.IsolationOCI
}

// runtimeArguments keep the runtime's records in the run directory, which goes with the build.
func runtimeArguments(o order) []string { return []string{"--root", filepath.Join(o.Run, "runtime")} }

// networkOf gives the host's network, or none.
func networkOf(offline bool) (define.NamespaceOptions, define.NetworkConfigurationPolicy) {
	if offline {
		return define.NamespaceOptions{{Name: "network"}}, define.NetworkDisabled
	}
	return define.NamespaceOptions{{Name: "network", Host: true}}, define.NetworkEnabled
}
