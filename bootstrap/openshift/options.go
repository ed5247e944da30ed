package openshift

import (
	"cmp"
	"context"
	"errors"
	"path/filepath"
	"time"

	"dayone.dev/dayone/bootstrap/day1"
	"dayone.dev/dayone/bootstrap/handover"
	"dayone.dev/dayone/manifests"
)

// Places of the installer's own files on the bootstrap node (openshift/installer, data/data/bootstrap).
const (
	// mccDir has the manifests that MCO renders, mcsDir what it rendered and serves: it reads files anew for each request.
	mccDir = "/etc/mcc/bootstrap"
	mcsDir = "/etc/mcs/bootstrap"
	// mccPullSecret is among the manifests, without an extension.
	mccPullSecret = "machineconfigcontroller-pull-secret"
	// podManifest is MCO's static pod: its init container renders, its container serves.
	podManifest = "/etc/kubernetes/manifests/machineconfigoperator-bootstrap-pod.yaml"
	// hostPullSecret is the cluster's pull secret for programs of this host.
	hostPullSecret = "/root/.docker/config.json"
	// hostRegistries has the mirrors for programs of this host.
	hostRegistries = "/etc/containers/registries.conf"
	// installerDir comes with the bootstrap node's Ignition config.
	installerDir = "/opt/openshift"
	// installerManifests are those of the installer and of the user; releaseScript asks the release image for its parts.
	installerManifests = installerDir + "/openshift"
	releaseScript      = "/usr/local/bin/release-image.sh"
	// recordsDir has the service records, which the installer's gather takes as they are.
	recordsDir = "/var/log/openshift"
	// LoopbackConfigURL is MCO's server on this host, which the gate lets through.
	LoopbackConfigURL = "http://127.0.0.1:22624/config/"
	// LoopbackKubeconfig reaches the bootstrap API server as an administrator, ClusterKubeconfig the masters': bootkube
	// ends the former as soon as the latter is there.
	LoopbackKubeconfig = "/opt/openshift/auth/kubeconfig-loopback"
	ClusterKubeconfig  = "/opt/openshift/auth/kubeconfig"
)

// Renderer is MCO's controller in its bootstrap mode: manifests in, rendered configs out.
type Renderer interface {
	Render(ctx context.Context, r Rendering) error
}

// Rendering is one run of the controller.
type Rendering struct {
	// Image and Argv are those of the static pod's init container, the latter with Dest as its destination.
	Image string
	Argv  []string
	// Source has the manifests, Dest gets the result.
	Source, Dest string
}

// Gate keeps nodes off the config server.
type Gate interface {
	// Open lets them through; opening an open gate is no error.
	Open(ctx context.Context) error
	// Refused is how many connections a shut gate has refused since the host booted; an open one is an error.
	Refused(ctx context.Context) (uint64, error)
}

// Cluster is the bootstrap API server.
type Cluster interface {
	// Up reports whether it answers.
	Up(ctx context.Context) error
	// Give merges credentials (auth.json), if there are any, into the cluster's pull secret and applies the set's
	// MachineConfigs, MachineOSConfigs, Secrets and ConfigMaps.
	Give(ctx context.Context, set *manifests.Set, auth []byte) error
	// Withdraw deletes the set's MachineConfigs and MachineOSConfigs, and the credentials for a registry from the
	// cluster's pull secret.
	Withdraw(ctx context.Context, set *manifests.Set, registry string) error
}

// Options of the flow. Dir, StateDir, NewEngine, Renderer, Gate and Cluster are required.
type Options struct {
	// Dir of them is the install directory that dayone ignition put on the node.
	day1.Options
	// Root stands before the installer's paths; default "/".
	Root string
	// Base returns the release's OS image before MCO has rendered, so that it is prefetched. Default: no prefetch.
	Base     func(context.Context) (string, error)
	Renderer Renderer
	Gate     Gate
	Cluster  Cluster
	// ConfigURL is where MCO's server answers this host for a pool, whose name is appended. Default: it is not asked.
	ConfigURL string
	// HandOver says how the cluster is reached, and more if need be; the flow sets what is handed over, from where and how
	// long it is tried.
	HandOver handover.Options
	// Release lets cluster-bootstrap end on a node that is its own bootstrap node; it is called again after a failure.
	// Required there.
	Release func(context.Context) error
	// Limits are the installer's timeouts; default InstallerLimits of the install directory.
	Limits Limits
	// Interval is how often files and the API are polled; default defaultInterval.
	Interval time.Duration
}

// defaultInterval is short against MCO's rendering, some seconds.
const defaultInterval = 2 * time.Second

// Validate names what is missing.
func (o Options) Validate() error {
	switch {
	case o.Dir == "" || o.StateDir == "":
		return errors.New(
			"openshift flow: the install directory or the state directory is missing: give --dir and --state-dir")
	case o.NewEngine == nil || o.Renderer == nil || o.Gate == nil || o.Cluster == nil || o.HandOver.Connect == nil:
		return errors.New("openshift flow: options: engine, renderer, gate, cluster and a connection for the hand-over " +
			"are required")
	}
	return nil
}

func (o Options) withDefaults() Options {
	o.Options = o.Options.WithDefaults()
	o.Root = cmp.Or(o.Root, "/")
	if o.Interval <= 0 {
		o.Interval = defaultInterval
	}
	return o
}

// at is one of the installer's paths.
func (o Options) at(path string) string { return filepath.Join(o.Root, path) }
