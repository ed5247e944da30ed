package bootstrap

import (
	"errors"
	"fmt"
	"net"
	"os"
	"runtime"
	"strconv"
	"time"

	"github.com/sirupsen/logrus"

	"dayone.dev/dayone/bootstrap/journal"
	"dayone.dev/dayone/build"
	"dayone.dev/dayone/installconfig"
	"dayone.dev/dayone/installconfig/report"
	"dayone.dev/dayone/manifests/render"
)

// DefaultStateDir is where a bootstrap host keeps its journal, images and credentials.
const DefaultStateDir = "/var/lib/dayone"

// Options of a bootstrap run. Dir, NewEngine and DaemonBinary are required.
type Options struct {
	// Dir is the prepared install directory.
	Dir string
	// StateDir keeps everything that survives a restart, mode 0700. Default: /var/lib/dayone.
	StateDir string
	// BaseSource is where the base image is taken from: a registry reference, oci:DIR or docker-archive:FILE.
	// Default: the name in install-config.yaml.
	BaseSource string
	// BaseCAFile and BaseAuthFile reach a base image in a registry. The pull Secret of the first pool counts where
	// BaseAuthFile is empty.
	BaseCAFile, BaseAuthFile string
	// DaemonBinary is the dayone-daemon that nodes fetch on their first boot.
	DaemonBinary string
	// RegistryListen is the embedded registry's HOST:PORT. Default: all addresses, the port of install-config.yaml.
	RegistryListen string
	// ConfigListen is the Ignition server's HOST:PORT. Default: all addresses, the port of install-config.yaml.
	ConfigListen string
	// Platform is the nodes' os/architecture. Default: linux and this program's architecture.
	Platform string
	// Versions is what the renderer takes for its own; the in-cluster renderer must have the same.
	Versions render.Versions
	// NewEngine opens the engine that runs Containerfiles, with its storage in dir.
	NewEngine func(dir string) (build.ContainerEngine, error)
	// HandOver gives what was made to the cluster, after which Run returns; its zero value leaves it out.
	HandOver HandOver
	// Observe is told of every phase's events; nil drops them.
	Observe journal.Observer
	// BuildProgress is told what a build does; nil drops it.
	BuildProgress func(pool string, e build.Event)
	// Log takes the run's messages; nil discards them.
	Log *logrus.Entry
	// Now is the clock of the journal. Default: time.Now.
	Now func() time.Time
}

func (o Options) withDefaults() Options {
	if o.StateDir == "" {
		o.StateDir = DefaultStateDir
	}
	if o.Platform == "" {
		o.Platform = "linux/" + runtime.GOARCH
	}
	if o.Observe == nil {
		o.Observe = func(journal.Event) {}
	}
	if o.BuildProgress == nil {
		o.BuildProgress = func(string, build.Event) {}
	}
	if o.Log == nil {
		o.Log = report.NoLog()
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	return o
}

// Validate names the first option that makes a run impossible on this host.
func (o Options) Validate() error {
	if o.Dir == "" {
		return errors.New("no install directory: give --dir")
	}
	if os.Geteuid() != 0 {
		return errors.New(
			"dayone bootstrap needs root: it mounts file systems and runs the Containerfile's commands; run it with sudo")
	}
	if o.NewEngine == nil {
		return errors.New("bootstrap options: no engine for Containerfiles")
	}
	info, err := os.Stat(o.DaemonBinary)
	if err != nil {
		return fmt.Errorf("find the node agent (build it with make build, or name it with --daemon): %w", err)
	}
	if !info.Mode().IsRegular() {
		return fmt.Errorf("find the node agent: %s is no file", o.DaemonBinary)
	}
	return nil
}

// listenAddresses fills in where the two services listen.
func (o Options) listenAddresses(c installconfig.Config) (registry, config string) {
	registry, config = o.RegistryListen, o.ConfigListen
	if registry == "" {
		registry = ":" + strconv.Itoa(c.BootstrapRegistry.Port)
	}
	if config == "" {
		config = ":" + strconv.Itoa(c.ConfigServer.Port)
	}
	return registry, config
}

// listener is an address that one of the services will listen on.
type listener struct {
	service, address string
	// at is where the user chose it.
	at report.Finding
}

func (h *host) listeners() []listener {
	return []listener{
		{"embedded registry", h.registryListen, chosen(h.RegistryListen, "bootstrapRegistry.port", "--registry-listen")},
		{"Ignition server", h.configListen, chosen(h.ConfigListen, "configServer.port", "--config-listen")},
	}
}

// chosen is where a listen address comes from: the command line when it was given there, else install-config.yaml.
func chosen(given, key, flag string) report.Finding {
	if given != "" {
		return report.Finding{Path: flag, Rule: "port-taken", Next: "stop what uses the port, or give another address"}
	}
	return report.Finding{File: installconfig.FileName, Path: installconfig.Field + "." + key, Rule: "port-taken",
		Next: "stop what uses the port, or choose another"}
}

// checkPorts refuses a run whose services could not listen, before any work is done. All are tried at once, so that two
// services on one port are found, too.
func checkPorts(list []listener) error {
	var rep report.Report
	var open []net.Listener
	for _, want := range list {
		l, err := net.Listen("tcp", want.address)
		if err != nil {
			rep.Errorf(want.at, "the %s cannot listen on %s: %v", want.service, want.address, err)
			continue
		}
		open = append(open, l)
	}
	errs := []error{rep.Err()}
	for _, l := range open {
		errs = append(errs, l.Close())
	}
	return errors.Join(errs...)
}
