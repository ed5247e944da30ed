package cluster

import (
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"

	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	opv1 "github.com/openshift/api/operator/v1"
	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/api/meta"

	"dayone.dev/dayone/bootstrap/preflight"
	"dayone.dev/dayone/bootstrap/preview"
	"dayone.dev/dayone/cmd/internal/cli"
	"dayone.dev/dayone/cmd/internal/connect"
	"dayone.dev/dayone/installconfig"
	"dayone.dev/dayone/manifests/render"
	"dayone.dev/dayone/rebase/disruption"
	"dayone.dev/dayone/rebase/rollout"
	"dayone.dev/dayone/rebase/target"
)

// planSchema is the JSON schema of a clusterPlan, made from the types by make generate.
//
//go:embed plan.schema.json
var planSchema []byte

// NewSchema is dayone schema.
func NewSchema() *cobra.Command {
	return &cobra.Command{
		Use:   "schema [plan]",
		Short: "Print a JSON schema of install-config.yaml for editors, or of what the plan commands print",
		Args:  cobra.MatchAll(cobra.MaximumNArgs(1), cobra.OnlyValidArgs), ValidArgs: []string{"plan"},
		RunE: func(cmd *cobra.Command, args []string) error {
			schema := installconfig.Schema()
			if len(args) > 0 {
				schema = planSchema
			}
			_, err := cmd.OutOrStdout().Write(schema)
			return err
		},
	}
}

// NewPlan is dayone plan; version is the program's.
func NewPlan(version string) *cobra.Command {
	f := &sourceFlags{Flags: &connect.Flags{Version: version}}
	var dir, platform string
	var code bool
	cmd := &cobra.Command{
		Use:   "plan",
		Short: "Say what an installation from a directory will do, or what the directory would change",
		Long: "Plan reads an install directory and starts nothing: which objects dayone makes, which images are built " +
			"from what, how often nodes boot, and which\n" +
			"MachineConfig each file and unit comes from. With --from, the directory that a cluster was installed from, " +
			"a dump of the cluster or its kubeconfig,\n" +
			"it says what the directory would change there; --exit-code ends with 0 when no service and no pod notices, " +
			"2 when units are reloaded or restarted,\n" +
			"3 when nodes drain, 4 when they reboot, 5 when installed nodes cannot take it, and 1 for whatever goes wrong.",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			p, err := planDirectory(cmd.Context(), dir, platform, f)
			if err != nil {
				return err
			}
			if err := cli.Print(cmd, p, p.printEffects); err != nil || !code {
				return err
			}
			return p.worst()
		},
	}
	cli.InstallDir(cmd, &dir, &platform)
	cmd.Flags().StringVar(&f.from, "from", "",
		"what there is now: an install directory, a directory of objects as kubectl get -o yaml or must-gather write "+
			"them, or a kubeconfig file")
	cmd.Flags().StringVar(&f.at, "at", "", "the moment to answer for, such as 2026-01-31T22:00:00Z; default: now")
	cmd.Flags().BoolVar(&code, "exit-code", false, "let the exit code be the answer")
	return connect.WithHints(cli.AllowYAML(cmd), "")
}

// planDirectory plans an installation, or with f.from the change from what is there.
func planDirectory(ctx context.Context, dir, platform string, f *sourceFlags) (*clusterPlan, error) {
	in, err := preflight.Load(dir, platform)
	if err != nil {
		return nil, err
	}
	install, err := preview.Of(in, render.VersionsOf(f.Version))
	if err != nil {
		return nil, err
	}
	if f.from != "" && !isInstallDirectory(f.from) {
		return planOver(ctx, dir, in, install, f)
	}
	at, err := f.moment()
	if err != nil {
		return nil, err
	}
	p := &clusterPlan{Source: dir, At: at.UTC().Truncate(time.Second), Recorded: true, Install: install,
		Pools: []poolPlan{}}
	for _, pool := range install.Pools {
		p.Pools = append(p.Pools, poolPlan{Layered: pool.Image != nil, Plan: rollout.Plan{
			Pool: pool.Name, Target: target.Target(pool.Target()), Next: []string{}, Verdicts: []rollout.Verdict{},
			Counts: rollout.Counts{Nodes: pool.Nodes}}})
	}
	if f.from == "" {
		return p, nil
	}
	return p, p.since(ctx, dir, in, platform, f.from, render.VersionsOf(f.Version))
}

