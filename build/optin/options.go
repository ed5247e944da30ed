package optin

import (
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/sirupsen/logrus"

	"dayone.dev/dayone/manifests/assets/cluster"
)

// DefaultWorkers is how many MachineOSConfigs are looked at at once.
const DefaultWorkers = 4

// Options of the controllers. BuilderImage is required; the zero value of the rest is usable.
type Options struct {
	// Namespace of the builder, its builds and their secrets; default cluster.DefaultNamespace.
	Namespace string
	// BuilderImage holds machine-os-builder, best by digest.
	BuilderImage string
	// BuilderArgs are further arguments of the builder; default none.
	BuilderArgs []string
	// Version labels the builder's Deployment; default no label.
	Version string
	// Workers is how many MachineOSConfigs are looked at at once; default DefaultWorkers.
	Workers int
	// Now is the clock of conditions; default time.Now.
	Now func() time.Time
	// Log takes a line for each thing that is done; default none.
	Log *logrus.Entry
	// Metrics takes the collectors; default a registry of its own.
	Metrics prometheus.Registerer
}

// Validate names the first option that cannot be.
func (o Options) Validate() error {
	if o.BuilderImage == "" {
		return errors.New("option builder image: it is empty; name the image with machine-os-builder, best by digest")
	}
	if o.Workers < 0 {
		return fmt.Errorf("option workers: %d is less than one", o.Workers)
	}
	_, err := o.deployment()
	return err
}

func (o Options) withDefaults() Options {
	if o.Namespace == "" {
		o.Namespace = cluster.DefaultNamespace
	}
	if o.Workers == 0 {
		o.Workers = DefaultWorkers
	}
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
