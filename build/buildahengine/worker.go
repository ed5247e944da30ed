package buildahengine

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/containers/buildah/define"
	"github.com/containers/buildah/imagebuildah"
	"github.com/containers/image/v5/docker"
	"github.com/containers/image/v5/types"
	"github.com/containers/storage"
	"github.com/containers/storage/pkg/archive"
	"github.com/sirupsen/logrus"
	"golang.org/x/sys/unix"
)

// Phases that a failure can be in.
const (
	phaseStorage       = "storage"
	phaseBase          = "base"
	phaseContainerfile = "containerfile"
	phasePush          = "push"
)

// lockDescriptor is the storage lock that the parent hands down: held by this process, not by what RUN starts.
const lockDescriptor = 3

// session is what the steps of one order share in the child process. No step changes it.
type session struct {
	order
	send   *sender
	out    *lines
	system *types.SystemContext
	store  storage.Store
	layers *layerWriter // nil: the parent wants no layers
}

// runWorker is the child's main. Its outcome goes to the parent as a message; an error here means that not even that
// was possible.
func runWorker() error {
	messages, err := ownStdout()
	if err != nil {
		return err
	}
	unix.CloseOnExec(lockDescriptor)
	s := session{send: newSender(messages)}
	if err := json.NewDecoder(os.Stdin).Decode(&s.order); err != nil {
		return fmt.Errorf("read order: %w", err)
	}
	if s.Layers {
		unix.CloseOnExec(layersDescriptor)
		s.layers = newLayerWriter(os.NewFile(layersDescriptor, "layers"))
	}
	s.out = newLines(s.Scrub, func(text string) { s.send.send(message{Kind: kindOutput, Text: text}) })
	logrus.SetOutput(s.out)
	logrus.SetLevel(logrus.WarnLevel)
	digest, phase, err := work(context.Background(), s)
	_ = s.out.Close() // never fails
	if err != nil {
		s.send.send(message{Kind: kindDone, Error: describe(phase, err, s.out)})
		return nil
	}
	s.send.send(message{Kind: kindDone, Digest: digest})
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

// work carries the order out: storage -> isolation -> Containerfile -> push, or storage -> base. The phase is where an
// error comes from.
func work(ctx context.Context, s session) (digest, phase string, err error) {
	if err := configure(s.order); err != nil {
		return "", phaseStorage, err
	}
	s.system = systemContext(s.order)
	if s.store, err = openStore(s.order); err != nil {
		return "", phaseStorage, err
	}
	defer func() {
		// Layers stay mounted only if a container is in use, and then this namespace ends anyway.
		_, shutdown := s.store.Shutdown(false)
		if err == nil && shutdown != nil {
			phase, err = phaseStorage, fmt.Errorf("close storage: %w", shutdown)
		}
	}()
	images := shelf{s.store, s.Driver}
	if s.Recover {
		if err := errors.Join(recoverStore(s.store, s.order), images.prune(s.Limit)); err != nil {
			return "", phaseStorage, err
		}
	}
	s.send.send(message{Kind: kindReady})
	if s.Job == nil {
		return "", phaseStorage, nil
	}
	if s.Base != "" {
		s.send.send(message{Kind: kindPhase, Text: phaseBase})
		return "", phaseBase, takeIn(ctx, s)
	}
	s.send.send(message{Kind: kindPhase, Text: phaseContainerfile})
	isolation, err := chooseIsolation(ctx, s)
	if err != nil {
		return "", phaseContainerfile, err
	}
	s.send.send(message{Kind: kindIsolation, Text: isolation.String(), Reason: isolation.Reason})
	id, err := runContainerfile(ctx, s, isolation)
	if err != nil {
		return "", phaseContainerfile, err
	}
	s.send.send(message{Kind: kindPhase, Text: phasePush})
	if digest, err = push(ctx, s, id); err != nil {
		return "", phasePush, err
	}
	return digest, phaseStorage, images.touch(id)
}

func chooseIsolation(ctx context.Context, s session) (chosen, error) {
	return choose(s.Isolation, s.Runtime, s.Job.Options.Offline, func(program string) error {
		return tryRuntime(ctx, s, program)
	})
}

// runContainerfile gives the id of the local image.
func runContainerfile(ctx context.Context, s session, isolation chosen) (string, error) {
	// The build context is empty: a MachineOSConfig has none, so COPY without --from finds nothing.
	empty := filepath.Join(s.Run, "context")
	if err := os.MkdirAll(empty, 0o700); err != nil {
		return "", fmt.Errorf("make build context: %w", err)
	}
	file := filepath.Join(s.Run, "Containerfile")
	if err := os.WriteFile(file, []byte(s.Job.Containerfile), 0o600); err != nil {
		return "", fmt.Errorf("write Containerfile: %w", err)
	}
	created := time.Unix(s.Job.Created, 0).UTC()
	namespaces, network := networkOf(s.Job.Options.Offline)
	options := define.BuildOptions{
		ContextDirectory: empty,
		PullPolicy:       define.PullIfMissing,
		Isolation:        define.IsolationChroot,
		Output:           "localhost/dayone-build:" + s.Job.Address[:min(len(s.Job.Address), 32)],
		OutputFormat:     manifestFormat(s.Job.Docker),
		Compression:      archive.Gzip,
		Out:              s.out, Err: s.out, ReportWriter: s.out,
		Log:                     instructionLog(s.send, s.out),
		SignaturePolicyPath:     s.system.SignaturePolicyPath,
		SystemContext:           s.system,
		CommonBuildOpts:         commonOptions(s.order),
		Layers:                  true,
		NoCache:                 s.Job.Options.NoCache,
		RemoveIntermediateCtrs:  true,
		ForceRmIntermediateCtrs: true,
		Timestamp:               &created,
		AdditionalBuildContexts: map[string]*define.AdditionalBuildContext{},
		Args:                    s.Job.Options.BuildArgs,
		IDMappingOptions:        &define.IDMappingOptions{HostUIDMapping: true, HostGIDMapping: true},
		NetworkInterface:        noNetwork{},
		NamespaceOptions:        namespaces,
		ConfigureNetwork:        network,
	}
	for name, image := range s.Job.Contexts { // what FROM and --from may name, by digest
		options.AdditionalBuildContexts[name] = &define.AdditionalBuildContext{IsImage: true,
			Value: "docker://" + image.Reference}
	}
	if isolation.Isolation == IsolationOCI {
		options.Isolation, options.Runtime, options.RuntimeArgs = ociIsolation(), isolation.Runtime, runtimeArguments(s.order)
	}
	id, _, err := imagebuildah.BuildDockerfiles(ctx, s.store, options, file)
	return id, err
}

// manifestFormat keeps the base's family of media types.
func manifestFormat(docker bool) string {
	if docker {
		return define.Dockerv2ImageManifest
	}
	return define.OCIv1ImageManifest
}

// instructionLog tells stages and instructions apart: buildah calls it with the text of each before it runs it.
func instructionLog(send *sender, out *lines) func(string, ...any) {
	return func(format string, args ...any) {
		kind := kindStep
		switch {
		case strings.HasPrefix(format, "FROM "):
			kind = kindFrom
		case strings.HasPrefix(format, "COMMIT"):
			kind = kindOutput
		}
		_ = out.Close() // output without a newline belongs to the step before
		send.send(message{Kind: kind, Text: out.scrub.Replace(fmt.Sprintf(format, args...))})
	}
}

// Kinds of errors that only the child's types can tell.
const (
	failDiskFull     = "disk-full"
	failUnauthorized = "unauthorized"
	failIsolation    = "isolation"
	failRepacked     = "repacked"
)

func describe(phase string, err error, out *lines) *childFail {
	f := &childFail{Text: out.scrub.Replace(err.Error()), Phase: phase}
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		f.ExitCode = exit.ExitCode()
	}
	var unauthorized docker.ErrUnauthorizedForCredentials
	switch {
	case errors.Is(err, errRepacked):
		f.Kind = failRepacked
	case errors.Is(err, errNoIsolation):
		f.Kind = failIsolation
	case errors.Is(err, syscall.ENOSPC), errors.Is(err, syscall.EDQUOT):
		f.Kind = failDiskFull
	case errors.As(err, &unauthorized):
		f.Kind = failUnauthorized
	}
	return f
}
