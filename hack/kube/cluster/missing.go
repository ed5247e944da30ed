package cluster

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
)

// cniDirs are where distributions put the network plugins: Debian, Fedora, others.
func cniDirs() []string { return []string{"/usr/lib/cni", "/usr/libexec/cni", "/opt/cni/bin"} }

// Missing reports what this machine lacks to run a cluster, in one error that says how to get it.
func Missing() error {
	var missing []string
	if os.Geteuid() != 0 {
		missing = append(missing, "root")
	}
	for _, p := range []string{"containerd", "ctr", "containerd-shim-runc-v2", "runc", "ip", "nsenter"} {
		if _, err := exec.LookPath(p); err != nil {
			missing = append(missing, p)
		}
	}
	if cniDir() == "" {
		missing = append(missing, "the network plugins bridge, host-local and loopback (package containernetworking-plugins)")
	}
	if _, err := findCgroups(cgroupMount); err != nil {
		missing = append(missing, err.Error())
	}
	if len(missing) == 0 {
		return nil
	}
	return fmt.Errorf("run a cluster: missing: %s (hack/setup/setup.sh installs programs)", strings.Join(missing, ", "))
}

// cniDir is the directory of the network plugins, "" when there is none with all of them.
func cniDir() string {
	for _, dir := range cniDirs() {
		found := true
		for _, plugin := range []string{"bridge", "host-local", "loopback"} {
			if _, err := os.Stat(dir + "/" + plugin); err != nil {
				found = false
			}
		}
		if found {
			return dir
		}
	}
	return ""
}
