package containerfile

import (
	"errors"
	"slices"
	"strings"
	"unicode/utf8"

	"dayone.dev/dayone/installconfig/report"
)

// maxLength is the longest content of a MachineOSConfig's containerFile, in characters
// (API: machineconfiguration.openshift.io/v1, MachineOSContainerfile.content, maxLength 4096).
const maxLength = 4096

// LintOptions of Lint. The zero value is right for a MachineOSConfig.
type LintOptions struct {
	// Place names the file, document and path of the Containerfile; its Line is that of the line before the text's first,
	// 0 for a file of its own.
	Place report.Finding
	// Contexts are names of further images that may be used.
	Contexts []string
}

// linter collects findings.
type linter struct {
	o      LintOptions
	report report.Report
	file   *File
}

// Lint checks a Containerfile before anything runs. The file is nil when it cannot be parsed. Findings are in order of
// lines.
func Lint(text string, o LintOptions) (*File, []report.Finding) {
	l := &linter{o: o}
	if n := utf8.RuneCountInString(text); n > maxLength {
		l.refuse(0, "containerfile-length", "move files into an image and use COPY --from",
			"%d characters; the API allows %d", n, maxLength)
		return nil, l.report.Findings
	}
	if at := strings.IndexFunc(text, func(r rune) bool { return r == utf8.RuneError || r == 0 }); at >= 0 {
		l.refuse(1+strings.Count(text[:at], "\n"), "syntax", "write it as UTF-8 text",
			"the line holds bytes that are no text")
		return nil, l.report.Findings
	}
	file, err := Parse(text)
	if syntax, ok := errors.AsType[*syntaxError](err); ok {
		l.refuse(syntax.Line, "syntax", "fix the line", "%s", syntax.Message)
		return nil, l.report.Findings
	}
	l.file = file
	l.shape()
	for i, s := range file.Stages {
		for _, in := range s.Instructions {
			l.instruction(in, i)
		}
	}
	for _, in := range file.Heading {
		if in.Keyword != "ARG" {
			l.refuse(in.Line, "before-from", "begin with FROM configs", "%s stands before the first FROM", in.Keyword)
		}
		l.credentials(in)
	}
	l.images()
	slices.SortStableFunc(l.report.Findings, func(a, b report.Finding) int { return a.Line - b.Line })
	return file, l.report.Findings
}

func (l *linter) at(line int, rule, next string) report.Finding {
	f := l.o.Place
	if line > 0 {
		f.Line += line
	}
	f.Rule, f.Next = rule, next
	return f
}

func (l *linter) refuse(line int, rule, next, format string, args ...any) {
	l.report.Errorf(l.at(line, rule, next), format, args...)
}

func (l *linter) warn(line int, rule, next, format string, args ...any) {
	l.report.Warnf(l.at(line, rule, next), format, args...)
}

// shape checks stages: there is one, and the last comes from configs.
func (l *linter) shape() {
	if len(l.file.Stages) == 0 {
		l.refuse(0, "final-stage", "begin the last stage with FROM configs", "the Containerfile has no stage")
		return
	}
	for i, s := range l.file.Stages {
		if s.From == "" {
			l.refuse(s.Line, "arguments", "name an image or stage", "FROM names nothing")
			return
		}
		if s.Name == Configs || s.Name == Base {
			l.refuse(s.Line, "reserved-name", "choose another name for the stage",
				"stage %d is named %s, which is the name of an image of the build", i+1, s.Name)
		}
	}
	final := l.file.Final()
	if origin := l.file.Origin(len(l.file.Stages) - 1); origin != Configs {
		l.refuse(final.Line, "from-configs", "begin the last stage with FROM configs",
			"the final stage comes from %s and would not have the rendered config", origin)
	}
}

// minimum arguments of instructions.
func arguments(keyword string) int {
	switch keyword {
	case "COPY", "ADD":
		return 2
	case "RUN", "ENV", "LABEL", "ARG", "USER", "WORKDIR", "EXPOSE", "VOLUME", "STOPSIGNAL", "SHELL":
		return 1
	}
	return 0
}

func (l *linter) instruction(in Instruction, stage int) {
	switch {
	case !known(in.Keyword):
		l.refuse(in.Line, "unknown-instruction", "see the list of instructions in containers' Containerfile(5)",
			"unknown instruction %s", in.Keyword)
		return
	case len(in.Args) < arguments(in.Keyword):
		l.refuse(in.Line, "arguments", "complete the instruction", "%s needs at least %d arguments", in.Keyword,
			arguments(in.Keyword))
		return
	}
	l.credentials(in)
	final := stage == len(l.file.Stages)-1
	switch in.Keyword {
	case "COPY", "ADD":
		l.copying(in)
		if final {
			l.destination(in)
		}
	case "RUN":
		if final {
			l.running(in)
		}
	}
}

// copying checks where files come from: a MachineOSConfig has no build context.
func (l *linter) copying(in Instruction) {
	if from, ok := in.flag("from"); ok {
		if from == "" {
			l.refuse(in.Line, "arguments", "name an image or stage", "--from names nothing")
		}
		return
	}
	for k, source := range in.Args[:len(in.Args)-1] {
		remote := in.Keyword == "ADD" && (strings.HasPrefix(source, "https://") || strings.HasPrefix(source, "http://"))
		if remote {
			if _, pinned := in.flag("checksum"); !pinned {
				l.warn(in.Line, "unpinned-download", "add --checksum=sha256:…",
					"%s may return something else tomorrow: two builds of one request can differ", source)
			}
			continue
		}
		if k < len(in.Heredocs) && strings.HasPrefix(source, "<<") {
			continue
		}
		l.refuse(in.Line, "build-context", "write the file inline (COPY <<EOF path), or COPY --from an image",
			"a MachineOSConfig has no build context to copy %s from", source)
	}
}

// images checks names in FROM, --from and --mount.
func (l *linter) images() {
	for _, use := range l.file.Images() {
		name := use.Name
		switch {
		case name == Configs, name == Base, name == Extensions, name == "scratch", slices.Contains(l.o.Contexts, name),
			strings.Contains(name, "$"):
		case strings.Contains(name, "@sha256:"):
			l.qualified(use)
		default:
			if l.qualified(use) {
				l.warn(use.Line, "unpinned-image", "name it by digest (…@sha256:…)",
					"%s is named by tag: the address of the build does not cover what it holds", name)
			}
		}
	}
}

// qualified refuses names without a registry: nothing on a bootstrap host says where they would come from.
func (l *linter) qualified(use Use) bool {
	host, rest, ok := strings.Cut(use.Name, "/")
	if ok && rest != "" && (strings.ContainsAny(host, ".:") || host == "localhost") {
		return true
	}
	l.refuse(use.Line, "unknown-image", "name a stage, configs, base, or an image with its registry",
		"%s is neither a stage nor an image with a registry", use.Name)
	return false
}

// Select picks the Containerfile for an architecture (Go's name) out of entries by architecture as the API names them:
// NoArch, AMD64, ARM64, PPC64LE, S390X. An entry for the architecture wins over NoArch; an empty key is NoArch.
func Select(byArchitecture map[string]string, goarch string) (text string, ok bool) {
	if text, ok = byArchitecture[strings.ToUpper(goarch)]; ok {
		return text, true
	}
	for _, none := range []string{"NoArch", ""} {
		if text, ok = byArchitecture[none]; ok {
			return text, true
		}
	}
	return "", false
}
