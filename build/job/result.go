package job

import (
	"encoding/json"
	"fmt"
	"regexp"

	"dayone.dev/dayone/build"
	"dayone.dev/dayone/build/machineosbuild"
)

// Exit codes of the builder. The Job's podFailurePolicy tells them apart.
const (
	// ExitOK: the image is in the registry and Result.Digest names it.
	ExitOK = 0
	// ExitFinal: the same pod would fail the same way: a fault in the Containerfile or configs, a limit, a registry that
	// refuses.
	ExitFinal = 42
	// ExitTryAgain: another pod may succeed: a registry that does not answer, a full disk, a builder that was killed
	// (EX_TEMPFAIL of sysexits.h).
	ExitTryAgain = 75
)

// MaxMessage is what the kubelet keeps of a termination message, in bytes; what is longer is cut in the middle of the
// JSON.
const MaxMessage = 4096

// Result is the builder's last word: its termination message.
type Result struct {
	// Digest is the image's, empty when the build failed. It comes first, so that a message that was cut still names it.
	Digest string `json:"digest,omitempty"`
	// Reused means that the registry had the image.
	Reused bool `json:"reused,omitempty"`
	// Engine made the image.
	Engine build.Engine `json:"engine,omitempty"`
	// Reason says why this engine, or why nothing was built.
	Reason string `json:"reason,omitempty"`
	// Kernels are the names of the image's kernels.
	Kernels []string `json:"kernels,omitempty"`
	// Seconds the build took.
	Seconds float64 `json:"seconds,omitempty"`
	// Log is the reference of the kept log, host:port/repository@sha256:…; empty when it could not be kept.
	Log string `json:"log,omitempty"`
	// Failure is why there is no image.
	Failure *build.Failure `json:"failure,omitempty"`
}

// ExitCode is what the builder ends with.
func (r Result) ExitCode() int {
	f := r.Failure
	switch {
	case f == nil && r.Digest != "":
		return ExitOK
	case f == nil, f.Class == build.ClassTransient:
		return ExitTryAgain
	case f.Class == build.ClassInfrastructure && f.Step == stepContainerfile:
		return ExitTryAgain // the host's fault: its disk, its memory
	}
	return ExitFinal
}

// stepContainerfile is the step in which the host does the work; all others ask registries.
const stepContainerfile = "containerfile"

// Message encodes the result in at most MaxMessage bytes: texts and lines of output lose their middle, output its
// beginning.
func (r Result) Message() []byte {
	if r.Failure != nil {
		short := *r.Failure
		short.Log = "" // a path in the pod
		r.Failure = &short
	}
	for limit := MaxMessage; ; limit /= 2 {
		if raw, ok := r.within(limit); ok || limit == 0 {
			return raw
		}
	}
}

// within encodes the result with texts of about limit bytes and with as many last lines of output as fit. Where there
// is output, its last line must be among them.
func (r Result) within(limit int) (raw []byte, ok bool) {
	r.Reason = machineosbuild.Abbreviate(r.Reason, limit)
	if r.Failure == nil {
		raw = r.encode()
		return raw, len(raw) <= MaxMessage
	}
	f := *r.Failure
	r.Failure = &f
	f.Message = machineosbuild.Abbreviate(f.Message, limit/2)
	f.Instruction, f.Next = machineosbuild.Abbreviate(f.Instruction, limit/4), machineosbuild.Abbreviate(f.Next, limit/4)
	lines := make([]string, len(f.Excerpt))
	for i, l := range f.Excerpt {
		lines[i] = machineosbuild.Abbreviate(l, limit/4)
	}
	for first := range lines {
		f.Excerpt = lines[first:]
		if raw = r.encode(); len(raw) <= MaxMessage {
			return raw, true
		}
	}
	f.Excerpt = nil
	raw = r.encode()
	return raw, len(lines) == 0 && len(raw) <= MaxMessage
}

func (r Result) encode() []byte {
	raw, err := json.Marshal(r)
	if err != nil { // no field can fail
		return []byte(`{"reason":"the result cannot be encoded"}`)
	}
	return raw
}

// validDigest is the only form that the API takes (ImageDigestFormat).
var validDigest = regexp.MustCompile(`^sha256:[0-9a-f]{64}$`)

// cutDigest finds the digest in a message that was cut off.
var cutDigest = regexp.MustCompile(`^\{"digest":"(sha256:[0-9a-f]{64})"`)

// ParseResult reads a termination message. Of one that was cut the digest is still known.
func ParseResult(message string) (Result, error) {
	var r Result
	if err := json.Unmarshal([]byte(message), &r); err != nil {
		if m := cutDigest.FindStringSubmatch(message); m != nil {
			return Result{Digest: m[1]}, nil
		}
		return Result{}, fmt.Errorf("read termination message: %w", err)
	}
	if r.Digest != "" && !validDigest.MatchString(r.Digest) {
		return Result{}, fmt.Errorf("read termination message: %q is no digest", r.Digest)
	}
	return r, nil
}
