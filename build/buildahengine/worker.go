package buildahengine

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"

	"github.com/containers/buildah/define"
	"github.com/containers/buildah/imagebuildah"
	"github.com/containers/image/v5/docker"
	"github.com/containers/storage"
	"github.com/containers/storage/pkg/archive"
	"github.com/sirupsen/logrus"
	"golang.org/x/sys/unix"
)

// Phases that a failure can be in.
const (
	phaseStorage       = "storage"
	phaseContainerfile = "containerfile"
	phasePush          = "push"
)

// lockDescriptor is the storage lock that the parent hands down: held by this process, not by what RUN starts.
const lockDescriptor = 3

// worker carries out one order in the child process.
type worker struct {
	order order
	send  *sender
	out   *lines
	store storage.Store
	// isolation is chosen before the first instruction.
	isolation chosen
}

// runWorker is the child's main. Its outcome goes to the parent as a message; an error here means that not even that
// was possible.
func runWorker() error {
	messages, err := ownStdout()
	if err != nil {
		return err
	}
	unix.CloseOnExec(lockDescriptor)
	w := &worker{send: newSender(messages)}
	if err := json.NewDecoder(os.Stdin).Decode(&w.order); err != nil {
		return fmt.Errorf("read order: %w", err)
	}
	w.out = newLines(w.order.Scrub, func(text string) { w.send.send(message{Kind: kindOutput, Text: text}) })
	logrus.SetOutput(w.out)
	logrus.SetLevel(logrus.WarnLevel)
	digest, phase, err := w.work(context.Background())
	_ = w.out.Close() // never fails
	if err != nil {
		w.send.send(message{Kind: kindDone, Error: describe(phase, err, w.out)})
		return nil
	}
	w.send.send(message{Kind: kindDone, Digest: digest})
	return nil
}

// ownStdout keeps the pipe of messages away from libraries that print: descriptor 1 becomes a copy of descriptor 2.
func ownStdout() (*os.File, error) {
	fd, err := unix.FcntlInt(1, unix.F_DUPFD_CLOEXEC, 3)
	if err != nil {
		return nil, fmt.Errorf("keep message pipe: %w", err)
	}
	if err := unix.Dup2(2, 1); err != nil {
		return nil, fmt.Errorf("redirect standard output: %w", err)
	}
	return os.NewFile(uintptr(fd), "messages"), nil
}

func (w *worker) work(ctx context.Context) (digest, phase string, err error) {
	if err := w.open(); err != nil {
		return "", phaseStorage, err
	}
	defer func() {
		// Layers stay mounted only if a container is in use, and then this namespace ends anyway.
		_, shutdown := w.store.Shutdown(false)
		if err == nil && shutdown != nil {
			phase, err = phaseStorage, fmt.Errorf("close storage: %w", shutdown)
		}
	}()
	if w.order.Recover {
		if err := errors.Join(w.recover(), w.prune()); err != nil {
			return "", phaseStorage, err
		}
	}
	w.send.send(message{Kind: kindReady})
	if w.order.Job == nil {
		return "", phaseStorage, nil
	}
	w.send.send(message{Kind: kindPhase, Text: phaseContainerfile})
	if w.isolation, err = w.choose(ctx); err != nil {
		return "", phaseContainerfile, err
	}
	w.send.send(message{Kind: kindIsolation, Text: w.isolation.String(), Reason: w.isolation.Reason})
	id, err := w.build(ctx)
	if err != nil {
		return "", phaseContainerfile, err
	}
	w.send.send(message{Kind: kindPhase, Text: phasePush})
	if digest, err = w.push(ctx, id); err != nil {
		return "", phasePush, err
	}
	return digest, phaseStorage, w.touch(id)
}

