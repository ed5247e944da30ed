package report

import (
	"errors"
	"fmt"
	"sort"
	"strings"
)

// Severity says whether a finding stops the work.
type Severity string

const (
	// Error refuses the input: nothing is started.
	Error Severity = "error"
	// Warning does not stop the work; the user sees it.
	Warning Severity = "warning"
)

// Finding is one thing that is wrong or doubtful, with the place where the user can mend it.
type Finding struct {
	Severity Severity `json:"severity"`
	// File is the path as the user would open it, relative to the directory that was read.
	File string `json:"file,omitempty"`
	// Document counts the YAML documents of File from 1; 0 means the file as a whole.
	Document int `json:"document,omitempty"`
	// Line and Column count from 1; 0 means unknown.
	Line   int `json:"line,omitempty"`
	Column int `json:"column,omitempty"`
	// Path is the place inside the document, for example spec.containerFile[0].content.
	Path string `json:"path,omitempty"`
	// Rule is a short stable identifier, for example push-spec-tag, that documentation and scripts can name.
	Rule string `json:"rule"`
	// Message says what is wrong.
	Message string `json:"message"`
	// Next says what to do about it.
	Next string `json:"next,omitempty"`
}

// Place is the finding's location in the form FILE:LINE:COLUMN (document N): PATH, without the parts that are unknown.
func (f Finding) Place() string {
	var b strings.Builder
	b.WriteString(f.File)
	if f.Line > 0 {
		fmt.Fprintf(&b, ":%d", f.Line)
		if f.Column > 0 {
			fmt.Fprintf(&b, ":%d", f.Column)
		}
	}
	if f.Document > 1 {
		fmt.Fprintf(&b, " (document %d)", f.Document)
	}
	if f.Path != "" {
		if b.Len() > 0 {
			b.WriteString(": ")
		}
		b.WriteString(f.Path)
	}
	return b.String()
}

// Error renders the finding on one line: place, message, rule, next step.
func (f Finding) Error() string {
	var b strings.Builder
	if place := f.Place(); place != "" {
		b.WriteString(place + ": ")
	}
	b.WriteString(f.Message)
	if f.Rule != "" {
		fmt.Fprintf(&b, " [%s]", f.Rule)
	}
	if f.Next != "" {
		b.WriteString(" (" + f.Next + ")")
	}
	return b.String()
}

// Report is a list of findings. The zero value is empty and ready to use; it is not safe for concurrent use.
type Report struct {
	Findings []Finding `json:"findings"`
}

// Add appends findings as they are.
func (r *Report) Add(f ...Finding) { r.Findings = append(r.Findings, f...) }

// Errorf adds a refusal: place gives file, document, line, path, rule and next; the message is formatted.
func (r *Report) Errorf(place Finding, format string, args ...any) {
	place.Severity, place.Message = Error, fmt.Sprintf(format, args...)
	r.Add(place)
}

// Warnf adds a warning in the same way.
func (r *Report) Warnf(place Finding, format string, args ...any) {
	place.Severity, place.Message = Warning, fmt.Sprintf(format, args...)
	r.Add(place)
}

// Warnings returns the findings that do not refuse the input.
func (r *Report) Warnings() []Finding {
	return r.of(Warning)
}

// of returns the findings of one severity, each once: two objects may lead to the same fault.
func (r *Report) of(s Severity) []Finding {
	var out []Finding
	seen := map[Finding]bool{}
	for _, f := range r.Findings {
		if f.Severity == s && !seen[f] {
			seen[f] = true
			out = append(out, f)
		}
	}
	return out
}

// Err returns nil when nothing refuses the input, else an *Invalid with every refusal in order of file and line.
func (r *Report) Err() error {
	bad := r.of(Error)
	if len(bad) == 0 {
		return nil
	}
	sort.SliceStable(bad, func(i, j int) bool {
		if bad[i].File != bad[j].File {
			return bad[i].File < bad[j].File
		}
		return bad[i].Line < bad[j].Line
	})
	return &Invalid{Findings: bad}
}

// Invalid is the error for refused input; callers that print JSON branch on it with errors.As.
type Invalid struct{ Findings []Finding }

// Error lists every refusal on a line of its own.
func (e *Invalid) Error() string {
	lines := make([]string, 0, len(e.Findings))
	for _, f := range e.Findings {
		lines = append(lines, f.Error())
	}
	return strings.Join(lines, "\n")
}

// Of returns the findings behind err: those of an *Invalid or a single Finding, else nil.
func Of(err error) []Finding {
	if invalid, ok := errors.AsType[*Invalid](err); ok {
		return invalid.Findings
	}
	if one, ok := errors.AsType[Finding](err); ok {
		if one.Severity == "" {
			one.Severity = Error // what is returned as an error refuses
		}
		return []Finding{one}
	}
	return nil
}
