package buildpod

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"syscall"
	"time"

	"dayone.dev/dayone/build"
	"dayone.dev/dayone/build/appendengine"
	"dayone.dev/dayone/build/buildlog"
	"dayone.dev/dayone/build/job"
	"dayone.dev/dayone/registry/credentials"
)

// Run builds and gives the exit code: job.ExitOK, job.ExitFinal or job.ExitTryAgain. It writes the termination message
// itself. When ctx ends, which a signal makes it do, the worker and all that it started are killed before Run returns.
func Run(ctx context.Context, o Options) int {
	o = o.withDefaults()
	result := run(ctx, o)
	if err := os.WriteFile(o.TerminationLog, result.Message(), 0o644); err != nil {
		fmt.Fprintln(o.Output, "write termination message: "+err.Error())
	}
	return result.ExitCode()
}

func run(ctx context.Context, o Options) job.Result {
	began := time.Now()
	if err := o.Validate(); err != nil {
		return refused(o, err)
	}
	in, err := o.readInput()
	if err != nil {
		return refused(o, err)
	}
	network := in.order.Request.Options.ProxyEnvironment
	log := newTranscript(o.Output, append(credentials.Sensitive(in.task.Auth), build.ProxySecrets(network)...))
	// this process's own requests, for the log, go the same way; the worker is given them
	for name, value := range network {
		if err := os.Setenv(name, value); err != nil {
			return refused(o, errors.New("read order: a proxy's variable cannot be set")) // the cause may quote it
		}
	}
	result := o.build(ctx, in, log)
	if result.Seconds == 0 {
		result.Seconds = seconds(began)
	}
	cleanResult(&result, log)
	conclude(log, result)
	if ctx.Err() == nil { // a pod that is being deleted has no time to lose
		if result.Log, err = o.keep(ctx, in, log, result); err != nil {
			fmt.Fprintln(o.Output, "the log of this build is not kept: "+log.clean(err.Error()))
		}
	}
	return result
}

// refused is the result for input that no other pod accepts either.
func refused(o Options, err error) job.Result {
	fmt.Fprintln(o.Output, err)
	return job.Result{Failure: &build.Failure{Class: build.ClassInfrastructure, Step: "request", Message: err.Error(),
		Next: "look at the ConfigMaps and Secrets of the build; the controller makes them from the MachineOSConfig"}}
}

// cleanResult keeps credentials out of the termination message: the API shows it to everybody who may see pods.
func cleanResult(r *job.Result, log *transcript) {
	if r.Failure == nil {
		return
	}
	f := r.Failure
	f.Log = "" // a path that goes with the pod
	f.Message, f.Instruction, f.Next = log.clean(f.Message), log.clean(f.Instruction), log.clean(f.Next)
	for i := range f.Excerpt {
		f.Excerpt[i] = log.clean(f.Excerpt[i])
	}
}

// conclude ends the log.
func conclude(log io.Writer, r job.Result) {
	if r.Failure != nil {
		fmt.Fprintf(log, "FAILED after %.1f s: %s\n", r.Seconds, r.Failure.Error())
		return
	}
	fmt.Fprintf(log, "DONE after %.1f s: %s (%s)\n", r.Seconds, r.Digest, r.Reason)
}

// keep pushes the log to the registry.
func (o Options) keep(ctx context.Context, in *input, log *transcript, result job.Result) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, logTimeout)
	defer cancel()
	dir, err := os.MkdirTemp(o.Work, "log-")
	if err != nil {
		return "", fmt.Errorf("keep build log: %w", err)
	}
	defer os.RemoveAll(dir)
	r, err := in.task.prepare(dir)
	if err != nil {
		return "", fmt.Errorf("keep build log: %w", err)
	}
	client, err := appendengine.NewClient(appendengine.Access{AuthFile: r.Registry.AuthFile, CAFile: r.Registry.CAFile})
	if err != nil {
		return "", fmt.Errorf("keep build log: %w", err)
	}
	defer client.Close()
	l := buildlog.Log{Build: in.order.MachineOSBuild, Pool: r.Pool, Outcome: "Succeeded", Image: result.Digest,
		Created: time.Now(), Text: log.text()}
	if result.Failure != nil {
		l.Outcome = "Failed"
	}
	return buildlog.Push(ctx, client, r.Target, l)
}

