package standin

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"
)

const (
	// newestBootc is the release that is played where BootcVersionPath names no other.
	newestBootc = "1.16.0"
	// BootcVersionPath holds the release to play, such as 1.11.0, on nodes that are to have an older one.
	BootcVersionPath = "/etc/stand-in-bootc-version"
)

// bootc is bootc's command line, as far as rebasing needs it. Source: bootc(8) and its code.
func bootc() program {
	return program{name: "bootc", version: playedBootc(), usage: 2,
		commands: []command{newSwitch, newUpgrade, newBootcRollback, newBootcStatus,
			composefsOnly("delete-deployment DEPL_ID", "DeleteDeployment", 1),
			composefsOnly("config-diff", "ConfigDiff", 0)}}
}

func playedBootc() string {
	raw, err := os.ReadFile(BootcVersionPath)
	if err != nil {
		return newestBootc
	}
	return strings.TrimSpace(string(raw))
}

// keepsDownloads: the release has --download-only and --from-downloaded, which came with 1.12.
func keepsDownloads(version string) bool {
	var major, minor int
	n, err := fmt.Sscanf(version, "%d.%d", &major, &minor)
	return err == nil && n == 2 && (major > 1 || minor >= 12)
}

// composefsOnly makes a hidden command that bootc refuses on every host of libostree, and so on each of ours.
func composefsOnly(use, name string, args int) command {
	return func(host) *cobra.Command {
		refuse := func(*cobra.Command, []string) error {
			if inContainer() || !isBooted() {
				return words("This command requires a booted host system")
			}
			return words("%s is only supported for composefs backend", name)
		}
		return &cobra.Command{Use: use, Hidden: true, Args: cobra.ExactArgs(args), RunE: refuse}
	}
}

// onBootedHost refuses containers and hosts that no deployment was booted on; a second change waits for the first.
func onBootedHost(ctx context.Context, f func(all []deployment) error) error {
	if inContainer() {
		return words("Detected container; this command requires a booted host system.")
	}
	if !isBooted() {
		return words("This command requires a booted host system")
	}
	return change(ctx, locking{wait: true}, "This command requires a booted host system", f)
}

// inContainer is bootc's own test.
func inContainer() bool {
	if _, ok := os.LookupEnv("container"); ok {
		return true
	}
	for _, path := range []string{"/run/.containerenv", "/.dockerenv"} {
		if _, err := os.Stat(path); err == nil {
			return true
		}
	}
	return false
}

func newSwitch(h host) *cobra.Command {
	var apply, signed, retain bool
	var transport string
	var soft softReboot
	c := &cobra.Command{Use: "switch TARGET", Args: cobra.ExactArgs(1), RunE: func(c *cobra.Command, args []string) error {
		if err := notPlayed(c, "mutate-in-place", "experimental-unified-storage"); err != nil {
			return err
		}
		if transport != "registry" {
			return fmt.Errorf("stand-in: --transport %s is not played", transport)
		}
		ref := reference{image: args[0], signed: signed, canonical: "ostree-unverified-registry:" + args[0]}
		if signed {
			ref.canonical = "ostree-image-signed:docker://" + args[0]
		}
		err := onBootedHost(c.Context(), func(all []deployment) error { return switchTo(c.Context(), h, all, ref, soft) })
		if err != nil {
			return words("Switching: %w", err)
		}
		if !apply {
			return nil
		}
		return applyStaged(c.Context())
	}}
	f := c.Flags()
	f.Bool("quiet", false, "no progress")
	f.BoolVar(&apply, "apply", false, "reboot into it")
	f.StringVar(&transport, "transport", "registry", "")
	f.BoolVar(&signed, "enforce-container-sigpolicy", false, "")
	f.BoolVar(&retain, "retain", false, "no effect here")
	soft.addFlag(c)
	f.Bool("mutate-in-place", false, "not played")
	f.Bool("no-signature-verification", false, "no effect")
	f.Bool("experimental-unified-storage", false, "not played")
	f.Int("progress-fd", 0, "no effect here")
	for _, hidden := range []string{"mutate-in-place", "no-signature-verification", "experimental-unified-storage",
		"progress-fd"} {
		f.Lookup(hidden).Hidden = true
	}
	return c
}

