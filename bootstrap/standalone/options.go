package standalone

import (
	"errors"
	"fmt"
	"net"
	"os"
	"strconv"

	"dayone.dev/dayone/bootstrap/day1"
	"dayone.dev/dayone/installconfig"
	"dayone.dev/dayone/installconfig/report"
	"dayone.dev/dayone/manifests/render"
)

// Options of a run. Dir, NewEngine and DaemonBinary are required.
type Options struct {
	day1.Options
	// BaseSource is where the base image is read: a registry reference, oci:DIR or docker-archive:FILE. Default: the name
	// in install-config.yaml.
	BaseSource string
	// BaseAuthFile reaches a base image in a registry. Default: the pull Secret of the first pool that has one.
	BaseAuthFile string
	// DaemonBinary is the dayone-daemon that nodes fetch on their first boot.
	DaemonBinary string
	// RegistryBinary is the dayone-registry that control-plane nodes fetch on their first boot. Required where the images
	// go to the cluster's own registries.
	RegistryBinary string
	// RegistryListen is the embedded registry's HOST:PORT. Default: all addresses, the port of install-config.yaml.
	RegistryListen string
	// ConfigListen is the Ignition server's HOST:PORT. Default: all addresses, the port of install-config.yaml.
	ConfigListen string
	// Versions are the renderer's; the in-cluster renderer must have the same.
	Versions render.Versions
	// Serving is called when nodes may come, with each pool's pointer config in order of names. Default: no call.
	Serving func([]Pointer)
	// HandOver gives what was made to the cluster, after which Run returns; its zero value leaves it out.
	HandOver day1.HandOver
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
	return nil
}

// checkPrograms wants those that nodes get: the registry's only where the images go to the cluster's own.
func (o Options) checkPrograms(c installconfig.Config) error {
	if err := checkProgram("the node agent", o.DaemonBinary, "--daemon"); err != nil || !c.InCluster() {
		return err
	}
	return checkProgram("the registry of control-plane nodes", o.RegistryBinary, "--registry-program")
}

func checkProgram(what, file, flag string) error {
	info, err := os.Stat(file)
	if err != nil {
		return fmt.Errorf("find %s (build it with make build, or name it with %s): %w", what, flag, err)
	}
	if !info.Mode().IsRegular() {
		return fmt.Errorf("find %s: %s is not a regular file", what, file)
	}
	return nil
}

// listener is an address on which one of the services will listen.
type listener struct {
	service, address string
	// at is where the user chose it.
	at report.Finding
}

// listeners are those of the embedded registry and of the Ignition server.
func (o Options) listeners(c installconfig.Config) (registry, config listener) {
	return chosen("embedded registry", o.RegistryListen, c.BootstrapRegistry.Port, "bootstrapRegistry.port",
			"--registry-listen"),
		chosen("Ignition server", o.ConfigListen, c.ConfigServer.Port, "configServer.port", "--config-listen")
}

// chosen takes the address of the command line, else the port of install-config.yaml.
func chosen(service, address string, port int, key, flag string) listener {
	if address != "" {
		return listener{service, address, report.Finding{Path: flag, Rule: "port-taken",
			Next: "stop what uses the port, or give another address"}}
	}
	return listener{service, ":" + strconv.Itoa(port), report.Finding{File: installconfig.FileName,
		Path: installconfig.Field + "." + key, Rule: "port-taken", Next: "stop what uses the port, or choose another"}}
}

// checkPorts refuses a run whose services could not listen, before any work is done. All are tried at once, so that it
// also finds two services on one port.
func checkPorts(list ...listener) error {
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
