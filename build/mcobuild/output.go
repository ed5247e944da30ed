package mcobuild

import (
	"cmp"
	"regexp"
	"strconv"
	"strings"

	"dayone.dev/dayone/build"
)

// Steps of a build, as in build.Failure.
const (
	stepRequest       = "request"
	stepContainerfile = "containerfile"
	stepPush          = "push"
	stepDigest        = "digest"
)

// output is what buildah's output says about the place where it ended.
type output struct {
	// step is stepContainerfile or stepPush.
	step string
	// stage and stages, number: the instruction at work; 0: unknown. FROM has number 1.
	stage, stages, number int
	instruction           string
	// excerpt are the last lines of the step at work.
	excerpt []string
	// failure is the last error that buildah printed.
	failure string
}

var (
	// stepLine is how buildah announces an instruction: [stage/stages] STEP number/count: text.
	stepLine = regexp.MustCompile(`^(?:\[(\d+)/(\d+)\] )?STEP (\d+)(?:/\d+)?: (.*)$`)
	// errorLine is the last word of buildah.
	errorLine = regexp.MustCompile(`^(?:Error|error): (.+)$`)
	// errorEntry is the same as an entry of its log.
	errorEntry = regexp.MustCompile(`^time="[^"]*" level=(?:error|fatal) msg="(.*)"$`)
	// detail are the entries that --log-level=DEBUG adds.
	detail = regexp.MustCompile(`^time="[^"]*" level=(?:debug|trace|info) `)
	// atStep is in the error of an instruction.
	atStep = regexp.MustCompile(`building at STEP "`)
)

// read goes through the output of MCO's build script, which prints its commands as it runs them.
func read(text string) output {
	o := output{step: stepContainerfile}
	for line := range strings.Lines(text) {
		o.take(strings.TrimRight(line, "\r\n"))
	}
	return o
}

func (o *output) take(line string) {
	switch m := stepLine.FindStringSubmatch(line); {
	case detail.MatchString(line):
		return
	case m != nil:
		o.stage, o.stages, o.number = number(m[1]), number(m[2]), number(m[3])
		o.instruction, o.step, o.excerpt, o.failure = m[4], stepContainerfile, nil, ""
		return
	case strings.HasPrefix(line, "+ buildah push"):
		*o = output{step: stepPush}
		return
	case strings.TrimSpace(line) == "":
		return
	}
	for _, form := range []*regexp.Regexp{errorLine, errorEntry} {
		if m := form.FindStringSubmatch(line); m != nil {
			o.failure = strings.ReplaceAll(m[1], `\"`, `"`)
		}
	}
	if o.excerpt = append(o.excerpt, line); len(o.excerpt) > build.ExcerptLines {
		o.excerpt = o.excerpt[1:]
	}
}

func number(digits string) int {
	n, _ := strconv.Atoi(digits) // a number too long is none
	return n
}

// inRun says whether the command of a RUN failed.
func (o output) inRun() bool {
	return o.step == stepContainerfile && strings.HasPrefix(strings.ToUpper(o.instruction), "RUN") &&
		(o.failure == "" || atStep.MatchString(o.failure))
}

// text is what buildah said last, or else the last line.
func (o output) text() string {
	last := ""
	if len(o.excerpt) > 0 {
		last = o.excerpt[len(o.excerpt)-1]
	}
	return cmp.Or(o.failure, last, "it printed nothing")
}
