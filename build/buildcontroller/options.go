package buildcontroller

import (
	"cmp"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/sirupsen/logrus"

	"dayone.dev/dayone/build/decide"
	"dayone.dev/dayone/build/job"
	"dayone.dev/dayone/installconfig/report"
	"dayone.dev/dayone/manifests/assets/cluster"
)

// Defaults of Options.
const (
	// defaultNamespace is where MCO and its secrets live (openshift/api, MachineOSConfig.spec.renderedImagePushSecret).
	defaultNamespace = cluster.DefaultNamespace
	// DefaultParallel is how many builds run at once.
	DefaultParallel = 4
	// DefaultHistory is how many ended builds a pool keeps.
	DefaultHistory = 3
	// DefaultWorkers is how many MachineOSConfigs are reconciled at once. They mostly wait for the API.
	DefaultWorkers = 8
	// DefaultPullSecret is the copy of the cluster's pull secret (MCO, pkg/controller/build/constants).
	DefaultPullSecret = "global-pull-secret-copy"
	// defaultPoll is the pause before a queued build asks for a slot again, beside the event that announces a free one.
	defaultPoll = 30 * time.Second
	// tidyInterval is how often an ended build is checked again whose image is in use somewhere.
	tidyInterval = 10 * time.Minute
	// DefaultLeaveAfter is how long the deletion of a build waits for a registry, from its first refusal on, before it
	// leaves the image behind.
	DefaultLeaveAfter = 10 * time.Minute
)

// Options of the controller. The zero value of every field is usable, but Images and Job.BuilderImage are needed.
type Options struct {
	// Namespace holds Jobs and Secrets; default openshift-machine-config-operator.
	Namespace string
	// Platform is os/architecture of the pools' nodes; default linux and this program's architecture.
	Platform string
	// Parallel is how many builds run at once; default DefaultParallel.
	Parallel int
	// History is how many ended builds a pool keeps, beside the one in use; default DefaultHistory.
	History int
	// Workers is how many MachineOSConfigs are reconciled at once; default DefaultWorkers.
	Workers int
	// Retry bounds retries.
	Retry decide.Policy
	// PullSecret pulls the base image of a MachineOSConfig that names none; default DefaultPullSecret.
	PullSecret string
	// Poll is how soon is looked again at what no event announces: room in a registry, MachineConfigs; default 30 seconds.
	Poll time.Duration
	// LeaveAfter is how long the deletion of a build waits for its registry; default DefaultLeaveAfter.
	LeaveAfter time.Duration
	// Images reaches the registries.
	Images Images
	// Finder looks for images by content address before a build beside MCO begins; default none: the build pod looks.
	Finder Finder
	// Sizes asks how large images are before a build of an image for Registry begins; needed with Registry.
	Sizes Sizer
	// Signer signs images with the key in the Secret cluster.SigningKey, if there is one, before they count as built;
	// default: no image is signed.
	Signer Signer
	// Job is how build pods run; its namespace is Namespace.
	Job job.Options
	// Registry is HOST:PORT of images that the control plane's own registries hold: a build of one has succeeded when they
	// have its image; default none.
	Registry string
	// RegistryCA is PEM of CAs that sign registries' certificates, beside those in the ControllerConfig and the host's.
	RegistryCA []byte
	// Now is the clock; default time.Now.
	Now func() time.Time
	// Log takes a line for each action; default none.
	Log *logrus.Entry
	// Metrics takes the collectors; default a registry of its own.
	Metrics prometheus.Registerer
}

// Validate names the first option that is invalid.
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
	if o.Registry != "" && o.Sizes == nil {
		return errors.New("option sizes is missing: option registry requires it")
	}
	if err := o.Job.Validate(); err != nil {
		return fmt.Errorf("option job: %w", err)
	}
	return nil
}

func (o Options) withDefaults() Options {
	o.Namespace = cmp.Or(o.Namespace, defaultNamespace)
	o.Platform = cmp.Or(o.Platform, "linux/"+runtime.GOARCH)
	o.Parallel = cmp.Or(o.Parallel, DefaultParallel)
	o.History = cmp.Or(o.History, DefaultHistory)
	o.Workers = cmp.Or(o.Workers, DefaultWorkers)
	o.PullSecret = cmp.Or(o.PullSecret, DefaultPullSecret)
	o.Poll = cmp.Or(o.Poll, defaultPoll)
	o.LeaveAfter = cmp.Or(o.LeaveAfter, DefaultLeaveAfter)
	o.Log = cmp.Or(o.Log, report.NoLog())
	o.Job.Namespace = o.Namespace
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Metrics == nil {
		o.Metrics = prometheus.NewRegistry()
	}
	return o
}
