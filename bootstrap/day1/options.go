package day1

import (
	"cmp"
	"path/filepath"
	"runtime"
	"time"

	"github.com/sirupsen/logrus"

	"dayone.dev/dayone/bootstrap/clusterregistry"
	"dayone.dev/dayone/bootstrap/journal"
	"dayone.dev/dayone/bootstrap/preflight"
	"dayone.dev/dayone/build"
	"dayone.dev/dayone/installconfig"
	"dayone.dev/dayone/installconfig/report"
)

// DefaultStateDir is where a bootstrap host keeps its journal, images and credentials.
const DefaultStateDir = "/var/lib/dayone"

// Options are those of both flows. Dir and NewEngine are required.
type Options struct {
	// Dir is the prepared install directory.
	Dir string
	// StateDir keeps everything that survives a restart, mode 0700. Default: DefaultStateDir.
	StateDir string
	// BaseCAFile is PEM of the CA that signs the certificate of the base image's registry, beside the host's CAs.
	BaseCAFile string
	// Platform is the nodes' os/architecture. Default: linux and this program's architecture.
	Platform string
	// NewEngine opens the engine that runs Containerfiles, with its storage in dir.
	NewEngine func(dir string) (build.ContainerEngine, error)
	// BillsOfMaterials writes what is in an image that was built, to be attached to it; nil attaches none.
	BillsOfMaterials build.BillsOfMaterials
	// Observe receives the events of every phase; nil drops them.
	Observe journal.Observer
	// BuildProgress receives what a build reports; nil drops it.
	BuildProgress func(pool string, e build.Event)
	// Log takes the run's messages; nil discards them.
	Log *logrus.Entry
	// Now is the clock of the journal. Default: time.Now.
	Now func() time.Time
}

// WithDefaults fills in what is not set.
func (o Options) WithDefaults() Options {
	o.StateDir = cmp.Or(o.StateDir, DefaultStateDir)
	o.Platform = cmp.Or(o.Platform, "linux/"+runtime.GOARCH)
	if o.Observe == nil {
		o.Observe = func(journal.Event) {}
	}
	if o.BuildProgress == nil {
		o.BuildProgress = func(string, build.Event) {}
	}
	o.Log = cmp.Or(o.Log, report.NoLog())
	if o.Now == nil {
		o.Now = time.Now
	}
	return o
}

// Path is a place in the state directory.
func (o Options) Path(parts ...string) string {
	return filepath.Join(append([]string{o.StateDir}, parts...)...)
}

// PlanDir keeps the hand-over's plan.
func (o Options) PlanDir() string { return o.Path("handover") }

// Host is the host of one run: what its install directory says, and how others reach it.
type Host struct {
	Options
	In *preflight.Input
	// Registry is HOST:PORT of the embedded registry as nodes reach it; builds push to the same name.
	Registry string
	// Listen is the HOST:PORT on which it listens, Names are those of its certificate.
	Listen string
	Names  []string
	// ProveName asks the registry by the name that nodes use before anything is copied there.
	ProveName bool
	// Together builds the images of all pools at the same time, each with a storage of its own.
	Together bool
	// Images is how this host reads images that Containerfiles name, beside what the install directory says of it.
	Images preflight.Sources
	// Shared, where it is set, is the identity that this host takes on: its registry goes on as the node's own.
	Shared *clusterregistry.Shared
	// ByMCO says that MCO's own first boot is at work on the nodes, which report nothing then.
	ByMCO bool
}

// Warn logs the warnings of the install directory.
func (h Host) Warn() { LogWarnings(h.Log, h.In.Warnings) }

// LogWarnings logs those findings that are warnings.
func LogWarnings(log *logrus.Entry, findings []report.Finding) {
	for _, f := range findings {
		if f.Severity == report.Warning {
			log.WithField("place", f.Place()).WithField("rule", f.Rule).Warn(f.Message)
		}
	}
}

// BuiltHere are the pools whose images are built on the bootstrap host.
func BuiltHere(in *preflight.Input) []preflight.Pool {
	var out []preflight.Pool
	for _, p := range in.Pools {
		if p.BuildAt == installconfig.BuildAtBootstrap {
			out = append(out, p)
		}
	}
	return out
}

// FinalImage is a pool's image in its final registry, by the digest that was built here.
func FinalImage(p preflight.Pool, built *build.Result) string {
	return p.Repository + "@" + built.Digest
}
