package life

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"

	"golang.org/x/sync/errgroup"

	"dayone.dev/dayone/hack/e2e"
	"dayone.dev/dayone/hack/e2e/fleet"
	"dayone.dev/dayone/rebase/nodedisk"
	"dayone.dev/dayone/rebase/nodestate"
	"dayone.dev/dayone/registry/certs"
	"dayone.dev/dayone/registry/storage"
)

// firstDay is Day 1 of the masters; workers and the node of pool infra boot the base OS with their pool's config.
func firstDay(ctx context.Context, l *life) error {
	dir, err := writeInstallDirectory(l)
	if err != nil {
		return fmt.Errorf("write install directory: %w", err)
	}
	o := l.o.Options
	o.InstallDir = dir
	o.Keep = false // the life ends what it keeps itself
	if l.day1, err = e2e.Prepare(ctx, o); err != nil {
		return err
	}
	l.ends = append(l.ends, l.day1.Close)
	report, err := l.day1.Day1(ctx)
	if report != nil {
		for _, c := range report.Checks {
			l.report.Checks = append(l.report.Checks, Check{Phase: l.phase, Check: c})
		}
	}
	if err != nil {
		return err
	}
	for _, n := range l.day1.Masters {
		ca, err := n.Output(ctx, "cat", filepath.Join(nodedisk.RegistryCerts, ownRegistry, certs.CACertFile))
		l.check(n.Name, "trusts the masters' registries for images of pods", err == nil && ca != "", "%d bytes", len(ca))
	}
	for i := range l.o.Workers {
		l.others = append(l.others, machine{name: fmt.Sprintf("worker-%d", i), pool: worker})
	}
	l.others = append(l.others, machine{name: "infra-0", pool: infra})
	l.o.View.Line("%d workers and a node of pool infra boot the base OS", l.o.Workers)
	all, ctx := errgroup.WithContext(ctx)
	for i := range l.others {
		m := &l.others[i]
		all.Go(func() (err error) {
			m.node, err = l.day1.BootBase(ctx, m.name, m.pool)
			return err
		})
	}
	return all.Wait()
}

// handOver makes the machines nodes of the cluster and runs dayone handover, which ends the bootstrap. No master
// reboots. What becomes of the workers, whose MachineOSConfig it delivers, is the next phase's.
func handOver(ctx context.Context, l *life) (err error) {
	l.fleet, err = fleet.New(fleet.Options{Lab: l.day1.Lab, Client: l.client, Config: l.kube.Config,
		Agent: filepath.Join(l.o.Bin, "dayone-daemon")})
	if err != nil {
		return err
	}
	l.ends = append(l.ends, func(context.Context) error { return l.fleet.CloseAPI() })
	for _, n := range l.day1.Masters {
		if _, err := l.fleet.Join(ctx, n, master); err != nil {
			return err
		}
	}
	if err := mastersKnown(ctx, l); err != nil {
		return err
	}
	for _, m := range l.others {
		if _, err := l.fleet.Join(ctx, m.node, m.pool); err != nil {
			return err
		}
	}
	l.watch = fleet.NewWatch(l.fleet)
	follow(ctx, l, l.fleet.Kubelets, l.watch.Run, func(ctx context.Context) { showNodes(ctx, l.recorder, l.fleet) })
	l.booted = map[string]map[*fleet.Host]int{}
	for _, pool := range clusterBuilt {
		l.booted[pool] = bootsOf(l, pool)
		if err := placePods(ctx, l, pool); err != nil {
			return err
		}
	}
	boots := bootsOf(l, master)
	if err := leadPodsToMasters(l); err != nil {
		return err
	}
	if err := runHandOver(ctx, l); err != nil {
		return err
	}
	if err := checkRegistries(ctx, l); err != nil {
		return err
	}
	for _, h := range l.fleet.Of(master) {
		if err := until(ctx, h.Node.Name+" to be done", func() (bool, error) {
			r := h.Record(ctx)
			return r.Converged() && r.State == nodestate.StateDone && r.Reason == "", errors.New(r.Reason)
		}); err != nil {
			return err
		}
		r := h.Record(ctx)
		l.check(h.Node.Name, "the cluster wants what it runs", r.Converged() && r.CurrentImage != "", "%s", r.CurrentConfig)
		n, err := h.Boots()
		l.check(h.Node.Name, "has not rebooted", err == nil && n == boots[h], "%d", n-boots[h])
	}
	return nil
}

// runHandOver runs the program on the bootstrap host. It is killed in the middle of the first copy, and run again.
func runHandOver(ctx context.Context, l *life) error {
	tls := l.kube.Config.TLSClientConfig
	user := fmt.Sprintf("{client-certificate-data: %s, client-key-data: %s}",
		base64.StdEncoding.EncodeToString(tls.CertData), base64.StdEncoding.EncodeToString(tls.KeyData))
	kubeconfig := filepath.Join(l.o.Work, "kubeconfig")
	if err := os.WriteFile(kubeconfig, []byte(l.fleet.Kubeconfig(user)), 0o600); err != nil {
		return err
	}
	command := func() *exec.Cmd {
		return l.day1.Lab.Network.Command(ctx, filepath.Join(l.o.Bin, "dayone"), "handover", "--kubeconfig", kubeconfig,
			"--state-dir", l.day1.State, "--policy", "deadline", "--handover-deadline", "10m")
	}
	if err := killInCopy(ctx, l, command()); err != nil {
		return err
	}
	l.o.View.Line("dayone handover")
	return runLogged(l, command(), "handover")
}

// killInCopy kills a hand-over when the first of its bytes are in a master's registry.
func killInCopy(ctx context.Context, l *life, cmd *exec.Cmd) error {
	const root = "/var/lib/dayone/registry/" + storage.Subdirectory
	l.o.View.Line("dayone handover, which is killed in the copy")
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("start the hand-over: %w", err)
	}
	err := until(ctx, "the first bytes in a master's registry", func() (bool, error) {
		for _, h := range l.fleet.Of(master) {
			for _, begun := range []string{"/repositories/*/*/_uploads/*/data", "/blobs/*/*/*/data"} {
				at, err := h.Outside(root + begun)
				if err != nil {
					return false, err
				}
				if found, err := filepath.Glob(at); err != nil || len(found) > 0 {
					return true, err
				}
			}
		}
		return false, nil
	})
	err = errors.Join(err, cmd.Process.Kill())
	ended := cmd.Wait()
	_, done := os.Stat(filepath.Join(l.day1.State, "handed-over.json"))
	l.check("hand-over", "killed in the copy, and not done", ended != nil && errors.Is(done, os.ErrNotExist), "%v", ended)
	return err
}