// build starts the worker, hands it the task and waits.
func (o Options) build(ctx context.Context, in *input, log *transcript) job.Result {
	timeout := cmp.Or(in.order.Request.Options.Timeout, build.DefaultTimeout)
	bounded, cancel := context.WithTimeout(ctx, timeout+overtime)
	defer cancel()
	w, err := o.start(in, log)
	if err != nil {
		return job.Result{Failure: &build.Failure{Class: build.ClassInfrastructure, Step: "request", Message: err.Error(),
			Next: startHint(err)}}
	}
	stop := context.AfterFunc(bounded, func() { _ = w.process.Kill() }) // it may have ended by itself
	defer stop()
	var result job.Result
	decoded := json.NewDecoder(w.results).Decode(&result)
	_ = w.results.Close()
	waited := <-w.ended
	switch {
	case decoded == nil && (result.Digest != "" || result.Failure != nil):
		return result
	case ctx.Err() != nil:
		return job.Result{Failure: &build.Failure{Class: build.ClassTransient, Step: "containerfile",
			Message: "the build was stopped from outside", Next: "nothing: the build begins again when it is still needed"}}
	case bounded.Err() != nil:
		return job.Result{Failure: &build.Failure{Class: build.ClassPolicy, Step: "containerfile",
			Message: fmt.Sprintf("the time limit of %s ran out", timeout),
			Next:    "raise the time limit, or make the build quicker"}}
	}
	return job.Result{Failure: &build.Failure{Class: build.ClassTransient, Step: "containerfile", Cause: waited,
		Message: fmt.Sprintf("the build process ended without a result (%v)", waited),
		Next:    "look at the memory limit of build pods (--build-memory), and at the log"}}
}

// startHint knows why a user namespace cannot be made.
func startHint(err error) string {
	if errors.Is(err, syscall.EPERM) || errors.Is(err, syscall.EINVAL) || errors.Is(err, syscall.ENOSPC) ||
		errors.Is(err, syscall.EUSERS) {
		return "the node does not let the pod create a user namespace: give builds a seccomp profile that allows it, or " +
			"user namespaces of the runtime (hostUsers: false); docs/operators/builds.md"
	}
	return "look at the events of the pod"
}

// child is the worker as the outer process sees it.
type child struct {
	process *os.Process
	results *os.File
	ended   chan error
}

// start runs this program again as the worker.
func (o Options) start(in *input, log *transcript) (*child, error) {
	stdin, stdinWriter, err := os.Pipe()
	if err != nil {
		return nil, fmt.Errorf("make pipe: %w", err)
	}
	results, resultsWriter, err := os.Pipe()
	if err != nil {
		return nil, errors.Join(fmt.Errorf("make pipe: %w", err), stdin.Close(), stdinWriter.Close())
	}
	cmd := exec.Command("/proc/self/exe")
	cmd.Args = []string{workerName}
	cmd.Env = append(proxies(in.order.Request.Options.ProxyEnvironment),
		"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "HOME="+o.Work, "LANG=C.UTF-8")
	if pool := os.Getenv("SSL_CERT_FILE"); pool != "" {
		cmd.Env = append(cmd.Env, "SSL_CERT_FILE="+pool)
	}
	cmd.Stdin, cmd.Stdout, cmd.Stderr = stdin, log, log
	cmd.ExtraFiles = []*os.File{resultsWriter}
	// Processes of a killed build that hold the log open die with their namespace. A busy machine reads the log's end
	// within it, and the pod's grace is longer.
	cmd.WaitDelay = 5 * time.Second
	cmd.SysProcAttr = o.attributes()
	c := &child{results: results, ended: make(chan error, 1)}
	started := make(chan error, 1)
	go func() {
		runtime.LockOSThread() // Pdeathsig is the thread's
		defer runtime.UnlockOSThread()
		err := cmd.Start()
		started <- err
		if err == nil {
			c.ended <- cmd.Wait()
		}
	}()
	err = <-started
	_, _ = stdin.Close(), resultsWriter.Close() // the worker's ends
	if err != nil {
		return nil, errors.Join(fmt.Errorf("start the build process: %w", err), stdinWriter.Close(), results.Close())
	}
	c.process = cmd.Process
	go func() { // the worker reads it as it likes; when it is killed the pipe breaks
		_ = json.NewEncoder(stdinWriter).Encode(in.task)
		_ = stdinWriter.Close()
	}()
	return c, nil
}

// The worker's users: root in its namespace is this user outside, and 65535 more follow. The range is above all that
// nodes give to people and services and within what images use (subuid(5) begins at 100000, OpenShift's own ranges at
// 1000000000).
const (
	firstUser = 1000000
	users     = 65536
)

// attributes put the worker into its namespaces. Writing the mapping needs CAP_SETUID and CAP_SETGID in the pod, and
// nothing else.
func (o Options) attributes() *syscall.SysProcAttr {
	a := &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if o.UserNamespace == job.UserNamespaceShift {
		a.Cloneflags = syscall.CLONE_NEWUSER | syscall.CLONE_NEWNS
		a.UidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: firstUser, Size: users}}
		a.GidMappings = a.UidMappings
		a.GidMappingsEnableSetgroups = true
		a.Credential = &syscall.Credential{Uid: 0, Gid: 0}
	}
	return a
}

// proxies are for the worker's own requests.
func proxies(environment map[string]string) []string {
	var out []string
	for name, value := range environment {
		if strings.HasSuffix(strings.ToUpper(name), "_PROXY") {
			out = append(out, name+"="+value)
		}
	}
	return out
}
