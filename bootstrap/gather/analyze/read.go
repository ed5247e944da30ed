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
)

// hostStatus is gather.HostStatus as far as it is read: what a bundle holds is input.
type hostStatus struct {
	Gathered time.Time `json:"gathered"`
	Running  bool      `json:"running"`
	// DiskFree and DiskTotal are of the state directory's disk, in bytes.
	DiskFree  uint64 `json:"diskFree"`
	DiskTotal uint64 `json:"diskTotal"`
}

func (s *hostStatus) full() bool { return s != nil && s.DiskTotal > 0 && s.DiskFree < fullDisk }

// facts are what a bundle holds, decoded. Anything may be missing.
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
	notes  []string
}

// Places of the files, as gather writes them.
const (
	journalName  = "bootstrap/dayone/" + journal.File
	outcomeName  = "bootstrap/dayone/" + journal.OutcomeFile
	statusName   = "bootstrap/dayone/status.json"
	servicesName = "bootstrap/services"
	handedName   = "bootstrap/dayone/" + handover.MarkFile
	logsName     = "bootstrap/dayone/build-logs"
)

func readFacts(b *bundle.Bundle) *facts {
	f := &facts{bundle: b}
	if b.Damage != "" {
		f.notes = append(f.notes, b.Damage)
	}
	if j := (&journal.Journal{}); f.decode(journalName, j) {
		f.journal = j
	}
	if o := (&journal.Outcome{}); f.decode(outcomeName, o) {
		f.outcome = o
	}
	if s := (&hostStatus{}); f.decode(statusName, s) {
		f.status = s
	}
	if h := (&handover.Mark{}); f.decode(handedName, h) {
		f.handed = h
	}
	for _, file := range b.Below(servicesName) {
		if path.Ext(file.Name) != ".json" || strings.Count(file.Name, "/") != 2 {
			continue
		}
		s := service{name: strings.TrimSuffix(path.Base(file.Name), ".json"), file: file.Name}
		if err := json.Unmarshal(file.Content, &s.entries); err != nil {
			continue // dayone's own status files lie there, too
		}
		s.entries = s.entries[max(0, len(s.entries)-maxEntries):]
		f.services = append(f.services, s)
		if s.name == ownService {
			f.ownRun = s.last()
		}
	}
	return f
}

// decode reads a JSON file of the bundle; what is damaged is noted.
func (f *facts) decode(name string, into any) bool {
	file := f.bundle.Get(name)
	if file == nil {
		return false
	}
	if err := json.Unmarshal(file.Content, into); err != nil {
		f.notes = append(f.notes, fmt.Sprintf("%s cannot be read: %v", name, err))
		return false
	}
	return true
}

// find is the first line of a file that holds a text.
func (f *facts) find(name, text string) (Evidence, bool) {
	if text == "" {
		return Evidence{}, false
	}
	for n, line := range f.bundle.Get(name).Lines() {
		if strings.Contains(line, text) {
			return Evidence{File: name, Line: n + 1, Text: shorten(line)}, true
		}
	}
	return Evidence{}, false
}

// maxText bounds what is quoted, in characters.
const maxText = 400

// shorten makes one line of a text that a terminal can show.
func shorten(text string) string {
	text = strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f || r >= 0x80 && r < 0xa0 {
			return ' '
		}
		return r
	}, strings.TrimSpace(text))
	if r := []rune(text); len(r) > maxText {
		return string(r[:maxText-1]) + "…"
	}
	return text
}

// headText is how much of a long text's beginning is quoted before the part that tells the cause, in characters.
const headText = 120

// quote is shorten for evidence: of a text that is too long it keeps the beginning and what tells the cause.
func quote(text string) string {
	line := shorten(text)
	says := explain(text).says
	if says == nil || says.MatchString(line) {
		return line
	}
	at := says.FindStringIndex(text)
	if at == nil {
		return line
	}
	head, tail := []rune(text[:at[0]]), []rune(text[at[0]:])
	before := head[max(0, len(head)-headText):]
	return shorten(string(head[:min(headText, len(head))]) + " … " + string(before) +
		string(tail[:min(len(tail), headText)]))
}
