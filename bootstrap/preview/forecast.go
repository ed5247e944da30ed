package preview

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"

	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"

	"dayone.dev/dayone/bootstrap/preflight"
	"dayone.dev/dayone/installconfig"
	"dayone.dev/dayone/installconfig/report"
	"dayone.dev/dayone/manifests/render"
	"dayone.dev/dayone/rebase/disruption"
	"dayone.dev/dayone/rebase/fleet/proposal"
	"dayone.dev/dayone/rebase/fleet/snapshot"
	"dayone.dev/dayone/rebase/forecast"
	"dayone.dev/dayone/rebase/rollout"
)

// Forecast is what an install directory makes of a cluster. docs/operators/rollout.md describes it.
type Forecast struct {
	forecast.Plan
	// Install is what an installation from the directory of dayone plan does.
	Install *Plan `json:"install,omitempty"`
}

// Directory is an install directory that was read and checked, and its plan.
type Directory struct {
	dir     string
	in      *preflight.Input
	install *Plan
	// unprepared warns that dayone prepare has not run.
	unprepared []string
}

// Read reads and checks an install directory.
func Read(dir, platform string, versions render.Versions) (*Directory, error) {
	in, err := preflight.Load(dir, platform)
	if err != nil {
		return nil, err
	}
	install, err := Of(in, versions)
	if err != nil {
		return nil, err
	}
	d := &Directory{dir: dir, in: in, install: install, unprepared: unprepared(dir)}
	install.Warnings = append(install.Warnings, d.unprepared...)
	return d, nil
}

// unprepared says what a plan lacks as long as dayone prepare has not run.
func unprepared(dir string) []string {
	var found report.Finding
	if !errors.As(preflight.Prepared(dir), &found) {
		return nil
	}
	found.Severity = report.Warning
	found.Message += ", and what dayone prepare makes is not in this plan: the key that signs images, and the policy by " +
		"which nodes ask for signatures"
	return []string{found.Error()}
}

// IsInstallDirectory tells an install directory from a dump.
func IsInstallDirectory(dir string) bool {
	for _, file := range []string{filepath.Join(dir, installconfig.FileName), installconfig.SidecarPath(dir)} {
		if _, err := os.Stat(file); err == nil {
			return true
		}
	}
	return false
}

// Forecast says what an installation from the directory will do.
func (d *Directory) Forecast(at time.Time) *Forecast {
	f := &Forecast{Install: d.install, Plan: forecast.Plan{Source: d.dir, At: at.UTC().Truncate(time.Second),
		Recorded: true, Pools: []forecast.Pool{}}}
	for _, pool := range d.install.Pools {
		f.Pools = append(f.Pools, forecast.Pool{Layered: pool.Image != nil, Plan: rollout.Plan{
			Pool: pool.Name, Target: pool.Target(), Next: []string{}, Verdicts: []rollout.Verdict{},
			Counts: rollout.Counts{Nodes: pool.Nodes}}})
	}
	return f
}

// Since says what becomes of the nodes that were installed from an earlier directory.
func (d *Directory) Since(ctx context.Context, earlier *Directory, at time.Time) (*Forecast, error) {
	objects, err := d.objects(ctx)
	if err != nil {
		return nil, err
	}
	settings, err := snapshot.Settings(ctx, objects.Dump)
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", d.dir, err)
	}
	f, before := d.Forecast(at), earlier.install
	f.Refused = settings.Refused
	f.Install.Warnings = append(f.Install.Warnings, earlier.unprepared...)
	for i := range f.Pools {
		pool := &f.Pools[i]
		foreseen, known, err := d.install.Change(pool.Pool, before, settings)
		if err != nil {
			return nil, err
		}
		if !known {
			f.Install.Warnings = append(f.Install.Warnings, fmt.Sprintf("pool %s is not in %s: it is new", pool.Pool,
				earlier.dir))
			continue
		}
		was, _ := before.Pool(pool.Pool)
		pool.Effect = effectOf(foreseen, pool, was)
	}
	for _, pool := range before.Pools {
		if _, still := f.Install.Pool(pool.Name); !still {
			f.Install.Warnings = append(f.Install.Warnings, fmt.Sprintf("pool %s of %s is gone: its nodes keep what they "+
				"have",
				pool.Name, earlier.dir))
		}
	}
	return f, nil
}

func effectOf(foreseen disruption.Foreseen, pool *forecast.Pool, was *Pool) *forecast.Effect {
	e := forecast.NewEffect(foreseen)
	e.Building = pool.Layered && len(e.Transitions) > 0
	e.Remade = pool.Layered && slices.ContainsFunc(e.Transitions,
		func(w disruption.Transition) bool { return w.Change == disruption.ImageContent })
	if was.Target().Config != pool.Target.Config {
		e.Before = was.Target().Config
	}
	return e
}

// Over says what becomes of a cluster, or of a dump of one, with the directory's objects applied. Objects that are no
// longer in the directory stay in the cluster.
func (d *Directory) Over(ctx context.Context, s *snapshot.Source, at time.Time, v render.Versions) (*Forecast, error) {
	objects, err := d.objects(ctx)
	if err != nil {
		return nil, err
	}
	in, err := s.ReadWith(ctx, objects.Dump, at, v)
	if err != nil {
		return nil, err
	}
	p, err := forecast.Of(in)
	if err != nil {
		return nil, err
	}
	p.Unknown = append(p.Unknown, objects.Unknown(in)...)
	p.Hints = objects.Hints(in)
	return &Forecast{Plan: *p, Install: d.install}, nil
}

// objects are those of the directory as they would be applied: its files, and the MachineOSConfigs that dayone makes
// from install-config.yaml. Pools that every cluster has anyway are not among them.
func (d *Directory) objects(ctx context.Context) (*proposal.Proposal, error) {
	var names []string
	for _, sub := range []string{"manifests", "openshift", d.in.Sidecar.Config.LayeringDir} {
		entries, err := os.ReadDir(filepath.Join(d.dir, sub))
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, fmt.Errorf("list %s: %w", sub, err)
		}
		for _, e := range entries {
			name := filepath.Join(d.dir, sub, e.Name())
			if !e.IsDir() && slices.Contains(snapshot.Extensions(), filepath.Ext(name)) && !d.generates(name) {
				names = append(names, name)
			}
		}
	}
	out, err := proposal.Read(ctx, proposal.Options{Files: names, Checked: true})
	if err != nil {
		return nil, err
	}
	for _, g := range d.in.Generated {
		made, isConfig := g.Object.(*mcfgv1.MachineOSConfig)
		if !isConfig {
			continue
		}
		raw, err := json.Marshal(made)
		if err != nil {
			return nil, fmt.Errorf("encode %s: %w", g.File, err)
		}
		if err := out.Add(raw, g.File); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// generates tells that dayone itself writes the file.
func (d *Directory) generates(name string) bool {
	return slices.ContainsFunc(d.in.Generated,
		func(g preflight.Generated) bool { return filepath.Join(d.dir, g.File) == name })
}
