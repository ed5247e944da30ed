package analyze

import (
	"encoding/json"
	"fmt"
	"path"
	"strings"
	"time"

	"dayone.dev/dayone/bootstrap/gather/bundle"
	"dayone.dev/dayone/bootstrap/handover"
	"dayone.dev/dayone/bootstrap/journal"
	"dayone.dev/dayone/bootstrap/nodes"
)

// Places of the files, as gather writes them.
const (
	ownDir      = "bootstrap/dayone"
	journalName = ownDir + "/" + journal.File
	outcomeName = ownDir + "/" + journal.OutcomeFile
	statusName  = ownDir + "/status.json"
	handedName  = ownDir + "/" + handover.MarkFile
	logsName    = ownDir + "/build-logs"
	nodesName   = ownDir + "/" + nodes.File

	renderedDir  = "rendered-assets/dayone"
	servicesName = "bootstrap/services"
	// keptDir is where the installer's own bundle has copies of these files (gather.Keep).
	keptDir = servicesName + "/dayone.d"

	configsFile = "resources/machineosconfigs.json"
	buildsFile  = "resources/machineosbuilds.json"
	poolsFile   = "resources/machineconfigpools.json"
	nodesFile   = "resources/nodes.json"
)

// facts are what a bundle holds, decoded. Anything may be missing; rules only read them.
type facts struct {
	bundle  *bundle.Bundle
	journal *journal.Journal
	outcome *journal.Outcome
	status  *hostStatus
	// services are the installer's records by service, in the order of their names.
	services []service
	// ownRun is the last start of dayone's own service on an installer's node; nil when there are no records of it.
	ownRun *lastRun
	// handed is the hand-over's mark; nil where there is none.
	handed *handover.Mark
	// objects are those of a cluster's bundle, by file.
	objects map[string][]clusterObject
	// stopped is the phase at which the journal ends: the first that failed or was running; nil: none.
	stopped *journal.Record
	// nodes are those that have come to this host.
	nodes []nodes.View
	// running says that a bootstrap was running when the bundle was made; an installer's bundle of an earlier version does
	// not say.
	running bool
	// kept says that journal and status are copies of the installer's own bundle, up to a minute older than the records.
	kept bool
	// done says that the bootstrap host may go.
	done bool
	// absent says that the bundle has nothing of dayone.
	absent bool
}

// hostStatus is gather.HostStatus as far as it is read: what a bundle holds is input.
type hostStatus struct {
	Gathered time.Time `json:"gathered"`
	Running  bool      `json:"running"`
	// DiskFree and DiskTotal are of the state directory's disk, in bytes.
	DiskFree  uint64 `json:"diskFree"`
	DiskTotal uint64 `json:"diskTotal"`
}

// clusterObject is an object of a cluster's bundle as far as it is read.
type clusterObject struct {
	Metadata struct {
		Name        string            `json:"name"`
		Created     time.Time         `json:"creationTimestamp"`
		Annotations map[string]string `json:"annotations"`
	} `json:"metadata"`
	Spec struct {
		MachineOSConfig struct {
			Name string `json:"name"`
		} `json:"machineOSConfig"`
	} `json:"spec"`
	Status struct {
		Conditions []clusterCondition `json:"conditions"`
	} `json:"status"`
}

type clusterCondition struct{ Type, Status, Reason, Message string }

