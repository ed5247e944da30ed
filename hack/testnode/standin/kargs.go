package standin

import (
	"context"
	"slices"
	"strings"

	"github.com/spf13/cobra"
)

// kargsChange is what `rpm-ostree kargs` was asked to do, in the order in which it does it.
type kargsChange struct {
	deletes, deletesIfPresent, replaces []string
	appends, appendsIfMissing           []string
	unchangedExit77, reboot, locked     bool
}

func (k kargsChange) isEmpty() bool {
	return len(k.deletes)+len(k.deletesIfPresent)+len(k.replaces)+len(k.appends)+len(k.appendsIfMissing) == 0
}

func newKargs(h host) *cobra.Command {
	var k kargsChange
	c := &cobra.Command{Use: "kargs", Args: cobra.NoArgs, RunE: func(c *cobra.Command, _ []string) error {
		if k.isEmpty() {
			all, err := deployments(c.Context())
			if err != nil || len(all) == 0 {
				return err
			}
			h.say("%s", strings.Join(all[0].kargs, " "))
			return nil
		}
		changed := false
		err := transaction(c.Context(), "kernel-args", func(all []deployment) (err error) {
			changed, err = changeKargs(c.Context(), h, all, k)
			return err
		})
		switch {
		case err != nil:
			return err
		case !changed && k.unchangedExit77:
			return exitCode(77)
		case changed && k.reboot:
			return reboot(c.Context())
		}
		return nil
	}}
	f := c.Flags()
	f.StringArrayVar(&k.appends, "append", nil, "KEY=VALUE")
	f.StringArrayVar(&k.appendsIfMissing, "append-if-missing", nil, "KEY=VALUE")
	f.StringArrayVar(&k.deletes, "delete", nil, "KEY=VALUE")
	f.StringArrayVar(&k.deletesIfPresent, "delete-if-present", nil, "KEY=VALUE")
	f.StringArrayVar(&k.replaces, "replace", nil, "KEY=VALUE[=NEWVALUE]")
	f.BoolVar(&k.unchangedExit77, "unchanged-exit-77", false, "")
	f.BoolVar(&k.reboot, "reboot", false, "reboot afterwards")
	f.BoolVar(&k.locked, "lock-finalization", false, "do not finalize at shutdown")
	return c
}

// changeKargs stages the first deployment's tree again with other kernel arguments.
func changeKargs(ctx context.Context, h host, all []deployment, k kargsChange) (changed bool, err error) {
	first := all[0]
	next, err := k.apply(first.kargs)
	if err != nil {
		return false, err
	}
	if slices.Equal(next, first.kargs) {
		h.say("No changes.")
		return false, nil
	}
	origin := "[origin]\n"
	for key, value := range map[string]string{"container-image-reference": first.reference, "refspec": first.refspec,
		"custom-url": first.customURL, "custom-description": first.customD} {
		if value != "" {
			origin += key + "=" + value + "\n"
		}
	}
	err = stage(ctx, target{commit: first.checksum, stateroot: first.stateroot, origin: origin, kernelArguments: next,
		locked: k.locked})
	if err == nil {
		h.say("Staging deployment... done\nKernel arguments updated.\nRun \"systemctl reboot\" to start a reboot")
	}
	return err == nil, err
}

func (k kargsChange) apply(now []string) ([]string, error) {
	next := slices.Clone(now)
	for _, d := range k.deletes {
		i := slices.Index(next, d)
		if i < 0 {
			return nil, words("No karg '%s' found", d)
		}
		next = slices.Delete(next, i, i+1)
	}
	for _, d := range k.deletesIfPresent {
		if i := slices.Index(next, d); i >= 0 {
			next = slices.Delete(next, i, i+1)
		}
	}
	for _, r := range k.replaces {
		if err := replaceKarg(next, r); err != nil {
			return nil, err
		}
	}
	next = append(next, k.appends...)
	for _, a := range k.appendsIfMissing {
		if !slices.Contains(next, a) {
			next = append(next, a)
		}
	}
	return next, nil
}

// replaceKarg follows KEY=VALUE, where KEY is there once, or KEY=VALUE=NEWVALUE.
func replaceKarg(kargs []string, spec string) error {
	parts := strings.SplitN(spec, "=", 3)
	if len(parts) < 2 {
		return words("No value for replacement of '%s'", spec)
	}
	var found []int
	for i, k := range kargs {
		if len(parts) == 3 && k == parts[0]+"="+parts[1] || len(parts) == 2 &&
			(k == parts[0] || strings.HasPrefix(k, parts[0]+"=")) {
			found = append(found, i)
		}
	}
	switch {
	case len(found) == 0:
		return words("No karg '%s' found", parts[0])
	case len(found) > 1:
		return words("Multiple values for key '%s' found", parts[0])
	}
	kargs[found[0]] = parts[0] + "=" + parts[len(parts)-1]
	return nil
}
