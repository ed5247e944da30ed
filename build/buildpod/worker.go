package buildpod

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/sirupsen/logrus"

	"dayone.dev/dayone/build"
	"dayone.dev/dayone/build/job"
	"dayone.dev/dayone/build/sbom"
	"dayone.dev/dayone/registry/credentials"
)

// EngineOptions are what the worker asks of an engine.
type EngineOptions struct {
	// Root is the engine's directory.
	Root string
	// Environment is for the engine's processes (NAME=value).
	Environment []string
	// Log takes warnings.
	Log *logrus.Entry
}

// openEngine opens the engine that runs Containerfiles; the program that links one hands it in.
type openEngine func(EngineOptions) (build.ContainerEngine, error)

// resultDescriptor is where the worker writes its Result.
const resultDescriptor = 3

// Worker must be called first in main, after the engine's own start: when this process was started as the worker it
// does the work and returns true, and main must return. version is the program's.
func Worker(open openEngine, version string) bool {
	if os.Args[0] != workerName {
		return false
	}
	syscall.CloseOnExec(resultDescriptor) // RUN must not be able to write a result
	results := os.NewFile(resultDescriptor, "result")
	result, err := work(context.Background(), os.Stdin, os.Stdout, open, version)
	if err == nil {
		err = json.NewEncoder(results).Encode(result)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	return true
}

// work reads the task and builds. An error means that there is not even a result.
func work(ctx context.Context, in io.Reader, out io.Writer, open openEngine, version string) (job.Result, error) {
	var t task
	if err := json.NewDecoder(in).Decode(&t); err != nil {
		return job.Result{}, fmt.Errorf("read task: %w", err)
	}
	began := time.Now()
	log := newLogger(out)
	if t.Shifted { // else the runtime's own profile holds, or the pod is privileged
		if err := confine(); err != nil {
			log.WithError(err).Warn("the build runs without a seccomp filter of its own")
		}
	}
	noScratch := func(err error) (job.Result, error) {
		return failed(began, &build.Failure{Class: build.ClassInfrastructure, Step: "containerfile", Message: err.Error(),
			Next: "look at the volume for scratch space"}), nil
	}
	r, err := t.prepare(filepath.Join(stateDir(t.Work), "access"))
	if err != nil {
		return noScratch(err)
	}
	if r, err = mirrored(ctx, r, log); err != nil {
		return failed(began, &build.Failure{Class: build.ClassUser, Step: "request", Message: err.Error(),
			Next: "correct the mirrors of the cluster (kubectl get imagedigestmirrorsets,imagetagmirrorsets)"}), nil
	}
	engine, err := open(EngineOptions{Root: filepath.Join(stateDir(t.Work), "engine"), Environment: t.environment(),
		Log: log})
	if err != nil {
		return noScratch(err)
	}
	builder := build.NewBuilder(build.BuilderOptions{
		Engine: engine, StateDir: filepath.Join(stateDir(t.Work), "builder"), Progress: printer(out), Log: log,
		BillsOfMaterials: sbom.Bills{Version: version},
	})
	result, err := builder.Build(ctx, r)
	if err != nil {
		f := build.AsFailure(err)
		if f == nil {
			f = &build.Failure{Class: build.ClassInfrastructure, Step: "request", Message: err.Error()}
		}
		return failed(began, f), nil
	}
	for _, w := range result.Warnings {
		fmt.Fprintln(out, "WARNING: "+w.Error())
	}
	return job.Result{Digest: result.Digest, Reused: result.Reused, Engine: result.Engine, Reason: result.Reason,
		Kernels: result.Kernels, Seconds: seconds(began)}, nil
}

func failed(began time.Time, f *build.Failure) job.Result {
	return job.Result{Failure: f, Seconds: seconds(began)}
}

func seconds(began time.Time) float64 { return float64(time.Since(began).Milliseconds()) / 1000 }

// prepare writes what reaches registries into a directory, for this process's user alone, and gives the request with
// those files.
func (t task) prepare(dir string) (build.Request, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return build.Request{}, fmt.Errorf("make directory for credentials: %w", err)
	}
	r := t.Request
	var err error
	if r.Registry.AuthFile, err = credentials.File(dir, "auth.json", t.Auth); err != nil {
		return build.Request{}, err
	}
	if r.Registry.CAFile, err = credentials.File(dir, "ca.crt", t.CA); err != nil {
		return build.Request{}, err
	}
	r.Options.RegistriesConf, err = credentials.File(dir, "registries.conf", registriesOf(r.Config))
	return r, err
}

// environment is the engine's: proxies for its own pulls, and that the user namespace is there already, which the
// storage library cannot see by itself (containers/storage, pkg/unshare).
func (t task) environment() []string {
	var out []string
	for name, value := range t.Request.Options.ProxyEnvironment {
		out = append(out, name+"="+value)
	}
	if t.Shifted {
		out = append(out, "_CONTAINERS_USERNS_CONFIGURED=1")
	}
	return out
}

func newLogger(out io.Writer) *logrus.Entry {
	l := logrus.New()
	l.SetOutput(out)
	l.SetFormatter(&logrus.TextFormatter{DisableColors: true, FullTimestamp: true})
	return logrus.NewEntry(l)
}

// printer writes progress as people read it.
func printer(out io.Writer) func(build.Event) {
	return func(e build.Event) {
		switch {
		case e.Output:
			fmt.Fprintln(out, e.Text)
		case e.Total > 0 || e.Bytes > 0: // a transfer: its beginning and end are phases
		case e.Line > 0:
			fmt.Fprintf(out, "LINE %d: %s\n", e.Line, strings.TrimSpace(e.Text))
		case e.Text != "":
			fmt.Fprintf(out, "STEP: %s\n", strings.TrimSpace(e.Text))
		default:
			fmt.Fprintf(out, "PHASE %s\n", e.Phase)
		}
	}
}
