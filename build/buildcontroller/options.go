package buildcontroller

import (
	"errors"
	"fmt"
	"io"
	"runtime"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/sirupsen/logrus"

	"dayone.dev/dayone/build/decide"
	"dayone.dev/dayone/build/job"
)

// Defaults of Options.
const (
	// DefaultNamespace is where MCO and its secrets live (openshift/api, MachineOSConfig.spec.renderedImagePushSecret).
	DefaultNamespace = "openshift-machine-config-operator"
	// DefaultParallel is how many builds run at once.
	DefaultParallel = 4
	// DefaultHistory is how many ended builds a pool keeps.
	DefaultHistory = 3
	// DefaultWorkers is how many MachineOSConfigs are looked at at once. Most of that time is spent on waiting for the
	// API.
	DefaultWorkers = 8
	// DefaultPullSecret is the copy of the cluster's pull secret (MCO, pkg/controller/build/constants).
	DefaultPullSecret = "global-pull-secret-copy"
	// DefaultTidyInterval is how often an ended build is looked at again whose image is still in use somewhere.
	DefaultTidyInterval = 10 * time.Minute
	// DefaultLeaveAfter is how long the deletion of a build waits for a registry, from its first refusal on, before it
	// leaves the image behind.
	DefaultLeaveAfter = 10 * time.Minute
)

// Options of the controller. The zero value of every field is usable, but Images and Job.BuilderImage are needed.
type Options struct {
	// Namespace holds Jobs and Secrets; default DefaultNamespace.
	Namespace string
	// Platform is os/architecture of the pools' nodes; default linux and this program's architecture.
	Platform string
	// Parallel is how many builds run at once; default DefaultParallel.
	Parallel int
	// History is how many ended builds a pool keeps, beside the one in use; default DefaultHistory.
	History int
	// Workers is how many MachineOSConfigs are looked at at once; default DefaultWorkers.
	Workers int
	// Retry bounds retries.
	Retry decide.Policy
	// PullSecret pulls the base image of a MachineOSConfig that names none; default DefaultPullSecret.
	PullSecret string
	// TidyInterval and LeaveAfter; defaults DefaultTidyInterval and DefaultLeaveAfter.
	TidyInterval, LeaveAfter time.Duration
	// Images reaches the registries.
	Images Images
	// Job is how build pods run; its namespace is Namespace.
	Job job.Options
	// RegistryCA is PEM of authorities that sign registries' certificates, beside those in the ControllerConfig and the
	// host's.
	RegistryCA []byte
	// Now is the clock; default time.Now.
	Now func() time.Time
	// Log takes a line for each thing that is done; default none.
	Log *logrus.Entry
	// Metrics takes the collectors; default a registry of its own.
	Metrics prometheus.Registerer
}

// Validate names the first option that cannot be.
func (o Options) Validate() error {
	for name, v := range map[string]int{"parallel": o.Parallel, "history": o.History, "workers": o.Workers} {
		if v < 0 {
			return fmt.Errorf("option %s: %d is less than one", name, v)
		}
	}
	if o.Platform != "" && strings.Count(o.Platform, "/") < 1 {
		return fmt.Errorf("option platform: %q is not of the form os/architecture", o.Platform)
	}
	if o.Images == nil {
		return errors.New("option images: there is none")
	}
	if err := o.Job.Validate(); err != nil {
		return fmt.Errorf("option job: %w", err)
	}
	return nil
}

func (o Options) withDefaults() Options {
	def(&o.Namespace, DefaultNamespace)
	def(&o.Platform, "linux/"+runtime.GOARCH)
	def(&o.Parallel, DefaultParallel)
	def(&o.History, DefaultHistory)
	def(&o.Workers, DefaultWorkers)
	def(&o.PullSecret, DefaultPullSecret)
	def(&o.TidyInterval, DefaultTidyInterval)
	def(&o.LeaveAfter, DefaultLeaveAfter)
	o.Job.Namespace = o.Namespace
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Log == nil {
		l := logrus.New()
		l.SetOutput(io.Discard)
		o.Log = logrus.NewEntry(l)
	}
	if o.Metrics == nil {
		o.Metrics = prometheus.NewRegistry()
	}
	return o
}

func def[T comparable](field *T, value T) {
	var zero T
	if *field == zero {
		*field = value
	}
}
