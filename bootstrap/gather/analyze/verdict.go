package analyze

import (
	"slices"
	"strings"
	"time"

	"dayone.dev/dayone/bootstrap/gather/bundle"
)

// Bundle analyses a bundle. It never fails: the report says what the bundle lacks.
func Bundle(b *bundle.Bundle) *Report {
	f, notes := readFacts(b)
	r := &Report{Bundle: shorten(b.Name), Phases: phases(f), Differences: differences(b), Nodes: f.nodes}
	switch {
	case f.kept:
		notes = append(notes, "journal, nodes and build logs are as they were at "+
			f.status.Gathered.UTC().Format(time.DateTime)+" UTC: dayone keeps them for this bundle once a minute")
	case f.status != nil:
		r.Gathered = f.status.Gathered
	}
	var more []string
	r.Builds, more = builds(f.journal)
	notes = append(notes, more...)
	r.Timeline, more = timeline(f, r)
	notes = append(notes, more...)
	verdicts := verdicts(f)
	r.Verdict, r.Also = verdicts[0], verdicts[1:]
	r.Notes = append(notes, f.ownRun.remarks()...)
	return r
}

// rule is a verdict on dayone's bootstrap, or that the rule does not apply.
type rule func(*facts) (Verdict, bool)

// rules in the order in which they are tried: the first that applies counts, what explains more comes first. The last
// one always applies.
func rules() []rule {
	return []rule{fellBack, stopRequested, refused, phaseFailed, serviceFailed, cutOff, cutOffBetween, handedOver,
		nodeInTrouble, waiting, recordsOnly, cluster, notStarted, noJournal, serving}
}

// verdicts are those on everything that went wrong, the one that explains most first, or the one that nothing did.
func verdicts(f *facts) []Verdict {
	var own Verdict
	for _, judge := range rules() {
		if v, ok := judge(f); ok {
			own = v
			break
		}
	}
	var others []Verdict
	for _, s := range f.services {
		if v, ok := serviceFault(f, s); ok && s.name != ownService {
			others = append(others, v)
		}
	}
	// Dayone's own services before the installer's, which wait for them.
	slices.SortStableFunc(others, func(a, b Verdict) int { return foreign(a) - foreign(b) })
	switch {
	case own.Status == StatusDegraded:
		return append(clusterFaults(f), others...)
	case own.Bad():
		return append([]Verdict{own}, others...)
	case len(others) > 0 && f.absent:
		return others
	case len(others) > 0:
		return append(others, own)
	}
	return []Verdict{own}
}

func foreign(v Verdict) int {
	if strings.HasPrefix(v.Phase, "dayone") {
		return 0
	}
	return 1
}
