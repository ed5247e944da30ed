package rendercontroller

import (
	"cmp"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/sirupsen/logrus"

	"dayone.dev/dayone/installconfig/report"
	"dayone.dev/dayone/manifests/render"
)

const (
	// defaultSettle is how long changes are collected before a pool is rendered: kubectl apply of a directory shall be one
	// rollout. MCO waits as long (pkg/controller/render, renderDelay).
	defaultSettle = 5 * time.Second
	// defaultKeep is how many rendered configs of a pool are kept that nothing refers to.
	defaultKeep = 3
	// workers is how many pools are rendered at once; rendering holds all MachineConfigs of a pool in memory twice.
	workers = 1
)

// Options of the controller; the zero value is usable and renders for the version "".
type Options struct {
	// Versions must be those that bootstrap rendered with, else its names are not met again.
	Versions render.Versions
	// BaseImage is the default osImageURL of clusters without a ControllerConfig, by digest. Default none.
	BaseImage string
	// ComponentsOnly takes the MachineConfigs as complete: for clusters in which another operator renders mirror sets,
	// KubeletConfigs and ContainerRuntimeConfigs.
	ComponentsOnly bool
	// Settle is how long changes are collected; default defaultSettle, negative not at all.
	Settle time.Duration
	// Keep is how many rendered configs of a pool are kept that nothing refers to; default defaultKeep, negative none.
	Keep int
	// Metrics gets the controller's metrics; default none.
	Metrics prometheus.Registerer
	// Now is the clock of conditions; default time.Now.
	Now func() time.Time
	// Log takes a line for each thing that is done; default none.
	Log *logrus.Entry
}

func (o Options) withDefaults() Options {
	o.Settle = max(cmp.Or(o.Settle, defaultSettle), 0)
	o.Keep = max(cmp.Or(o.Keep, defaultKeep), 0)
	if o.Now == nil {
		o.Now = time.Now
	}
	o.Log = cmp.Or(o.Log, report.NoLog())
	return o
}
