package analyze

import (
	"fmt"
	"path"
	"regexp"
	"strings"

	"dayone.dev/dayone/bootstrap/gather/bundle"
)

// maxOutput is how many lines of a failed command are quoted.
const maxOutput = 8

// Forms of build.Failure and of a build's log (build/buildahengine).
var (
	logPath     = regexp.MustCompile(`full log: (\S+)`)
	failedPlace = regexp.MustCompile(`build failed \([a-z]+\) in \w+, line (\d+): `)
	exitCode    = regexp.MustCompile(`\(exit code (\d+)\)`)
	// enginesOwn are the lines that the engine writes among a command's own.
	enginesOwn = regexp.MustCompile(`^(RUN uses isolation |--> |subprocess exited with status \d+$|` +
		`time="[^"]*" level=|error running container: |exit status \d+$|PHASE: )`)
)

// failedRun tells of a command of the Containerfile what a user wants to know: which line it is, what the command
// itself printed, and what to do. message is the build's failure; pool is the one that is built.
func failedRun(f *facts, v Verdict, message, pool string) Verdict {
	m := failedPlace.FindStringSubmatch(message)
	if m == nil {
		return v
	}
	line := m[1]
	v.Summary = "a command of the Containerfile failed at line " + line
	run, _ := commandOf(f, message)
	if run.instruction != "" {
		v.Summary += ": " + run.instruction
	}
	if code := exitCode.FindStringSubmatch(message); code != nil {
		v.Summary += fmt.Sprintf(" (exit code %s)", code[1])
	}
	v.Summary = shorten(v.Summary)
	v.Next = fmt.Sprintf("correct line %s of the Containerfile of pool %s; try it with dayone build --dir DIR --pool %s, "+
		"then start the installation again", line, pool, pool)
	if len(run.output) > 0 {
		v.Output, v.Evidence = run.output, run.last
	}
	return v
}

// command is a command that failed, as its build's log has it.
type command struct {
	instruction string
	// output are the last lines that the command printed itself; last is the last of them.
	output []string
	last   Evidence
}

// commandOf reads the log that a failure names; false: the bundle does not have it.
func commandOf(f *facts, message string) (command, bool) {
	m := logPath.FindStringSubmatch(message)
	if m == nil {
		return command{}, false
	}
	for _, file := range f.bundle.Below(at(f.bundle, logsName)) {
		if path.Base(file.Name) == path.Base(m[1]) {
			return lastCommand(file), true
		}
	}
	return command{}, false
}

// lastCommand is the last step of a log: builds end at the first failure.
func lastCommand(file *bundle.File) (c command) {
	for n, line := range file.Lines() {
		text := shorten(line)
		if step, ok := strings.CutPrefix(text, "STEP: "); ok {
			c = command{instruction: step}
			continue
		}
		if text == "" || enginesOwn.MatchString(text) {
			continue
		}
		c.output = append(c.output, text)
		c.output = c.output[max(0, len(c.output)-maxOutput):]
		c.last = Evidence{File: file.Name, Line: n + 1, Text: text}
	}
	return c
}
