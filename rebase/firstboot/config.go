package firstboot

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"time"

	"dayone.dev/dayone/installconfig"
	"dayone.dev/dayone/rebase/deploy"
	"dayone.dev/dayone/rebase/softreboot"
)

// Where things are on a node. The machine-config files' places are MCO's (pkg/daemon/constants/constants.go).
const (
	ConfigPath       = "/etc/dayone/firstboot.json"
	StateDir         = "/var/lib/dayone/firstboot"
	encapsulatedPath = "/etc/ignition-machine-config-encapsulated.json"
	contentPath      = "/etc/mcs-machine-config-content.json"
	currentDir       = "/etc/machine-config-daemon"
)

// Defaults of Config.
const (
	defaultRetryMin      = time.Second
	defaultRetryMax      = 30 * time.Second
	defaultMaxReboots    = 2 // one, and one more for a power cut between the request and ostree's finalizing
	defaultExpectedBoots = 2 // the disk image once, then the node's own image
	defaultHealthTimeout = 10 * time.Minute
)

// configVersion is the only form of Config there is.
const configVersion = 1

// Config is /etc/dayone/firstboot.json, which the config server adds to what a new node gets.
type Config struct {
	// Version of this form; 1.
	Version int `json:"version"`
	// Registry is the HOST:PORT that images come from on the first boot; for messages only, pulling follows
	// registries.conf.d.
	Registry string `json:"registry,omitempty"`
	// Deployer: ostree, rpm-ostree or bootc; empty: detected.
	Deployer deploy.Kind `json:"deployer,omitempty"`
	// ConfigHash is what the image's label dayone.dev/config-hash must say; empty: computed from the config that was
	// served.
	ConfigHash string `json:"configHash,omitempty"`
	// RetryMin and RetryMax bound the pause after a failure, as Go durations; it doubles from one to the other.
	RetryMin installconfig.Duration `json:"retryMin,omitempty"`
	RetryMax installconfig.Duration `json:"retryMax,omitempty"`
	// MaxReboots bounds the reboots asked for; then the node stays where it is.
	MaxReboots int `json:"maxReboots,omitempty"`
	// ExpectedBoots is what the plan promised; more are reported.
	ExpectedBoots int `json:"expectedBoots,omitempty"`
	// SignaturePolicy is a containers-policy.json that the image must satisfy under its final name, whatever the deployer;
	// empty: not asked.
	SignaturePolicy string `json:"signaturePolicy,omitempty"`
	// PersistNICNames keeps the names of network cards over the change of the OS, with the node's nmstatectl, as MCO does:
	// on Enterprise Linux 8 and 9, where a later OS may name them otherwise; elsewhere it has no effect.
	PersistNICNames bool `json:"persistNICNames,omitempty"`
	// RebootPolicy says whether the image may be taken by a soft reboot; default SoftIfPossible: nothing but Ignition and
	// firstboot has run on the node, and the image must be of the kernel and the settings that run.
	RebootPolicy softreboot.Policy `json:"rebootPolicy,omitempty"`
	// BeforeReboot is a command that must succeed before the reboot.
	BeforeReboot []string `json:"beforeReboot,omitempty"`
	// Health is a command that must succeed within HealthTimeout in the new image, or the node goes back once; empty: that
	// kubelet-dependencies.target is reached, where systemd runs and something wants it.
	Health        []string               `json:"health,omitempty"`
	HealthTimeout installconfig.Duration `json:"healthTimeout,omitempty"`
}

// parseConfig reads the file's content; unknown keys are refused.
func parseConfig(raw []byte) (Config, error) {
	var c Config
	d := json.NewDecoder(bytes.NewReader(raw))
	d.DisallowUnknownFields()
	if err := d.Decode(&c); err != nil {
		return Config{}, fmt.Errorf("read %s: %w", ConfigPath, err)
	}
	if err := c.Validate(); err != nil {
		return Config{}, fmt.Errorf("read %s: %w", ConfigPath, err)
	}
	return c, nil
}

// Validate names the first wrong key.
func (c Config) Validate() error {
	switch c.Deployer {
	case "", deploy.KindOSTree, deploy.KindRPMOSTree, deploy.KindBootc:
	default:
		return fmt.Errorf("deployer %q is none of ostree, rpm-ostree, bootc", c.Deployer)
	}
	if _, err := softreboot.ParsePolicy(string(c.RebootPolicy)); err != nil {
		return fmt.Errorf("rebootPolicy: %w", err)
	}
	switch {
	case c.Version != configVersion:
		return fmt.Errorf("version is %d, only %d is known", c.Version, configVersion)
	case c.MaxReboots < 0:
		return fmt.Errorf("maxReboots %d is negative", c.MaxReboots)
	case c.ExpectedBoots < 0:
		return fmt.Errorf("expectedBoots %d is negative", c.ExpectedBoots)
	}
	for key, d := range map[string]installconfig.Duration{"retryMin": c.RetryMin, "retryMax": c.RetryMax,
		"healthTimeout": c.HealthTimeout} {
		if d < 0 {
			return fmt.Errorf("%s %s is negative", key, d.Duration())
		}
	}
	return nil
}

func (c Config) withDefaults() Config {
	for _, d := range []struct {
		value *installconfig.Duration
		def   time.Duration
	}{{&c.RetryMin, defaultRetryMin}, {&c.RetryMax, defaultRetryMax}, {&c.HealthTimeout, defaultHealthTimeout}} {
		if *d.value == 0 {
			*d.value = installconfig.Duration(d.def)
		}
	}
	c.MaxReboots = cmp.Or(c.MaxReboots, defaultMaxReboots)
	c.RebootPolicy = cmp.Or(c.RebootPolicy, softreboot.SoftIfPossible)
	c.ExpectedBoots = cmp.Or(c.ExpectedBoots, defaultExpectedBoots)
	return c
}
