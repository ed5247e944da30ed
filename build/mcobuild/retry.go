package mcobuild

import (
	"fmt"
	"time"

	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	corev1 "k8s.io/api/core/v1"

	"dayone.dev/dayone/build/decide"
	"dayone.dev/dayone/build/machineosbuild"
	"dayone.dev/dayone/manifests"
)

// Situation is what a decision about a retry depends on.
type Situation struct {
	Config *mcfgv1.MachineOSConfig
	// Pool may be nil: it is not there.
	Pool *mcfgv1.MachineConfigPool
	// Build is the failed one, Record what is kept of it.
	Build  *mcfgv1.MachineOSBuild
	Record Record
	// Active says that another build of the MachineOSConfig runs or begins.
	Active bool
	Now    time.Time
}

// Retry says whether dayone asks MCO for a rebuild.
type Retry struct {
	// Ask means now; After is when to look again, 0: an event will come.
	Ask   bool
	After time.Duration
	// Why is a sentence for people. It does not change as time goes by.
	Why string
}

// Backoff are the pauses before retries; the last one is for all that follow.
func Backoff() []time.Duration {
	return []time.Duration{time.Minute, 5 * time.Minute, 15 * time.Minute}
}

// Decide says whether MCO is asked for another build, and why or why not. It does not ask where MCO would not listen:
// MCO rebuilds only what the annotation current-machine-os-build names, and nothing while the pool is degraded.
func (s Situation) Decide(backoff []time.Duration) Retry {
	notes := s.Config.Annotations
	_, asked := notes[manifests.AnnotationRebuild]
	switch cause := s.Record.Cause; {
	case cause == nil || machineosbuild.StateOf(s.Build) != machineosbuild.Failed:
		return Retry{}
	case notes[manifests.AnnotationNoRetry] == "true":
		return Retry{Why: "dayone does not ask for a rebuild: annotation " + manifests.AnnotationNoRetry + " forbids it"}
	case !cause.Retry:
		return Retry{Why: "dayone does not ask for a rebuild: the cause has to be mended first"}
	case s.Record.Retries >= decide.DefaultRetryLimit && s.Record.Asked != string(s.Build.UID):
		return Retry{Why: fmt.Sprintf("dayone has asked for %d rebuilds in a row and asks no more: mend the cause, then set "+
			"annotation %s on MachineOSConfig %s", s.Record.Retries, manifests.AnnotationRebuild, s.Config.Name)}
	case asked:
		return Retry{Why: "a rebuild is requested: the Machine Config Operator has not begun it yet"}
	case s.Active:
		return Retry{Why: "another build of the pool is active"}
	case notes[manifests.AnnotationCurrentBuild] != s.Build.Name:
		return Retry{Why: "dayone does not ask for a rebuild: annotation " + manifests.AnnotationCurrentBuild +
			" does not name this build, and the Machine Config Operator would not listen"}
	}
	if why := s.held(); why != "" {
		return Retry{Why: "dayone asks for a rebuild when the pool can have one: " + why}
	}
	return s.wait(backoff)
}

// held names what keeps MCO from building for the pool.
func (s Situation) held() string {
	if s.Pool == nil {
		return "the pool is gone"
	}
	if s.Pool.Spec.Configuration.Name != s.Build.Spec.MachineConfig.Name {
		return "it has another rendered config, " + s.Pool.Spec.Configuration.Name
	}
	for _, c := range s.Pool.Status.Conditions {
		switch c.Type {
		case mcfgv1.MachineConfigPoolNodeDegraded, mcfgv1.MachineConfigPoolRenderDegraded,
			mcfgv1.MachineConfigPoolPinnedImageSetsDegraded, mcfgv1.MachineConfigPoolSynchronizerDegraded:
			if c.Status == corev1.ConditionTrue {
				return "its condition " + string(c.Type) + " is True"
			}
		}
	}
	return ""
}

// wait counts the pause from the end of the build. A rebuild that was counted and not asked for, because dayone was
// killed in between, is asked for at once.
func (s Situation) wait(backoff []time.Duration) Retry {
	if s.Record.Asked == string(s.Build.UID) {
		return Retry{Ask: true, Why: s.number(s.Record.Retries)}
	}
	r := Retry{Why: s.number(s.Record.Retries + 1)}
	ended := s.Now
	if s.Record.Ended != nil {
		ended = s.Record.Ended.Time
	}
	at := ended.Add(backoff[min(s.Record.Retries, len(backoff)-1)])
	if r.After = at.Sub(s.Now); r.After <= 0 {
		r.Ask, r.After = true, 0
	}
	r.Why += ", at " + when(at)
	return r
}

func (s Situation) number(n int) string {
	return fmt.Sprintf("dayone asks the Machine Config Operator for a rebuild: retry %d of %d", n,
		decide.DefaultRetryLimit)
}
