package build

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strings"
	"syscall"

	"dayone.dev/dayone/build/appendengine"
	"dayone.dev/dayone/build/basetree"
	"dayone.dev/dayone/installconfig/report"
)

// Class says who can fix a failed build.
type Class string

const (
	// ClassUser is a fault in the Containerfile or the configs. The build does not repeat it.
	ClassUser Class = "user"
	// ClassTransient is a fault that goes away: a registry that does not answer, a name that does not resolve.
	ClassTransient Class = "transient"
	// ClassInfrastructure is a fault of this host or of the registry's set-up: disk full, wrong credentials, no such base.
	ClassInfrastructure Class = "infrastructure"
	// ClassPolicy is a limit or a rule that the build went over: time, disk, an image that no node could boot.
	ClassPolicy Class = "policy"
)

// ExcerptLines is how many lines of the failed step's output a Failure carries.
const ExcerptLines = 40

// Failure is why a build failed and what to do about it. It can be written as JSON; it holds no secret.
type Failure struct {
	Class Class `json:"class"`
	// Step names what was being done: request, base, config, containerfile, push, seal or check.
	Step string `json:"step"`
	// Message is the cause in one sentence.
	Message string `json:"message"`
	// Line and Instruction are the place in the user's Containerfile; 0 and empty when it is not to blame.
	Line        int    `json:"line,omitempty"`
	Instruction string `json:"instruction,omitempty"`
	// ExitCode is the command's, 0 when none failed.
	ExitCode int `json:"exitCode,omitempty"`
	// Excerpt is the end of the failed step's output, at most ExcerptLines.
	Excerpt []string `json:"excerpt,omitempty"`
	// Next says what to do.
	Next string `json:"next,omitempty"`
	// Log is the path of the full log on this host.
	Log string `json:"log,omitempty"`
	// Attempts is how often it was tried.
	Attempts int `json:"attempts,omitempty"`
	// Cause is the error behind it.
	Cause error `json:"-"`
}

// Error is one line: class, place, message and next step. The excerpt is not in it.
func (f *Failure) Error() string {
	var b strings.Builder
	fmt.Fprintf(&b, "build failed (%s) in %s", f.Class, f.Step)
	if f.Line > 0 {
		fmt.Fprintf(&b, ", line %d: %s", f.Line, f.Instruction)
	}
	b.WriteString(": " + f.Message)
	if f.ExitCode != 0 {
		fmt.Fprintf(&b, " (exit code %d)", f.ExitCode)
	}
	if f.Next != "" {
		b.WriteString("; " + f.Next)
	}
	if f.Log != "" {
		b.WriteString("; full log: " + f.Log)
	}
	return b.String()
}

// Unwrap gives the cause.
func (f *Failure) Unwrap() error { return f.Cause }

// AsFailure gives the Failure behind an error, or nil.
func AsFailure(err error) *Failure {
	if f, ok := errors.AsType[*Failure](err); ok {
		return f
	}
	return nil
}

// asFailure gives every error of a build its class.
func asFailure(step string, err error) *Failure {
	if f := AsFailure(err); f != nil {
		return f
	}
	f := &Failure{Class: ClassInfrastructure, Step: step, Message: err.Error(), Cause: err}
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		f.Class, f.Next = ClassPolicy, "raise the time limit"
	case errors.Is(err, context.Canceled):
		f.Next = "start the build again"
	}
	return f
}

// invalid is a failure of the request itself.
func invalid(field, message, next string) error {
	return &Failure{Class: ClassUser, Step: "request", Message: field + ": " + message, Next: next}
}

// refused wraps findings; line and instruction are those of the first.
func refused(step string, err error, next string) *Failure {
	f := &Failure{Class: ClassUser, Step: step, Message: err.Error(), Next: next, Cause: err}
	if list := report.Of(err); len(list) > 0 {
		f.Line = list[0].Line
		if list[0].Next != "" {
			f.Next = ""
		}
	}
	return f
}

// registryFailure tells errors of a registry apart.
func registryFailure(step string, err error) *Failure {
	var network net.Error
	status := appendengine.StatusOf(err)
	f := &Failure{Class: ClassInfrastructure, Step: step, Message: err.Error(), Cause: err}
	switch {
	case AsFailure(err) != nil,
		errors.Is(err, context.DeadlineExceeded) && (!errors.As(err, &network) || network == context.DeadlineExceeded),
		errors.Is(err, context.Canceled):
		return asFailure(step, err)
	case status == http.StatusUnauthorized || status == http.StatusForbidden:
		f.Next = "check the registry credentials: the account needs pull on the base and push on the target"
	case status == http.StatusNotFound:
		f.Next = "check that the image is in this registry under this digest"
	case status == http.StatusInsufficientStorage:
		f.Next = "free disk space where the registry keeps its images, then build again"
	case status == http.StatusTooManyRequests || status >= http.StatusInternalServerError:
		f.Class, f.Next = ClassTransient, "check the registry's log"
	case strings.Contains(err.Error(), "x509: "):
		f.Next = "pass the CA certificate of the registry"
	case errors.As(err, &network), errors.Is(err, syscall.ECONNREFUSED), errors.Is(err, syscall.ECONNRESET),
		errors.Is(err, syscall.EPIPE):
		f.Class, f.Next = ClassTransient, "check that the registry runs and can be reached from this host"
	default:
		f.Next = "check the registry's log"
	}
	return f
}

// treeFailure is that of reading the files of an image from a registry.
func treeFailure(step string, err error) *Failure {
	if errors.Is(err, basetree.ErrUnsafe) {
		return &Failure{Class: ClassPolicy, Step: step, Message: err.Error(), Cause: err,
			Next: "take another base image: this one's layers are not those of an operating system"}
	}
	return registryFailure(step, err)
}