// applyStaged reboots when there is something to reboot into.
func applyStaged(ctx context.Context) error {
	all, err := deployments(ctx)
	if err != nil || len(all) == 0 || !all[0].staged {
		return err
	}
	return reboot(ctx)
}

// switchTo stages the image, unless the host's specification, the first deployment's image, names it already.
// Unchanged, it prepares no soft reboot either.
func switchTo(ctx context.Context, h host, all []deployment, ref reference, soft softReboot) error {
	if specification(all) == ref.canonical {
		h.say("Image specification is unchanged.")
		return nil
	}
	if err := stageImage(ctx, h, all, ref); err != nil {
		return err
	}
	return soft.prepareStaged(ctx, h)
}

// specification is the image of what the next boot takes, bar a queued rollback.
func specification(all []deployment) string {
	d := booted(all)
	if len(all) > 0 && all[0].staged {
		d = &all[0]
	}
	if d == nil || d.reference == "" || d.layered {
		return ""
	}
	r, err := parseReference(d.reference)
	if err != nil {
		return ""
	}
	return r.canonical
}

func stageImage(ctx context.Context, h host, all []deployment, ref reference) error {
	said := phrases{open: "Preparing import: Fetching manifest", pull: "Pulling", stage: "Staging"}
	done, err := rebaseTo(ctx, puller{out: h}, ref, said, func(done pulled) (target, error) {
		b := booted(all)
		kernelArguments, err := bootcKernelArguments(ctx, b, done.commit)
		return target{stateroot: b.stateroot, kernelArguments: kernelArguments}, err
	})
	if err != nil {
		return err
	}
	h.say("Queued for next boot: %s\n  Version: %s\n  Digest: %s", ref.image, done.version, done.digest)
	return nil
}

// bootcKernelArguments takes what the booted image asked for off the booted arguments and adds what the new one asks
// for.
func bootcKernelArguments(ctx context.Context, b *deployment, commit string) ([]string, error) {
	old, err := imageKernelArguments(ctx, b.checksum)
	if err != nil {
		return nil, err
	}
	wanted, err := imageKernelArguments(ctx, commit)
	if err != nil {
		return nil, err
	}
	next := slices.DeleteFunc(slices.Clone(b.kargs), func(k string) bool {
		return slices.Contains(old, k) &&
			!slices.Contains(wanted, k)
	})
	for _, k := range wanted {
		if !slices.Contains(next, k) {
			next = append(next, k)
		}
	}
	return next, nil
}

func newUpgrade(h host) *cobra.Command {
	var check, apply, fromDownloaded bool
	var soft softReboot
	c := &cobra.Command{Use: "upgrade", Aliases: []string{"update"}, Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			if err := notPlayed(c, "download-only", "tag"); err != nil {
				return err
			}
			err := onBootedHost(c.Context(),
				func(all []deployment) error {
					if fromDownloaded {
						return upgradeFromDownloaded(c.Context(), h, all, soft)
					}
					return upgrade(c.Context(), h, all, check, soft)
				})
			if err != nil {
				return words("Upgrading: %w", err)
			}
			if !apply {
				return nil
			}
			return applyStaged(c.Context())
		}}
	f := c.Flags()
	f.Bool("quiet", false, "no progress")
	f.BoolVar(&check, "check", false, "only look")
	f.BoolVar(&apply, "apply", false, "reboot into it")
	if keepsDownloads(playedBootc()) {
		f.Bool("download-only", false, "not played")
		f.BoolVar(&fromDownloaded, "from-downloaded", false, "apply what is staged, without a look at the registry")
		c.MarkFlagsMutuallyExclusive("check", "download-only", "from-downloaded")
	}
	f.String("tag", "", "not played")
	soft.addFlag(c)
	f.Int("progress-fd", 0, "no effect here")
	c.MarkFlagsMutuallyExclusive("check", "apply")
	c.MarkFlagsMutuallyExclusive("check", "soft-reboot")
	return c
}

