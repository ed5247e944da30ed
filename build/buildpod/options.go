package buildpod

import (
	"cmp"
	"fmt"
	"io"
	"path/filepath"
	"time"

	"dayone.dev/dayone/build"
	"dayone.dev/dayone/build/job"
)

// Options of Run. The zero value is right for a pod of build/job.
type Options struct {
	// Input is where the Job's objects are mounted; default job.DirInput.
	Input string
	// Work is scratch space that every user may write; default job.DirWork.
	Work string
	// UserNamespace is job.UserNamespaceShift (default) or job.UserNamespaceNone.
	UserNamespace string
	// TerminationLog takes the result; default /dev/termination-log (the API's default of terminationMessagePath).
	TerminationLog string
	// Output takes the log as it grows; default drops it.
	Output io.Writer
}

const (
	defaultTerminationLog = "/dev/termination-log"
	// workerName is the worker's argument zero.
	workerName = "dayone-build-pod-worker"
	// logTimeout bounds the keeping of the log: the build's outcome must not wait for it.
	logTimeout = 30 * time.Second
	// overtime is what the worker may take beyond the build's own time limit before it is killed.
	overtime = 30 * time.Second
)

func (o Options) withDefaults() Options {
	o.Input = cmp.Or(o.Input, job.DirInput)
	o.Work = cmp.Or(o.Work, job.DirWork)
	o.UserNamespace = cmp.Or(o.UserNamespace, job.UserNamespaceShift)
	o.TerminationLog = cmp.Or(o.TerminationLog, defaultTerminationLog)
	if o.Output == nil {
		o.Output = io.Discard
	}
	return o
}

// Validate names the option that is invalid.
func (o Options) Validate() error {
	switch o.UserNamespace {
	case "", job.UserNamespaceShift, job.UserNamespaceNone:
	default:
		return fmt.Errorf("user namespace: there is no %q; use %s or %s", o.UserNamespace, job.UserNamespaceShift,
			job.UserNamespaceNone)
	}
	return nil
}

// task is the worker's input, which comes on a pipe: credentials are never in arguments, environment or files of the
// pod's user.
type task struct {
	Request build.Request `json:"request"`
	// Auth is auth.json for all registries, CA their CAs.
	Auth []byte `json:"auth"`
	CA   []byte `json:"ca,omitempty"`
	// Work is where the worker may write.
	Work string `json:"work"`
	// Shifted means that the worker is in a user namespace of its own.
	Shifted bool `json:"shifted"`
}

// Directories in Work.
func stateDir(work string) string  { return filepath.Join(work, "state") }
func mountsDir(work string) string { return filepath.Join(work, "mounts") }
