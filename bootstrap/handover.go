package bootstrap

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"time"

	"github.com/sirupsen/logrus"

	"dayone.dev/dayone/bootstrap/handover"
	"dayone.dev/dayone/bootstrap/journal"
	"dayone.dev/dayone/installconfig"
	"dayone.dev/dayone/installconfig/report"
	"dayone.dev/dayone/manifests"
	"dayone.dev/dayone/manifests/render"
	"dayone.dev/dayone/registry"
	"dayone.dev/dayone/registry/certs"
)

const (
	// handOverDir keeps the hand-over's plan below the state directory.
	handOverDir = "handover"
	// handOverPhase is the phase's name in the journal.
	handOverPhase = "handover"
	// handedOverInterval is how often a bootstrap looks whether another process has handed over.
	handedOverInterval = 2 * time.Second
)

// HandOver says how the bootstrap host gives what it made to the cluster. The zero value leaves it out: the host then
// serves until it is stopped, and dayone handover does it later.
type HandOver struct {
	// Kubeconfig of a cluster administrator; the file may come while the masters install.
	Kubeconfig string
	// Context of the kubeconfig; default its current one.
	Context string
	// Policy and Deadline bound it; default: those of install-config.yaml.
	Policy   handover.Policy
	Deadline time.Duration
	// FinalCAFile is PEM of authorities that sign the final registries, beside this host's.
	FinalCAFile string
	// Nodes is how many nodes of a pool must have joined. Default: controlPlane.replicas for master, else 1 where an image
	// was built here.
	Nodes map[string]int
}

// markHandedOver writes the end down and removes the accounts' passwords. The mark comes first: a process that finds it
// removes the accounts.
func markHandedOver(stateDir string, m handover.Mark) error {
	if err := m.Write(stateDir); err != nil {
		return err
	}
	return removeAccounts(stateDir)
}

func removeAccounts(stateDir string) error {
	dir := filepath.Join(stateDir, identityDir)
	var errs []error
	for _, name := range []string{pushUser + passwordEnd, pullUser + passwordEnd, pushAuthFile, pullAuthFile,
		pullAuthFile + loopbackEnd, "../base-auth.json"} {
		if err := os.Remove(filepath.Join(dir, name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			errs = append(errs, fmt.Errorf("remove credential: %w", err))
		}
	}
	return errors.Join(errs...)
}

// plan is what there is to hand over after the last rendering.
func (h *host) plan(set *manifests.Set, r *render.Result) (*handover.Plan, error) {
	repositories, grounds := map[string]string{}, map[string]string{}
	for _, p := range h.in.Pools {
		repositories[p.Name] = p.Repository
		if h.built[p.Name] == nil {
			continue
		}
		request, err := h.buildRequest(p)
		if err != nil {
			return nil, err
		}
		if grounds[p.Name], err = request.Ground(); err != nil {
			return nil, err
		}
	}
	nodes := map[string]int{}
	if n := h.in.Sidecar.Cluster.ControlPlane; n > 0 {
		nodes["master"] = n
	}
	for pool, n := range h.HandOver.Nodes {
		nodes[pool] = n
	}
	return handover.Make(handover.Outcome{FinalCA: string(h.in.RegistryCA), HandOver: h.in.Sidecar.Config.HandOver,
		Registry: h.registryHost, Platform: h.Platform, Base: h.base.Final, Set: set, Result: r,
		Built: h.built, Grounds: grounds, Repositories: repositories, Nodes: nodes})
}

// handOver is the last phase. Its result is the mark that it leaves: a process that finds it does not come this far.
func (h *host) handOver() journal.Phase {
	return journal.NewService(handOverPhase, "hand over to the cluster", func(ctx context.Context) error {
		plan, err := handover.Read(h.path(handOverDir))
		if err != nil {
			return err
		}
		o := h.HandOver.options(plan, h.Log)
		o.Source = handover.Source{Host: h.registryHost, CAFile: h.id.caFile, AuthFile: h.id.pullAuth}
		o.TempDir, o.Now = h.path("tmp"), h.Now
		o.Revoke = h.revoke
		return handover.Run(ctx, o)
	})
}

func (o HandOver) options(plan *handover.Plan, log *logrus.Entry) handover.Options {
	return handover.Options{Plan: plan, Connect: handover.Kubeconfig(o.Kubeconfig, o.Context), FinalCAFile: o.FinalCAFile,
		Policy: o.Policy, Deadline: o.Deadline, Log: log.WithField("phase", handOverPhase)}
}

// revoke ends both accounts of the embedded registry, in this process and for every later one.
func (h *host) revoke(context.Context) error {
	if err := markHandedOver(h.StateDir, handover.Mark{Time: h.Now().UTC(), Registry: h.registryHost}); err != nil {
		return err
	}
	return lockOut(h.registry)
}

// lockOut leaves one account whose password nobody has ever had: a registry without any is refused.
func lockOut(r *registry.Server) error {
	nobody, err := registry.NewUser("nobody", registry.RolePull)
	if err != nil {
		return err
	}
	return r.SetUsers([]registry.User{nobody})
}

// finish runs the hand-over beside the services. Where the policy is to wait, a hand-over that failed for good leaves
// the services to the nodes that still need them: dayone handover can end what this process could not.
func (h *host) finish(ctx context.Context, r *journal.Runner, phases []journal.Phase, ready int) error {
	running, cancel := context.WithCancel(ctx)
	defer cancel()
	done := make(chan error, 1)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		err := r.Some(running, phases, ready, len(phases))
		if err != nil && running.Err() == nil && h.waits() {
			h.Log.WithError(err).
				Error("hand-over failed; the services stay for the nodes that need them, and dayone handover ends it once this is mended")
			return
		}
		done <- err
	}()
	err := h.wait(ctx, done)
	cancel()
	<-ended // it writes the journal
	return err
}