func upgrade(ctx context.Context, h host, all []deployment, check bool, soft softReboot) error {
	for _, d := range all {
		if d.layered && (d.booted || d.staged) {
			return words("Deployment contains local rpm-ostree modifications; cannot upgrade via bootc. " +
				"You can run `rpm-ostree reset` to undo the modifications.")
		}
	}
	ref, err := parseReference(specification(all))
	if err != nil {
		return words("No image source specified in host specification")
	}
	now, err := puller{out: h}.resolve(ctx, ref)
	if err != nil {
		return words("Preparing import: Fetching manifest: %w", err)
	}
	staged := all[0].staged && all[0].digest == now
	switch {
	case check && (staged || now == booted(all).digest):
		h.say("No changes in: %s", ref.canonical)
		return nil
	case check:
		h.say("Update available for: %s\n  Digest: %s", ref.image, now)
		return nil
	case staged:
		h.say("Staged update present, not changed")
		return soft.prepareStaged(ctx, h)
	case now == booted(all).digest:
		h.say("No update available.")
		return nil
	}
	if err := stageImage(ctx, h, all, ref); err != nil {
		return err
	}
	return soft.prepareStaged(ctx, h)
}

// upgradeFromDownloaded lets the next shutdown finalize what is staged, which may be locked, and prepares the soft
// reboot. It fetches nothing.
func upgradeFromDownloaded(ctx context.Context, h host, all []deployment, soft softReboot) error {
	if specification(all) == "" {
		return words("No image source specified")
	}
	if !all[0].staged {
		return words("No staged deployment found")
	}
	if !all[0].locked {
		h.say("Staged deployment is already set to apply on reboot")
		return soft.prepareStaged(ctx, h)
	}
	if _, err := ostree(ctx, "admin", "lock-finalization", "--sysroot=/", "--unlock"); err != nil {
		return err
	}
	h.say("Staged deployment will now be applied on reboot")
	return soft.prepareStaged(ctx, h)
}

func newBootcRollback(h host) *cobra.Command {
	var apply bool
	var soft softReboot
	c := &cobra.Command{Use: "rollback", Args: cobra.NoArgs, RunE: func(c *cobra.Command, _ []string) error {
		err := onBootedHost(c.Context(), func(all []deployment) error { return bootcRollback(c.Context(), h, all, soft) })
		if err != nil {
			return words("Rolling back: %w", err)
		}
		if apply {
			return reboot(c.Context())
		}
		return nil
	}}
	c.Flags().BoolVar(&apply, "apply", false, "reboot into it")
	soft.addFlag(c)
	return c
}

// bootcRollback swaps the boot order, so that a second call undoes the first. What is staged is discarded.
func bootcRollback(ctx context.Context, h host, all []deployment, soft softReboot) error {
	back, queued := rollbackOf(all)
	if back == nil {
		return words("No rollback available")
	}
	if back.reference == "" {
		return words("Rollback is not container image based")
	}
	if err := undeploy(ctx, func(_ []deployment, d deployment) bool { return d.staged }); err != nil {
		return err
	}
	next := *back
	if queued {
		h.say("notice: Reverting queued rollback state\nNext boot: current deployment")
		next = *booted(all)
	} else {
		h.say("Next boot: rollback deployment")
	}
	if err := makeDefault(next); err != nil {
		return err
	}
	all, err := deployments(ctx)
	if err != nil {
		return err
	}
	return soft.prepare(ctx, h, all, &all[0], "rollback")
}

// rollbackOf is the one deployment beside the booted and the staged one; queued says that the next boot takes it.
func rollbackOf(all []deployment) (back *deployment, queued bool) {
	b := booted(all)
	for i := range all {
		if d := &all[i]; !d.booted && !d.staged && b != nil && d.stateroot == b.stateroot {
			return d, d.index < b.index
		}
	}
	return nil, false
}
