package gather

import (
	"cmp"
	"errors"
	"fmt"
	"regexp"
	"time"

	"github.com/sirupsen/logrus"
)

// Bounds of a bundle. A bundle must fit into a mail or a ticket, and gathering must end on a host whose disk is full or
// slow.
const (
	// defaultMaxFile is how much of one file is kept, in bytes: of logs the end, of everything else nothing when it is
	// larger.
	defaultMaxFile = 8 << 20
	// DefaultMaxTotal is how much is kept of all files together before compression, in bytes.
	DefaultMaxTotal = 256 << 20
	// maxFiles bounds the number of files: a spool directory that was never cleaned must not fill the bundle.
	maxFiles = 5000
	// commandLimit is how long one program of the host may take.
	commandLimit = 20 * time.Second
)

// Options of one bundle. The zero value gathers the host that it runs on.
type Options struct {
	// ID is the bundle's name after log-bundle-: letters, digits, dot, dash and underscore. Default: the time, as
	// 20060102150405.
	ID string
	// StateDir is the bootstrap's state directory. Default: /var/lib/dayone.
	StateDir string
	// InstallDir is the install directory; "" leaves its manifests out. The secrets that it holds are looked for in
	// everything else.
	InstallDir string
	// Root is put before the paths of the host's own files, such as /var/log/openshift; "" is the host itself.
	Root string
	// NoCommands runs no programs of the host: journalctl, systemctl, ip and their like. With a Root none run anyway.
	NoCommands bool
	// MaxFile and MaxTotal are bounds in bytes. Defaults: defaultMaxFile, DefaultMaxTotal.
	MaxFile, MaxTotal int64
	// Secrets are further texts that must not be in the bundle.
	Secrets []string
	// Log takes what could not be gathered; nil discards it. The bundle's own gather.log has it, too.
	Log *logrus.Entry
	// Now is the clock. Default: time.Now.
	Now func() time.Time
}

var idForm = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,127}$`)

func (o Options) withDefaults() Options {
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.ID == "" {
		o.ID = o.Now().UTC().Format("20060102150405")
	}
	o.StateDir = cmp.Or(o.StateDir, "/var/lib/dayone")
	o.MaxFile = cmp.Or(o.MaxFile, defaultMaxFile)
	o.MaxTotal = cmp.Or(o.MaxTotal, DefaultMaxTotal)
	return o
}

// Validate names the option that cannot be.
func (o Options) Validate() error {
	if !idForm.MatchString(o.ID) {
		return fmt.Errorf("bundle id %q: use letters, digits, dots, dashes and underscores", o.ID)
	}
	if o.MaxFile < 1 || o.MaxTotal < 1 {
		return errors.New("bounds of a bundle must be positive")
	}
	return nil
}

// Name is the bundle's name without directory: log-bundle-ID.tar.gz, as openshift-install names its own.
func (o Options) Name() string { return "log-bundle-" + o.withDefaults().ID + ".tar.gz" }
