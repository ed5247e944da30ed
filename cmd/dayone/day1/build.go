package day1

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"dayone.dev/dayone/bootstrap/preflight"
	"dayone.dev/dayone/bootstrap/progress"
	"dayone.dev/dayone/bootstrap/trialbuild"
	"dayone.dev/dayone/build"
	"dayone.dev/dayone/build/buildahengine"
	"dayone.dev/dayone/build/containerfile"
	"dayone.dev/dayone/cmd/internal/cli"
	"dayone.dev/dayone/installconfig/report"
	"dayone.dev/dayone/manifests"
	"dayone.dev/dayone/manifests/render"
)

// newBuildCommand is dayone build: the bootstrap host's build on any machine, before there is a cluster.
func newBuildCommand(version string) *cobra.Command {
	o := trialbuild.Options{Versions: render.VersionsOf(version)}
	var dir, pool, isolation string
	cmd := &cobra.Command{
		Use:   "build --pool POOL",
		Short: "Build a pool's image here, as the bootstrap host will",
		Long: "Build renders the install directory, imports the base image into a registry of its own in --state-dir and\n" +
			"builds the pool's image there, with the same code and the same digest as on the bootstrap host. With --push it\n" +
			"copies the image to the repository that the MachineOSConfig names. It needs root when the Containerfile has a\n" +
			"RUN.",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := checkBuildFlags(o.Build, isolation); err != nil {
				return err
			}
			return trialBuild(cmd, dir, pool, isolation, o)
		},
	}
	cli.InstallDir(cmd, &dir, &o.Platform)
	f := cmd.Flags()
	f.StringVar(&pool, "pool", "", "the pool whose image to build (default: the only one, or master)")
	f.StringVar(&o.StateDir, "state-dir", defaultBuildDir(), "where images, layers and logs are kept between builds")
	f.Lookup("state-dir").DefValue = "~/.cache/dayone/build" // or where the environment has its cache
	pools := func(*cobra.Command, []string, string) ([]cobra.Completion, cobra.ShellCompDirective) {
		return poolsOf(dir), cobra.ShellCompDirectiveNoFileComp
	}
	_ = cmd.RegisterFlagCompletionFunc("pool", pools)
	f.StringVar(&o.Base.Reference, "base", "",
		"where the base image comes from: a registry reference, oci:DIR or docker-archive:FILE (default: its name in "+
			"install-config.yaml)")
	f.StringVar(&o.Base.CAFile, "base-ca", "", "PEM file of the CA of the base image's registry")
	f.StringVar(&o.Base.AuthFile, "base-auth", "",
		"auth.json for the base image's registry (default: the base image pull Secret)")
	f.BoolVar(&o.Push, "push", false, "copy the image to the push spec's repository, by digest and under its tag")
	f.StringVar(&o.PushAuthFile, "push-auth", "", "auth.json for --push (default: the push Secret)")
	f.StringVar(&o.PushCAFile, "push-ca", "", "PEM file of the CA of the registry of --push")
	f.StringVar((*string)(&o.Build.Engine), "engine", "",
		"append or buildah (default: append when no container is needed)")
	f.StringVar(&isolation, "isolation", buildahengine.IsolationAuto, "how RUN is run: auto, chroot or oci")
	f.BoolVar(&o.Build.Rebuild, "rebuild", false, "build although there is an image for the same input")
	f.BoolVar(&o.Build.NoCache, "no-cache", false, "run every instruction again")
	f.BoolVar(&o.Build.Offline, "offline", false, "RUN without network; needs an OCI runtime")
	f.DurationVar(&o.Build.Timeout, "timeout", build.DefaultTimeout, "time limit")
	f.BoolVar(&o.CheckReproducible, "check-reproducible", false,
		"build twice from nothing and say in what the images differ")
	cmd.AddCommand(newLintCommand())
	return cmd
}

// poolsOf are the pools of an install directory, as far as it can be read.
func poolsOf(dir string) (names []string) {
	side, err := preflight.Layering(dir)
	if err != nil {
		return nil
	}
	for _, p := range side.Config.Pools {
		names = append(names, p.Name)
	}
	return names
}

// checkBuildFlags refuses values of flags before anything is read or fetched.
func checkBuildFlags(o build.Options, isolation string) error {
	switch o.Engine {
	case build.EngineAuto, build.EngineAppend, build.EngineBuildah:
	default:
		return cli.Usagef("unknown engine %q; use append or buildah, or leave --engine out", o.Engine)
	}
	switch isolation {
	case buildahengine.IsolationAuto, buildahengine.IsolationChroot, buildahengine.IsolationOCI:
	default:
		return cli.Usagef("unknown isolation %q; use auto, chroot or oci", isolation)
	}
	if o.Timeout <= 0 {
		return cli.Usagef("--timeout must be above 0")
	}
	return nil
}

func trialBuild(cmd *cobra.Command, dir, poolName, isolation string, o trialbuild.Options) error {
	view := progress.New(cmd.ErrOrStderr())
	defer view.Close()
	o.Log = cli.Log(cmd)
	o.Log.Logger.SetOutput(view)
	in, err := preflight.Load(dir, o.Platform)
	if err != nil {
		return err
	}
	cli.WriteFindings(view, in.Warnings)
	pool, err := choosePool(in.Pools, poolName, dir)
	if err != nil {
		return err
	}
	if in.Sidecar.Config.BaseImage == "" && o.Base.Reference == "" {
		return cli.Usagef("the release names the OS image of the openshift flow: set it with --base")
	}
	o.NewEngine = func(dir string) (build.ContainerEngine, error) {
		return buildahengine.New(buildahengine.Options{Root: dir, Isolation: isolation, Log: o.Log})
	}
	o.Progress = func(e build.Event) { view.Build(pool.Name, e) }
	out, err := trialbuild.Run(cmd.Context(), in, pool, o)
	if err != nil {
		return err
	}
	return printTrial(cmd, view, out)
}

