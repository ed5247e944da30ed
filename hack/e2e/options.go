package e2e

import (
	"fmt"
	"io"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"dayone.dev/dayone/bootstrap/progress"
	"dayone.dev/dayone/hack/baseimage"
	"dayone.dev/dayone/hack/testnode"
)

// Options of a run. Bin is required.
type Options struct {
	// Bin is the directory with dayone and dayone-daemon, and dayone-registry where the install directory asks for it.
	Bin string
	// NodeProgram plays the nodes' stages, see testnode.Options.Program.
	NodeProgram string
	// InstallDir is copied, never changed. Default: the sample install directory.
	InstallDir string
	// Base is the base image: a registry reference, oci:DIR or docker-archive:FILE. Default: one made here, of Kind.
	Base string
	// BaseCA is a PEM file of the CA of Base's registry; default: what this machine trusts. BaseAuthFile is a pull secret
	// for it; default: anonymous.
	BaseCA, BaseAuthFile string
	// Kind of the base image made here. Default: the Debian one with systemd.
	Kind baseimage.Kind
	// Masters is how many. Default: 3.
	Masters int
	// KernelArguments of the masters' first deployment; default: testnode's.
	KernelArguments []string
	// Work keeps copies, state and logs. Default: a new directory below the temporary one.
	Work string
	// Keep leaves the nodes and the bootstrap running.
	Keep bool
	// View shows progress; nil is silence. What the programs print goes to files in Work/logs.
	View *progress.View
}

const (
	defaultMasters = 3
	// bootstrapLimit is how long the bootstrap may take to serve: the build of a large image on a slow machine.
	bootstrapLimit = 15 * time.Minute
	// nodeLimit is how long a master may take from Ignition to its own image.
	nodeLimit = 10 * time.Minute
)

// Complete fills in what is left open, and makes the work directory.
func (o Options) Complete() (Options, error) {
	if o.Kind == "" {
		o.Kind = baseimage.Debian
	}
	if o.Masters == 0 {
		o.Masters = defaultMasters
	}
	if o.View == nil {
		o.View = progress.New(io.Discard)
	}
	if o.Work == "" {
		dir, err := os.MkdirTemp("", "dayone-demo-")
		if err != nil {
			return o, fmt.Errorf("make work directory: %w", err)
		}
		o.Work = dir
	}
	programs := []string{filepath.Join(o.Bin, "dayone"), filepath.Join(o.Bin, "dayone-daemon")}
	if o.NodeProgram != "" {
		programs = append(programs, o.NodeProgram)
	}
	for _, file := range programs {
		if _, err := os.Stat(file); err != nil {
			return o, fmt.Errorf("find %s (make build makes it): %w", filepath.Base(file), err)
		}
	}
	return o, nil
}

// prerequisites names what this machine lacks, before anything is made.
func prerequisites() error {
	if os.Geteuid() != 0 {
		return fmt.Errorf("run Day 1 here: needs root for namespaces, mounts and ostree; run it with sudo")
	}
	return testnode.Missing()
}

// prefixFor is the nodes' network: the bootstrap host has the address that the install directory gives the embedded
// registry.
func prefixFor(host string) (netip.Prefix, error) {
	addr, err := netip.ParseAddr(host)
	if err != nil || !addr.Is4() {
		return netip.Prefix{}, fmt.Errorf("make the nodes' network: bootstrapRegistry.host is %q; "+
			"on one machine it must be an IPv4 address, such as 192.168.77.1", host)
	}
	p := netip.PrefixFrom(addr, 24).Masked()
	if p.Addr().Next() != addr {
		return netip.Prefix{}, fmt.Errorf("make the nodes' network: bootstrapRegistry.host is %s; "+
			"on one machine it must be the first address of its /24 network, %s", addr, p.Addr().Next())
	}
	return p, nil
}

// copyDir copies an install directory with modes and times.
func copyDir(from, to string) error {
	out, err := exec.Command("cp", "-a", "--", strings.TrimSuffix(from, "/")+"/.", to).CombinedOutput()
	if err != nil {
		return fmt.Errorf("copy install directory: %w: %s", err, strings.TrimSpace(string(out)))
	}
	return nil
}