// since adds what becomes of the nodes of an earlier install directory.
func (p *clusterPlan) since(ctx context.Context, dir string, in *preflight.Input, platform, from string,
	versions render.Versions) error {
	earlier, err := preflight.Load(from, platform)
	if err != nil {
		return fmt.Errorf("read %s: %w", from, err)
	}
	before, err := preview.Of(earlier, versions)
	if err != nil {
		return fmt.Errorf("read %s: %w", from, err)
	}
	objects, err := directoryObjects(dir, in)
	if err != nil {
		return err
	}
	settings, err := readSettings(ctx, objects)
	if err != nil {
		return fmt.Errorf("read %s: %w", dir, err)
	}
	p.Refused = settings.Refused
	for i := range p.Pools {
		have := &p.Pools[i]
		foreseen, known, err := p.Install.Change(have.Pool, before, settings)
		if err != nil {
			return err
		}
		if !known {
			p.Install.Warnings = append(p.Install.Warnings, fmt.Sprintf("pool %s is not in %s: it is new", have.Pool, from))
			continue
		}
		have.Effect = &poolEffect{PoolPlan: foreseen.Plan, Details: []disruption.Plan{}, Building: have.Layered &&
			len(foreseen.Plan.Ways) > 0}
		if was, _ := before.Pool(have.Pool); was.Target().Config != have.Target.Config {
			have.Effect.Before = was.Target().Config
		}
		for _, w := range foreseen.Plan.Ways {
			have.Effect.Details = append(have.Effect.Details, foreseen.Ways[w.From])
			have.Effect.Remade = have.Layered && w.Change == disruption.ImageContent
		}
	}
	for _, pool := range before.Pools {
		if _, still := p.Install.Pool(pool.Name); !still {
			p.Install.Warnings = append(p.Install.Warnings, fmt.Sprintf("pool %s of %s is gone: its nodes keep what they "+
				"have",
				pool.Name, from))
		}
	}
	return nil
}

// planOver plans a cluster, or a dump of one, as it would be with the directory's objects applied. What the directory
// has no more stays.
func planOver(ctx context.Context, dir string, in *preflight.Input, install *preview.Plan,
	f *sourceFlags) (*clusterPlan, error) {
	s, err := f.open(ctx)
	if err != nil {
		return nil, err
	}
	objects, err := directoryObjects(dir, in)
	if err != nil {
		return nil, err
	}
	s.lister = &overlay{s.lister, objects}
	p, err := s.plan(ctx, true)
	if err != nil {
		return nil, err
	}
	p.Install = install
	return p, nil
}

// directoryObjects are the objects of an install directory as they would be applied: its files, and the
// MachineOSConfigs that dayone makes of install-config.yaml. Pools that every cluster has anyway are not among them.
func directoryObjects(dir string, in *preflight.Input) (*dump, error) {
	d, err := newDump(dir)
	if err != nil {
		return nil, err
	}
	for _, sub := range []string{"manifests", "openshift", in.Sidecar.Config.LayeringDir} {
		files, err := os.ReadDir(filepath.Join(dir, sub))
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, fmt.Errorf("list %s: %w", sub, err)
		}
		for _, e := range files {
			name := filepath.Join(dir, sub, e.Name())
			ours := slices.ContainsFunc(in.Generated, func(g preflight.Generated) bool {
				return filepath.Join(dir,
					g.File) == name
			})
			if ours || e.IsDir() || !slices.Contains(dumpExtensions(), filepath.Ext(e.Name())) {
				continue
			}
			if err := d.readFile(name); err != nil {
				return nil, err
			}
		}
	}
	for _, g := range in.Generated {
		made, isConfig := g.Object.(*mcfgv1.MachineOSConfig)
		if !isConfig {
			continue
		}
		raw, err := json.Marshal(made)
		if err != nil {
			return nil, fmt.Errorf("encode %s: %w", g.File, err)
		}
		if err := d.add(raw, g.File); err != nil {
			return nil, err
		}
	}
	return d, nil
}

// readSettings reads the MachineConfiguration of a cluster, a dump or an install directory; there may be none.
func readSettings(ctx context.Context, from lister) (disruption.Settings, error) {
	var list opv1.MachineConfigurationList
	if err := from.List(ctx, &list); err != nil && !meta.IsNoMatchError(err) {
		return disruption.Settings{}, fmt.Errorf("read MachineConfiguration: %w", err)
	}
	var object *opv1.MachineConfiguration
	for i := range list.Items {
		if list.Items[i].Name == "cluster" {
			object = &list.Items[i]
		}
	}
	return disruption.Read(object)
}

// isInstallDirectory tells an install directory from a dump.
func isInstallDirectory(dir string) bool {
	for _, file := range []string{filepath.Join(dir, installconfig.FileName), installconfig.SidecarPath(dir)} {
		if _, err := os.Stat(file); err == nil {
			return true
		}
	}
	return false
}