func (h *host) waits() bool {
	return cmp.Or(h.HandOver.Policy, h.in.Sidecar.Config.HandOver.Policy, handover.PolicyWait) == handover.PolicyWait
}

// HandOverOptions are those of a hand-over in a process of its own.
type HandOverOptions struct {
	HandOver
	// StateDir is the bootstrap's. Default: DefaultStateDir.
	StateDir string
	// Observe is told what happens; nil drops it.
	Observe func(handover.Event)
	// Log takes its messages; nil discards them.
	Log *logrus.Entry
}

// RunHandOver hands over what a bootstrap on this host has made. A bootstrap that works on the same state directory
// goes on serving meanwhile and ends when it is done; without one, the images are read from the state directory.
func RunHandOver(ctx context.Context, o HandOverOptions) error {
	if o.StateDir == "" {
		o.StateDir = DefaultStateDir
	}
	if o.Log == nil {
		o.Log = report.NoLog()
	}
	if done, err := handover.ReadMark(o.StateDir); err != nil || done != nil {
		if done != nil {
			o.Log.WithField("time", done.Time).Info("handed over already")
			err = removeAccounts(o.StateDir)
		}
		return err
	}
	plan, err := handover.Read(filepath.Join(o.StateDir, handOverDir))
	if err != nil {
		return fmt.Errorf("hand over from %s: %w", o.StateDir, err)
	}
	for i, p := range plan.Pools {
		if n, given := o.Nodes[p.Name]; given {
			plan.Pools[i].Nodes = n
		}
	}
	source, stop, err := o.source(ctx, plan)
	if err != nil {
		return err
	}
	defer stop()
	run := o.HandOver.options(plan, o.Log)
	run.Source, run.Observe = source, o.Observe
	run.Revoke = func(context.Context) error { return MarkHandedOver(o.StateDir, plan.Registry, "") }
	return handover.Run(ctx, run)
}

// source is the embedded registry: that of a bootstrap that runs, or one on loopback for the time of the hand-over.
func (o HandOverOptions) source(ctx context.Context, plan *handover.Plan) (handover.Source, func(), error) {
	dir := filepath.Join(o.StateDir, identityDir)
	from := handover.Source{Host: plan.Registry, CAFile: filepath.Join(dir, certs.CACertFile),
		AuthFile: filepath.Join(dir, pullAuthFile)}
	running, err := journal.Running(o.StateDir)
	if err != nil {
		return from, nil, err
	}
	if running {
		o.Log.WithField("registry", plan.Registry).Info("a bootstrap works here, its registry is read")
		return from, func() {}, exemptFromProxy(plan.Registry)
	}
	unlock, err := journal.Lock(o.StateDir)
	if err != nil {
		return from, nil, err
	}
	r, err := o.serveImages(ctx, plan)
	if err != nil {
		unlock()
		return from, nil, err
	}
	stop := func() {
		r.stop()
		unlock()
	}
	return r.source, stop, exemptFromProxy(r.source.Host)
}

// loopback is the embedded registry for this process alone.
type loopback struct {
	source handover.Source
	stop   func()
}

func (o HandOverOptions) serveImages(ctx context.Context, plan *handover.Plan) (*loopback, error) {
	id, err := loadIdentity(o.StateDir, plan.Registry)
	if err != nil {
		return nil, err
	}
	srv, err := registry.New(registry.Options{Root: filepath.Join(o.StateDir, registryDir), Listen: "127.0.0.1:0",
		TLSDir: filepath.Dir(id.caFile), Hosts: []string{hostOf(plan.Registry)}, Users: []registry.User{id.push, id.pull},
		Log: o.Log.WithField("component", "registry")})
	if err != nil {
		return nil, err
	}
	if err := srv.Start(); err != nil {
		return nil, err
	}
	auth := id.pullAuth + loopbackEnd
	r := &loopback{source: handover.Source{Host: srv.Addr(), CAFile: id.caFile, AuthFile: auth}}
	r.stop = func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), shutdownLimit)
		defer cancel()
		if err := srv.Shutdown(ctx); err != nil {
			o.Log.WithError(err).Warn("registry did not stop cleanly")
		}
		if err := os.Remove(auth); err != nil && !errors.Is(err, fs.ErrNotExist) {
			o.Log.WithError(err).Warn("credential of the hand-over was not removed")
		}
	}
	if err := id.pull.WriteAuthFile(auth, srv.Addr()); err != nil {
		r.stop()
		return nil, err
	}
	return r, nil
}

// loopbackEnd ends the name of the credential for the registry on loopback.
const loopbackEnd = ".loopback"

func hostOf(hostPort string) string {
	host, _, err := net.SplitHostPort(hostPort)
	if err != nil {
		return installconfig.Repository(hostPort)
	}
	return host
}
