package machineosbuild

import (
	"regexp"
	"strconv"
	"strings"

	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"dayone.dev/dayone/build"
)

// Cause is why a build is in its state. It holds no secret. The zero value says nothing beyond the state itself.
type Cause struct {
	// Reason is one word in CamelCase for programs; default is the state's name.
	Reason string
	// Class says who can mend a failure; empty for what is no failure.
	Class build.Class
	// Line and Instruction are the place in the Containerfile; 0 and empty when it is not to blame.
	Line        int
	Instruction string
	// ExitCode is that of the command that failed, 0 when none did.
	ExitCode int
	// Excerpt is the end of the failed step's output.
	Excerpt []string
	// Next says what to do.
	Next string
	// Log names the full log: a reference in a registry.
	Log string
	// Message is the cause in a sentence.
	Message string
}

// Limits of a rendered cause in bytes. A condition's message has at most 32768 characters (metav1.Condition); a status
// with five conditions also has to be read by people.
const (
	maxText    = 30 << 10
	maxMessage = 4 << 10
	maxField   = 2 << 10
	maxLine    = 512
)

// maxReason is the API's bound on a reason (metav1.Condition).
const maxReason = 1024

// FromFailure takes over what the builder says.
func FromFailure(f *build.Failure) Cause {
	return Cause{
		Reason: reasonOf(f), Class: f.Class, Line: f.Line, Instruction: f.Instruction, ExitCode: f.ExitCode,
		Excerpt: f.Excerpt, Next: f.Next, Message: f.Message,
	}
}

// Failure is the cause of a failed build as the builder said it, as far as it is known still.
func (c Cause) Failure() *build.Failure {
	return &build.Failure{Class: c.Class, Step: stepOf(c.Reason), Message: c.Message, Line: c.Line,
		Instruction: c.Instruction, ExitCode: c.ExitCode, Excerpt: c.Excerpt, Next: c.Next, Log: c.Log}
}

// stepOf is the step of a reason that reasonOf made; a pod that was ended from outside was at none.
func stepOf(reason string) string {
	if step, found := strings.CutSuffix(reason, string(Failed)); found && step != "" {
		return strings.ToLower(step)
	}
	return "pod"
}

// reasonOf names the step that failed: ContainerfileFailed, PushFailed.
func reasonOf(f *build.Failure) string {
	if f.Step == "" {
		return string(Failed)
	}
	return strings.ToUpper(f.Step[:1]) + f.Step[1:] + "Failed"
}

// CauseOf reads the cause of the state in which a build is; the zero Cause when the build has none.
func CauseOf(b *mcfgv1.MachineOSBuild) Cause {
	c := find(b.Status.Conditions, string(StateOf(b)))
	if c == nil || c.Status != metav1.ConditionTrue {
		return Cause{}
	}
	cause := ParseCause(c.Message)
	cause.Reason = c.Reason
	return cause
}

// validReason is the API's rule for a condition's reason.
var validReason = regexp.MustCompile(`^[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?$`)

func (c Cause) reason(s State) string {
	if len(c.Reason) > maxReason || !validReason.MatchString(c.Reason) {
		return string(s)
	}
	return c.Reason
}

// Keys of the rendered form, in their order.
const (
	keyClass  = "class"
	keyLine   = "line"
	keyExit   = "exit code"
	keyNext   = "next"
	keyLog    = "log"
	keyOutput = "output"
)

// indent marks lines that go on with what the line before began.
const indent = "  "

// text renders the cause: the message first, then one line for each field, the output last. It is meant to be read by
// people as it stands and by ParseCause.
func (c Cause) text(s State) string {
	if c.Message == "" {
		c.Message = present(s)
	}
	return c.Text()
}

// Text renders the cause in at most 30 KiB of valid UTF-8. Long fields lose their middle, long output its beginning.
func (c Cause) Text() string {
	var b strings.Builder
	b.WriteString(hang(Abbreviate(c.Message, maxMessage)))
	field := func(key, value string) {
		if value != "" {
			b.WriteString("\n" + key + ": " + hang(Abbreviate(value, maxField)))
		}
	}
	if c.Line > 0 {
		field(keyLine, strings.TrimSpace(strconv.Itoa(c.Line)+" "+c.Instruction))
	}
	if c.ExitCode != 0 {
		field(keyExit, strconv.Itoa(c.ExitCode))
	}
	field(keyClass, string(c.Class))
	field(keyNext, c.Next)
	field(keyLog, c.Log)
	if lines := lastLines(c.Excerpt, maxText-b.Len()-len(keyOutput)-2); len(lines) > 0 {
		b.WriteString("\n" + keyOutput + ":")
		for _, l := range lines {
			b.WriteString("\n" + indent + l)
		}
	}
	return b.String()
}

// hang indents every line but the first.
func hang(s string) string {
	return strings.ReplaceAll(strings.TrimRight(s, "\n"), "\n", "\n"+indent)
}

// Abbreviate makes valid UTF-8 of at most limit bytes, or of the gap alone, and takes the middle out of longer text.
func Abbreviate(s string, limit int) string {
	s = strings.ToValidUTF8(s, "?")
	if len(s) <= limit {
		return s
	}
	const gap = "…"
	half := max(0, limit-len(gap)) / 2
	return strings.ToValidUTF8(s[:half], "") + gap + strings.ToValidUTF8(s[len(s)-half:], "")
}

// lastLines are the last lines of output that fit into so many bytes.
func lastLines(excerpt []string, room int) []string {
	var all []string
	for _, e := range excerpt {
		all = append(all, strings.Split(e, "\n")...)
	}
	first := len(all)
	for first > 0 {
		all[first-1] = Abbreviate(all[first-1], maxLine)
		if room -= len(all[first-1]) + len(indent) + 1; room < 0 {
			break
		}
		first--
	}
	return all[first:]
}

// ParseCause reads what Text wrote. Text of others comes back as Message alone.
func ParseCause(text string) Cause {
	var c Cause
	var message, block []string
	key, into := "", &message
	flush := func() bool { return key == "" || c.set(key, block) }
	for i, l := range strings.Split(text, "\n") {
		if i == 0 {
			message = append(message, l)
			continue
		}
		if rest, ok := strings.CutPrefix(l, indent); ok {
			*into = append(*into, rest)
			continue
		}
		next, value, ok := strings.Cut(l, ":")
		if !ok || !flush() {
			return Cause{Message: text}
		}
		key, block, into = next, nil, &block
		if value = strings.TrimPrefix(value, " "); value != "" {
			block = append(block, value)
		}
	}
	if !flush() {
		return Cause{Message: text}
	}
	c.Message = strings.Join(message, "\n")
	return c
}

// set takes one field; false means that it is none of ours.
func (c *Cause) set(key string, block []string) bool {
	value := strings.Join(block, "\n")
	switch key {
	case keyClass:
		c.Class = build.Class(value)
	case keyLine:
		number, instruction, _ := strings.Cut(value, " ")
		n, err := strconv.Atoi(number)
		if err != nil {
			return false
		}
		c.Line, c.Instruction = n, instruction
	case keyExit:
		n, err := strconv.Atoi(value)
		if err != nil {
			return false
		}
		c.ExitCode = n
	case keyNext:
		c.Next = value
	case keyLog:
		c.Log = value
	case keyOutput:
		c.Excerpt = block
	default:
		return false
	}
	return true
}
