package optin

import (
	"cmp"
	"errors"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/sirupsen/logrus"

	"dayone.dev/dayone/installconfig/report"
	"dayone.dev/dayone/manifests/assets/cluster"
)

// workers is how many MachineOSConfigs are reconciled at once.
const workers = 4

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
	// Now is the clock of conditions; default time.Now.
	Now func() time.Time
	// Log takes a line for each action; default none.
	Log *logrus.Entry
	// Metrics takes the collectors; default a registry of its own.
	Metrics prometheus.Registerer
}

// Validate names the first option that is invalid.
func (o Options) Validate() error {
	if o.BuilderImage == "" {
		return errors.New("option builder image: it is empty; name the image with machine-os-builder, best by digest")
	}
	_, err := o.deployment()
	return err
}

func (o Options) withDefaults() Options {
	o.Namespace = cmp.Or(o.Namespace, cluster.DefaultNamespace)
	o.Log = cmp.Or(o.Log, report.NoLog())
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Metrics == nil {
		o.Metrics = prometheus.NewRegistry()
	}
	return o
}
