package standin

import (
	"context"
	"errors"

	"github.com/spf13/cobra"
)

// rpmOSTree is rpm-ostree's command line, as far as rebasing needs it. Source: rpm-ostree(1) and its client's code.
func rpmOSTree() program {
	return program{name: "rpm-ostree", version: "2026.1", usage: 1,
		commands: []command{newRebase, newDeploy, newRPMStatus, newKargs, newCleanup, newRPMRollback}}
}

// transaction runs f as rpm-ostree's daemon does: one change at a time, on a booted system.
func transaction(ctx context.Context, name string, f func(all []deployment) error) error {
	if !isBooted() {
		return words("This command requires an ostree-based system")
	}
	busy := func() error {
		return words("Transaction in progress: %s\n You can cancel the current transaction with `rpm-ostree cancel`", name)
	}
	return change(ctx, locking{busy: busy}, "No deployments found for os", f)
}

type rebaseOptions struct {
	reboot, lockFinalization, downloadOnly, bypassDriver bool
	url, description                                     string
}

func newRebase(h host) *cobra.Command {
	var o rebaseOptions
	c := &cobra.Command{Use: "rebase REFSPEC", Args: cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			if err := notPlayed(c, "stateroot", "cache-only", "disallow-downgrade"); err != nil {
				return err
			}
			if (o.url == "") != (o.description == "") {
				return errors.New("--custom-origin-url and --custom-origin-description must be given together")
			}
			if err := checkDriver(o.bypassDriver); err != nil {
				return err
			}
			err := transaction(c.Context(), "rebase",
				func(all []deployment) error { return rebase(c.Context(), h, all, args[0], o) })
			if err != nil || !o.reboot || o.downloadOnly {
				return err
			}
			return reboot(c.Context())
		}}
	f := c.Flags()
	f.Bool("experimental", false, "no effect")
	f.BoolVarP(&o.reboot, "reboot", "r", false, "reboot afterwards")
	f.BoolVar(&o.lockFinalization, "lock-finalization", false, "do not finalize at shutdown")
	f.StringVar(&o.url, "custom-origin-url", "", "")
	f.StringVar(&o.description, "custom-origin-description", "", "")
	f.Bool("skip-purge", false, "no effect here")
	f.BoolVar(&o.bypassDriver, "bypass-driver", false, "rebase even if an updates driver is registered")
	f.String("stateroot", "", "not played")
	f.Bool("cache-only", false, "not played")
	f.BoolVar(&o.downloadOnly, "download-only", false, "bring the image, deploy nothing")
	f.Bool("disallow-downgrade", false, "not played")
	return c
}

func rebase(ctx context.Context, h host, all []deployment, spec string, o rebaseOptions) error {
	ref, err := parseReference(spec)
	if err != nil {
		return err
	}
	// The first deployment is the one whose origin is changed: a pending one, else the booted one.
	if first, err := parseReference(all[0].reference); err == nil && first.canonical == ref.canonical {
		return words("Old and new refs are equal: %s", ref.canonical)
	}
	h.say("Pulling manifest: %s", ref.canonical)
	said := phrases{open: "Creating importer: failed to invoke method OpenImage"}
	p := puller{out: h, unprivileged: true}
	if o.downloadOnly {
		_, err := p.pullFor(ctx, ref, said)
		return err
	}
	_, err = rebaseTo(ctx, p, ref, said, func(pulled) (target, error) {
		b := booted(all)
		next := target{stateroot: b.stateroot, kernelArguments: b.kargs, locked: o.lockFinalization}
		if o.url != "" && ref.pinned() {
			next.origin = "custom-url=" + o.url + "\ncustom-description=" + o.description + "\n"
		}
		return next, nil
	})
	if err != nil {
		return err
	}
	h.say("Staging deployment... done\nRun \"systemctl reboot\" to start a reboot")
	return nil
}

func newCleanup(h host) *cobra.Command {
	var pending, rollback, base, metadata bool
	c := &cobra.Command{Use: "cleanup", Args: cobra.NoArgs, RunE: func(c *cobra.Command, _ []string) error {
		if !pending && !rollback && !base && !metadata {
			return words("At least one cleanup option must be specified")
		}
		return transaction(c.Context(), "cleanup", func([]deployment) error {
			return undeploy(c.Context(), func(all []deployment, d deployment) bool {
				return !d.pinned && (pending && isPending(all, d) || rollback && isRollback(all, d))
			})
		})
	}}
	f := c.Flags()
	f.BoolVarP(&pending, "pending", "p", false, "remove the pending deployment")
	f.BoolVarP(&rollback, "rollback", "r", false, "remove the rollback deployment")
	f.BoolVarP(&base, "base", "b", false, "no effect here")
	f.BoolVarP(&metadata, "repomd", "m", false, "no effect here")
	return c
}

func newRPMRollback(h host) *cobra.Command {
	var again bool
	c := &cobra.Command{Use: "rollback", Args: cobra.NoArgs, RunE: func(c *cobra.Command, _ []string) error {
		err := transaction(c.Context(), "rollback",
			func(all []deployment) error { return rollback(h, all) })
		if err != nil || !again {
			return err
		}
		return reboot(c.Context())
	}}
	c.Flags().BoolVarP(&again, "reboot", "r", false, "reboot afterwards")
	return c
}

// rollback makes the deployment after the booted one the first; where there is none, it puts the booted one back on
// top.
func rollback(h host, all []deployment) error {
	var pending, back *deployment
	for i := range all {
		switch {
		case isPending(all, all[i]) && pending == nil:
			pending = &all[i]
		case isRollback(all, all[i]) && back == nil:
			back = &all[i]
		}
	}
	switch {
	case pending == nil && back == nil:
		return words("No rollback deployment found")
	case pending != nil && pending.staged:
		return words("Staged deployment (remove with cleanup -p)")
	case back == nil:
		back = booted(all)
	}
	h.say("Moving '%s.%d' to be first deployment", back.checksum, back.serial)
	return makeDefault(*back)
}
