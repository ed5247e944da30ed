package bootstrap

import (
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"dayone.dev/dayone/bootstrap/handover"
	"dayone.dev/dayone/bootstrap/journal"
	"dayone.dev/dayone/bootstrap/preflight"
	"dayone.dev/dayone/build"
	"dayone.dev/dayone/installconfig"
	"dayone.dev/dayone/installconfig/report"
	"dayone.dev/dayone/manifests/render"
	"dayone.dev/dayone/registry"
)

// shutdownLimit is how long the services may take to finish requests that run when the bootstrap host is told to stop.
const shutdownLimit = 10 * time.Second

// host is one run on the bootstrap host: the input, the results of the phases and the two services.
type host struct {
	Options
	in *preflight.Input
	// registryHost is HOST:PORT of the embedded registry as nodes reach it; the build pushes to the same name.
	registryHost                 string
	registryListen, configListen string
	id                           *identity
	registry                     *registry.Server
	serving                      *serving

	base  baseResult
	first *render.Result
	built map[string]*build.Result
	final finalResult
	// extensions maps images with extension packages to their names in the embedded registry.
	extensions map[string]string
}

// Run carries out Day 1 on the bootstrap host and then serves until ctx ends, a service fails or the hand-over is done.
// A second run on the same state directory goes on where the first was cut off. Nothing is started before every refusal
// has been checked.
func Run(ctx context.Context, o Options) error {
	o = o.withDefaults()
	if err := o.Validate(); err != nil {
		return err
	}
	if err := os.MkdirAll(o.StateDir, 0o700); err != nil {
		return fmt.Errorf("make state directory: %w", err)
	}
	unlock, err := journal.Lock(o.StateDir)
	if err != nil {
		return err
	}
	defer unlock()
	return journal.WithOutcome(o.StateDir, o.Now, o.Log, func() error { return o.run(ctx) })
}

func (o Options) run(ctx context.Context) error {
	in, err := preflight.Load(o.Dir, o.Platform)
	if err != nil {
		return err
	}
	if in.Sidecar.Config.Flow != installconfig.FlowStandalone {
		return report.Finding{File: installconfig.FileName, Path: installconfig.Field + ".flow", Rule: "flow",
			Message: "dayone bootstrap on a host of its own is the standalone flow",
			Next:    "patch the installer's bootstrap host with dayone ignition, or set flow: standalone for a cluster whose bootstrap host dayone owns"}
	}
	if done, err := handover.ReadMark(o.StateDir); err != nil || done != nil {
		if done != nil {
			o.Log.WithField("time", done.Time).
				Info("this bootstrap has been handed over and is needed by nobody; another --state-dir installs another cluster")
			err = removeAccounts(o.StateDir)
		}
		return err
	}
	h := &host{Options: o, in: in, built: map[string]*build.Result{}}
	return h.run(ctx)
}

func (h *host) run(ctx context.Context) error {
	cfg := h.in.Sidecar.Config
	h.registryHost = net.JoinHostPort(cfg.BootstrapRegistry.Host, strconv.Itoa(cfg.BootstrapRegistry.Port))
	h.registryListen, h.configListen = h.listenAddresses(cfg)
	if err := checkPorts(h.listeners()); err != nil {
		return err
	}
	if err := exemptFromProxy(h.registryHost); err != nil {
		return err
	}
	j, err := journal.Open(h.StateDir)
	if err != nil {
		return err
	}
	if err := h.inspectBase(ctx, j); err != nil {
		return err
	}
	for _, w := range h.in.Warnings {
		h.Log.WithField("place", w.Place()).WithField("rule", w.Rule).Warn(w.Message)
	}
	defer h.stop()
	r := journal.NewRunner(j, h.Observe, h.Now, h.Log)
	phases := h.phases()
	ready := len(phases)
	if h.HandOver.Kubeconfig != "" {
		phases = append(phases, h.handOver())
	}
	r.Arrange(phases)
	if err := r.Some(ctx, phases, 0, ready); err != nil {
		return err
	}
	j.Endpoints = &journal.Endpoints{Registry: h.registryHost, ConfigServer: h.configURL(), CAFile: h.id.caFile}
	if err := j.Save(); err != nil {
		return err
	}
	if err := notifyReady(); err != nil {
		h.Log.WithError(err).Warn("service manager not told that the bootstrap is ready")
	}
	if ready == len(phases) {
		return h.wait(ctx, nil)
	}
	return h.finish(ctx, r, phases, ready)
}

// wait returns when ctx ends, one of the services does, or the hand-over is done: this process's, which says so, or
// another one's, which leaves its mark.
func (h *host) wait(ctx context.Context, handedOver <-chan error) error {
	look := time.NewTicker(handedOverInterval)
	defer look.Stop()
	daily := time.NewTicker(registry.RenewalPoll)
	defer daily.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case err := <-h.registry.Err():
			return fmt.Errorf("serve the embedded registry: %w", err)
		case <-h.serving.done:
			return fmt.Errorf("serve Ignition configs: %w", h.serving.err)
		case err := <-handedOver:
			return err
		case <-look.C:
			if done, err := handover.ReadMark(h.StateDir); err == nil && done != nil {
				h.Log.Info("another process has handed over: this bootstrap is needed by nobody")
				return nil
			}
		case <-daily.C:
			h.renewCertificate()
		}
	}
}

// renewCertificate lets the registry renew the certificate of both services where it has little time left; the Ignition
// server notices new files by itself.
func (h *host) renewCertificate() {
	if err := h.registry.ReloadCertificate(); err != nil {
		h.Log.WithError(err).Error("server certificate is not renewed, the one before stays")
	}
}

func (h *host) stop() {
	ctx, cancel := context.WithTimeout(context.Background(), shutdownLimit)
	defer cancel()
	if h.serving != nil {
		if err := h.serving.stop(ctx); err != nil {
			h.Log.WithError(err).Warn("ignition server did not stop cleanly")
		}
	}
	if h.registry != nil {
		if err := h.registry.Shutdown(ctx); err != nil {
			h.Log.WithError(err).Warn("embedded registry did not stop cleanly")
		}
	}
}

func (h *host) configURL() string {
	c := h.in.Sidecar.Config.ConfigServer
	return "https://" + net.JoinHostPort(c.Host, strconv.Itoa(c.Port))
}

func (h *host) path(parts ...string) string {
	return filepath.Join(append([]string{h.StateDir}, parts...)...)
}
