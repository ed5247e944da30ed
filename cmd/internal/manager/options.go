package manager

import (
	"cmp"
	"errors"
	"fmt"
	"net"
	"time"

	"github.com/sirupsen/logrus"
	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/util/validation"
)

// defaultNamespace is where MachineOSConfigs' secrets lie (facts of openshift/api, types_machineosconfig.go) and
// therefore where builds run.
const defaultNamespace = "openshift-machine-config-operator"

const (
	defaultMetricsAddress = ":8080"
	defaultProbeAddress   = ":8081"
	// defaultLeaseDuration outlives a restart of one apiserver behind a load balancer; a killed leader is replaced after
	// it.
	defaultLeaseDuration = 30 * time.Second
	// The ratios are those of client-go's defaults (15 s, 10 s, 2 s).
	renewPart, retryPart = 1.5, 7.5
	// unthrottled leaves limits to the apiserver's priority and fairness, which knows its own load; client-go's limit of 5
	// a second would make a start with 500 pools take minutes.
	unthrottled = -1
	// priorityQueue would let changes overtake what is only read anew. That of controller-runtime before 0.25 may keep its
	// workers for ever when it is shut down while there is work (its issue 3538): the process would hold its lease for 30
	// s and end with an error.
	priorityQueue = false
)

// Options are what an administrator can set. The zero value is usable: it takes every default.
type Options struct {
	// Kubeconfig is a file; empty: the pod's service account, or outside of a pod KUBECONFIG or ~/.kube/config.
	Kubeconfig string
	// Namespace holds the program's lease and what it makes; empty: defaultNamespace.
	Namespace string
	// NoLeaderElection lets several copies work at once. For a single copy at a desk only.
	NoLeaderElection bool
	// LeaseDuration is how long a killed leader's lease keeps the others waiting; 0: 30 s.
	LeaseDuration time.Duration
	// MetricsAddress is host:port; empty: :8080; "0": none.
	MetricsAddress string
	// ProbeAddress is host:port of /healthz and /readyz; empty: :8081; "0": none.
	ProbeAddress string
	// LogLevel is a logrus level; empty: info.
	LogLevel string
	// LogFormat is text or json; empty: json.
	LogFormat string
}

// AddFlags defines a flag for every option.
func (o *Options) AddFlags(f *pflag.FlagSet) {
	f.StringVar(&o.Kubeconfig, "kubeconfig", "",
		"kubeconfig file; default: the pod's service account, KUBECONFIG or ~/.kube/config")
	f.StringVar(&o.Namespace, "namespace", defaultNamespace, "namespace of the lease and of what is made here")
	f.BoolVar(&o.NoLeaderElection, "no-leader-election", false, "work without a lease; for a single copy only")
	f.DurationVar(&o.LeaseDuration, "lease-duration", defaultLeaseDuration,
		"how long a killed leader keeps the others waiting")
	f.StringVar(&o.MetricsAddress, "metrics-address", defaultMetricsAddress, "host:port of /metrics; 0: none")
	f.StringVar(&o.ProbeAddress, "probe-address", defaultProbeAddress, "host:port of /healthz and /readyz; 0: none")
	f.StringVar(&o.LogLevel, "log-level", logrus.InfoLevel.String(), "debug, info, warning or error")
	f.StringVar(&o.LogFormat, "log-format", "json", "json or text")
}

func (o Options) withDefaults() Options {
	set := func(field *string, value string) {
		if *field == "" {
			*field = value
		}
	}
	set(&o.Namespace, defaultNamespace)
	set(&o.MetricsAddress, defaultMetricsAddress)
	set(&o.ProbeAddress, defaultProbeAddress)
	set(&o.LogLevel, logrus.InfoLevel.String())
	set(&o.LogFormat, "json")
	o.LeaseDuration = cmp.Or(o.LeaseDuration, defaultLeaseDuration)
	return o
}

// Validate names every wrong option by its flag.
func (o Options) Validate() error {
	o = o.withDefaults()
	var bad []error
	for _, text := range validation.IsDNS1123Label(o.Namespace) {
		bad = append(bad, fmt.Errorf("--namespace %q: %s", o.Namespace, text))
	}
	if o.LeaseDuration < time.Second {
		bad = append(bad, fmt.Errorf("--lease-duration %s: a lease shorter than 1s is lost at once", o.LeaseDuration))
	}
	for flag, address := range map[string]string{"--metrics-address": o.MetricsAddress,
		"--probe-address": o.ProbeAddress} {
		if _, _, err := net.SplitHostPort(address); address != "0" && err != nil {
			bad = append(bad, fmt.Errorf("%s: write host:port or 0: %w", flag, err))
		}
	}
	if _, err := logrus.ParseLevel(o.LogLevel); err != nil {
		bad = append(bad, fmt.Errorf("--log-level: %w", err))
	}
	if o.LogFormat != "json" && o.LogFormat != "text" {
		bad = append(bad, fmt.Errorf("--log-format %q: write json or text", o.LogFormat))
	}
	return errors.Join(bad...)
}