// build runs the Containerfile and gives the id of the local image.
func (w *worker) build(ctx context.Context) (string, error) {
	options, err := w.options()
	if err != nil {
		return "", err
	}
	file := filepath.Join(w.order.Run, "Containerfile")
	if err := os.WriteFile(file, []byte(w.order.Job.Containerfile), 0o600); err != nil {
		return "", fmt.Errorf("write Containerfile: %w", err)
	}
	id, _, err := imagebuildah.BuildDockerfiles(ctx, w.store, options, file)
	return id, err
}

func (w *worker) options() (define.BuildOptions, error) {
	job := w.order.Job
	context, err := emptyContext(w.order.Run)
	if err != nil {
		return define.BuildOptions{}, err
	}
	created := time.Unix(job.Created, 0).UTC()
	system := w.system()
	namespaces, network := networkOf(job.Options.Offline)
	options := define.BuildOptions{
		ContextDirectory: context,
		PullPolicy:       define.PullIfMissing,
		Isolation:        define.IsolationChroot,
		Output:           "localhost/dayone-build:" + job.Address[:min(len(job.Address), 32)],
		OutputFormat:     w.format(),
		Compression:      archive.Gzip,
		Out:              w.out, Err: w.out, ReportWriter: w.out,
		Log:                     w.log(),
		SignaturePolicyPath:     system.SignaturePolicyPath,
		SystemContext:           system,
		CommonBuildOpts:         w.common(),
		Layers:                  true,
		NoCache:                 job.Options.NoCache,
		RemoveIntermediateCtrs:  true,
		ForceRmIntermediateCtrs: true,
		Timestamp:               &created,
		AdditionalBuildContexts: w.contexts(),
		Args:                    job.Options.BuildArgs,
		IDMappingOptions:        &define.IDMappingOptions{HostUIDMapping: true, HostGIDMapping: true},
		NetworkInterface:        noNetwork{},
		NamespaceOptions:        namespaces,
		ConfigureNetwork:        network,
		Envs:                    nil,
	}
	if w.isolation.Isolation == IsolationOCI {
		options.Isolation, options.Runtime, options.RuntimeArgs = ociIsolation(), w.isolation.Runtime, w.runtimeArguments()
	}
	return options, nil
}

// format keeps the base's family of media types.
func (w *worker) format() string {
	if w.order.Job.Docker {
		return define.Dockerv2ImageManifest
	}
	return define.OCIv1ImageManifest
}

// emptyContext is the build context: a MachineOSConfig has none, so COPY without --from finds nothing.
func emptyContext(run string) (string, error) {
	dir := filepath.Join(run, "context")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return "", fmt.Errorf("make build context: %w", err)
	}
	return dir, nil
}

// log tells stages and instructions apart: buildah calls it with the text of each before it runs it.
func (w *worker) log() func(string, ...any) {
	return func(format string, args ...any) {
		text := fmt.Sprintf(format, args...)
		kind := kindStep
		switch {
		case len(format) >= 5 && format[:5] == "FROM ":
			kind = kindFrom
		case len(format) >= 6 && format[:6] == "COMMIT":
			kind = kindOutput
		}
		_ = w.out.Close() // output without a newline belongs to the step before
		w.send.send(message{Kind: kind, Text: w.out.scrub.Replace(text)})
	}
}

// Kinds of errors that only the child's types can tell.
const (
	failDiskFull     = "disk-full"
	failUnauthorized = "unauthorized"
	failIsolation    = "isolation"
)

func describe(phase string, err error, out *lines) *childFail {
	f := &childFail{Text: out.scrub.Replace(err.Error()), Phase: phase}
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		f.ExitCode = exit.ExitCode()
	}
	var unauthorized docker.ErrUnauthorizedForCredentials
	switch {
	case errors.Is(err, errNoIsolation):
		f.Kind = failIsolation
	case errors.Is(err, syscall.ENOSPC), errors.Is(err, syscall.EDQUOT):
		f.Kind = failDiskFull
	case errors.As(err, &unauthorized):
		f.Kind = failUnauthorized
	}
	return f
}