// readFacts decodes a bundle. The notes say what is damaged.
func readFacts(b *bundle.Bundle) (f *facts, notes []string) {
	f = &facts{bundle: b, objects: map[string][]clusterObject{}}
	if b.Damage != "" {
		notes = append(notes, b.Damage)
	}
	f.journal = decode[journal.Journal](b, at(b, journalName), &notes)
	f.outcome = decode[journal.Outcome](b, at(b, outcomeName), &notes)
	f.status = decode[hostStatus](b, at(b, statusName), &notes)
	f.handed = decode[handover.Mark](b, at(b, handedName), &notes)
	f.kept = f.status != nil && at(b, statusName) != statusName
	for _, name := range []string{configsFile, buildsFile, poolsFile, nodesFile} {
		if list := decode[struct{ Items []clusterObject }](b, name, &notes); list != nil {
			f.objects[name] = list.Items
		}
	}
	f.nodes = readNodes(f, &notes)
	f.services = readServices(b)
	for _, s := range f.services {
		if s.name == ownService {
			f.ownRun = s.last()
		}
	}
	if f.journal != nil {
		f.stopped = stoppedPhase(f.journal.Records)
	}
	f.running = f.status != nil && f.status.Running && !(f.kept && f.ended())
	f.done = f.handed != nil || f.ownRun != nil && f.ownRun.done["hand-over"]
	f.absent = f.journal == nil && f.outcome == nil && f.ownRun == nil
	return f, notes
}

// ended says that dayone's service has ended, whatever an older copy of its state says.
func (f *facts) ended() bool {
	return f.ownRun != nil && f.ownRun.ended || f.bundle.Get(failedUnit(ownService)) != nil
}

// at is where a bundle has a file or directory that gather writes: its place, or that of the copy in the installer's
// own bundle.
func at(b *bundle.Bundle, name string) string {
	kept := keptDir + strings.TrimPrefix(name, ownDir)
	if inside, ok := strings.CutPrefix(name, renderedDir); ok {
		kept = keptDir + "/rendered" + inside
	}
	has := func(name string) bool { return b.Get(name) != nil || len(b.Below(name)) > 0 }
	if !has(name) && has(kept) {
		return kept
	}
	return name
}

// decode reads a JSON file of the bundle; nil when it is missing or damaged.
func decode[T any](b *bundle.Bundle, name string, notes *[]string) *T {
	file := b.Get(name)
	if file == nil {
		return nil
	}
	into := new(T)
	if err := json.Unmarshal(file.Content, into); err != nil {
		*notes = append(*notes, fmt.Sprintf("%s cannot be read: %v", name, err))
		return nil
	}
	return into
}

// maxEntries bounds the records of one service, of which the last count.
const maxEntries = 20_000

func readServices(b *bundle.Bundle) (out []service) {
	for _, file := range b.Below(servicesName) {
		if path.Ext(file.Name) != ".json" || strings.Count(file.Name, "/") != 2 {
			continue
		}
		s := service{name: strings.TrimSuffix(path.Base(file.Name), ".json"), file: file.Name}
		if err := json.Unmarshal(file.Content, &s.entries); err != nil {
			continue // dayone's own status files lie there, too
		}
		s.entries = s.entries[max(0, len(s.entries)-maxEntries):]
		out = append(out, s)
	}
	return out
}

// stoppedPhase skips interrupted phases: an earlier process was killed there, and the last one has not reached them.
func stoppedPhase(records []journal.Record) *journal.Record {
	for i := range records {
		if r := &records[i]; r.Status == journal.StatusFailed || r.Status == journal.StatusRunning {
			return r
		}
	}
	return nil
}

// phase is where the bootstrap was: by its journal, else by its records.
func (f *facts) phase() string {
	switch {
	case f.kept && f.ownRun != nil && f.ownRun.open:
		return shorten(f.ownRun.stage)
	case f.stopped != nil:
		return shorten(f.stopped.Name)
	case f.ownRun != nil && f.ownRun.open:
		return shorten(f.ownRun.stage)
	}
	return ""
}

// evidence is the first line of one of gather's files that holds a text, shown as another.
func (f *facts) evidence(name, has, text string) Evidence {
	file := at(f.bundle, name)
	return Evidence{File: file, Line: f.line(file, has), Text: text}
}

// line is the number of the first line of a file that holds a text; 0: none does.
func (f *facts) line(name, text string) int {
	for n, line := range f.bundle.Get(name).Lines() {
		if strings.Contains(line, text) {
			return n + 1
		}
	}
	return 0
}
