package daemon

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"time"

	ign35 "github.com/coreos/ignition/v2/config/v3_5/types"
	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"

	"dayone.dev/dayone/manifests/machineconfig"
	"dayone.dev/dayone/rebase/daemon/coreuser"
	"dayone.dev/dayone/rebase/daemon/hostfiles"
	"dayone.dev/dayone/rebase/deploy"
	"dayone.dev/dayone/rebase/nodedisk"
)

// nodeFiles is what configs have on the running system: files, units and what the core user logs in with.
type nodeFiles struct {
	root     string
	host     hostfiles.Host
	services Services
	now      func() time.Time
}

// writeAccounts brings what no image holds: the core user's SSH keys, in a home directory, and its password. Any of the
// configs that the node had may be on disk after an interruption.
func (f nodeFiles) writeAccounts(ctx context.Context, had []ign35.Config, after ign35.Config) error {
	for _, before := range had {
		if err := coreuser.ApplyKeys(f.root, before, after); err != nil {
			return err
		}
		if err := coreuser.ApplyPassword(ctx, f.root, before, after, f.now()); err != nil {
			return err
		}
	}
	return nil
}

// enableUnits makes units start at boot, or not, where a config says so otherwise than those before: presets are for
// first boots. It may be done again.
func (f nodeFiles) enableUnits(ctx context.Context, had []ign35.Config, after ign35.Config) error {
	for _, before := range had {
		enable, disable := unitChanges(before, after)
		for _, name := range enable {
			if err := f.enable(ctx, name); err != nil {
				return err
			}
		}
		for _, name := range disable {
			if err := hostfiles.Disable(f.root, name); err != nil {
				return err
			}
		}
	}
	return nil
}

func (f nodeFiles) enable(ctx context.Context, unit string) error {
	return f.services.Systemctl(ctx, "--no-reload", "enable", unit)
}

// unitChanges lists the units that after enables, and disables or no longer has, unlike before.
func unitChanges(before, after ign35.Config) (enable, disable []string) {
	had := map[string]bool{}
	for _, u := range before.Systemd.Units {
		had[u.Name] = u.Enabled != nil && *u.Enabled
	}
	for _, u := range after.Systemd.Units {
		was := had[u.Name]
		delete(had, u.Name)
		switch {
		case u.Enabled == nil || *u.Enabled == was:
		case *u.Enabled:
			enable = append(enable, u.Name)
		default:
			disable = append(disable, u.Name)
		}
	}
	for name, enabled := range had {
		if enabled {
			disable = append(disable, name)
		}
	}
	return enable, disable
}

// paths lists what a config has on this disk, in full.
func (f nodeFiles) paths(config ign35.Config) ([]string, error) {
	paths, err := f.host.Paths(config)
	if err != nil {
		return nil, err
	}
	keys, err := coreuser.KeysPath(f.root, config)
	if err != nil {
		return nil, err
	}
	if keys != "" {
		paths = append(paths, keys)
	}
	for i := range paths {
		paths[i] = filepath.Join(f.root, paths[i])
	}
	return paths, nil
}

// compare names what is unlike a config: files, units and the core user's SSH keys.
func (f nodeFiles) compare(config ign35.Config) ([]hostfiles.Mismatch, error) {
	mismatches, err := f.host.Verify(config)
	if err != nil {
		return nil, err
	}
	at, why, err := coreuser.VerifyKeys(f.root, config)
	if why != "" {
		mismatches = append(mismatches, hostfiles.Mismatch{Path: at, Why: why})
	}
	return mismatches, err
}

// repair puts files, units and SSH keys back, and enables what a config enables.
func (f nodeFiles) repair(ctx context.Context, config ign35.Config, mismatches []hostfiles.Mismatch) error {
	if err := errors.Join(f.host.Restore(config), coreuser.ApplyKeys(f.root, config, config)); err != nil {
		return err
	}
	for _, m := range mismatches {
		if m.Why != hostfiles.NotEnabled {
			continue
		}
		if err := f.enable(ctx, filepath.Base(m.Path)); err != nil {
			return err
		}
	}
	return nil
}

// maxNamed is how many paths a message names.
const maxNamed = 5

func names(mismatches []hostfiles.Mismatch) string {
	words := make([]string, 0, maxNamed+1)
	for i, m := range mismatches {
		if i == maxNamed {
			words = append(words, fmt.Sprintf("and %d more", len(mismatches)-maxNamed))
			break
		}
		words = append(words, m.Path+" "+m.Why)
	}
	return strings.Join(words, "; ")
}

// startOf is what a change of files begins from. What was begun is on disk in part, unless the node has booted the
// image that has all of it.
func startOf(ctx context.Context, d deploy.Deployer, in observed) (hostfiles.Start, error) {
	var out hostfiles.Start
	status, err := d.Status(ctx)
	if err != nil {
		return out, fmt.Errorf("read deployments: %w", err)
	}
	for _, have := range in.had() {
		config, err := parse(have.Config)
		if err != nil {
			return out, err
		}
		image, err := deploy.ParseImage(have.Image)
		if have.Same(in.current) || have.Image != in.current.Image && err == nil && status.Booted.Runs(image) {
			out.Has = append(out.Has, config)
		} else {
			out.Begun = append(out.Begun, config)
		}
	}
	return out, nil
}

// parse reads the Ignition config of a rendered config.
func parse(mc *mcfgv1.MachineConfig) (ign35.Config, error) {
	c, err := machineconfig.ParseRendered3(mc.Spec.Config.Raw)
	if err != nil {
		return c, fmt.Errorf("read rendered config %s: %w", mc.Name, err)
	}
	return c, nil
}

func parseAll(all []nodedisk.Current) ([]ign35.Config, error) {
	out := make([]ign35.Config, len(all))
	for i, c := range all {
		var err error
		if out[i], err = parse(c.Config); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// targetConfig is the target's config: the node's own when it is the one that it has already, or what the plan has put
// on its disk, so that the cluster need not have it, or answer, any more.
func targetConfig(ctx context.Context, configs nodeConfigs, in observed) (*mcfgv1.MachineConfig, error) {
	name := in.journal.Target.Config
	if in.current.Config.Name == name {
		return in.current.Config, nil
	}
	for _, have := range in.begun {
		if have.Config.Name == name {
			return have.Config, nil
		}
	}
	return configs.Config(ctx, name)
}