func choosePool(pools []preflight.Pool, name, dir string) (preflight.Pool, error) {
	var names []string
	for _, p := range pools {
		names = append(names, p.Name)
		if p.Name == name || name == "" && (len(pools) == 1 || p.Name == "master") {
			return p, nil
		}
	}
	return preflight.Pool{}, cli.Usagef("%s has no layered pool %q; there are: %s", dir, name, strings.Join(names, ", "))
}

func printTrial(cmd *cobra.Command, view io.Writer, out *trialbuild.Outcome) error {
	if cli.Output(cmd) != "text" {
		return cli.Print(cmd, "ImageBuild", out, nil)
	}
	w := cmd.OutOrStdout()
	cli.WriteFindings(view, out.Warnings)
	for _, p := range out.Placements {
		fmt.Fprintf(view, "not in the image: %s: %s (%s)\n", p.Path, p.Where, p.Reason)
	}
	if out.Reused {
		fmt.Fprintf(w, "%s\nnothing was built: %s\n", out.Digest, out.Reason)
	} else {
		fmt.Fprintf(w, "%s\n%s engine (%s), %d layers, %d MiB, %.2fs\n", out.Digest, out.Engine, out.Reason, len(out.Layers),
			out.Size>>20, out.Duration.Seconds())
	}
	if out.Isolation != "" {
		fmt.Fprintf(w, "RUN: %s (%s)\n", out.Isolation, out.IsolationReason)
	}
	if out.Pushed != "" {
		fmt.Fprintf(w, "pushed: %s\n", out.Pushed)
	}
	if out.Reproducible == nil {
		return nil
	}
	if *out.Reproducible {
		fmt.Fprintln(w, "reproducible: a second build from nothing has the same digest")
		return nil
	}
	for _, d := range out.Differences {
		fmt.Fprintf(w, "differs: layer %d %s: %s (%s)\n", d.Layer, d.Path, d.What, d.CreatedBy)
	}
	return fmt.Errorf("check reproducibility: two builds gave different images")
}

func defaultBuildDir() string {
	if dir, err := os.UserCacheDir(); err == nil {
		return filepath.Join(dir, "dayone", "build")
	}
	return ".dayone-build"
}

// newLintCommand is dayone build lint: what the build would refuse, without building.
func newLintCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "lint FILE",
		Short: "Check a Containerfile, or those in a MachineOSConfig",
		Long: "Lint reads a Containerfile (- for standard input) or a manifest (.yaml, .yml, .json) with MachineOSConfigs\n" +
			"and prints what is wrong with line and rule. The exit status is 3 when a build would refuse it.",
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) != 1 {
				return cli.Usagef("name one file, or - for standard input")
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error { return lint(cmd, args[0]) },
	}
}

func lint(cmd *cobra.Command, file string) error {
	findings, err := lintFile(cmd.InOrStdin(), file)
	if err != nil {
		return err
	}
	all := report.Report{Findings: findings}
	if err := all.Err(); err != nil {
		cli.WriteFindings(cmd.ErrOrStderr(), all.Warnings())
		return err
	}
	if cli.Output(cmd) != "text" {
		if findings == nil {
			all.Findings = []report.Finding{}
		}
		return cli.Print(cmd, "LintReport", all, nil)
	}
	cli.WriteFindings(cmd.ErrOrStderr(), findings)
	fmt.Fprintf(cmd.OutOrStdout(), "%s: %d warnings\n", file, len(findings))
	return nil
}

func lintFile(stdin io.Reader, file string) ([]report.Finding, error) {
	var raw []byte
	var err error
	if file == "-" {
		raw, err = io.ReadAll(stdin)
	} else {
		raw, err = os.ReadFile(file)
	}
	if err != nil {
		return nil, fmt.Errorf("read Containerfile: %w", err)
	}
	switch filepath.Ext(file) {
	case ".yaml", ".yml", ".json":
		return lintManifest(raw, file)
	}
	_, findings := containerfile.Lint(string(raw), containerfile.LintOptions{Place: report.Finding{File: file}})
	return findings, nil
}

// lintManifest checks every Containerfile of every MachineOSConfig. Lines are those of the Containerfile.
func lintManifest(raw []byte, file string) ([]report.Finding, error) {
	set, err := manifests.Read(raw, file, manifests.ReadOptions{})
	if err != nil {
		return nil, err
	}
	var out []report.Finding
	for _, item := range set.MachineOSConfigs {
		for i, entry := range item.Object.Spec.Containerfile {
			place := item.Origin.At(fmt.Sprintf("spec.containerFile[%d].content", i), "")
			place.Line = 0
			_, findings := containerfile.Lint(entry.Content, containerfile.LintOptions{Place: place})
			out = append(out, findings...)
		}
	}
	if len(set.MachineOSConfigs) == 0 {
		return nil, report.Finding{Severity: report.Error, File: file, Rule: "no-machineosconfig",
			Message: "the manifest has no MachineOSConfig", Next: "name a Containerfile or a MachineOSConfig"}
	}
	return out, nil
}
