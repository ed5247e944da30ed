package render

import (
	"fmt"
	"io"
	"os"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"

	"dayone.dev/dayone/bootstrap/preview"
	"dayone.dev/dayone/cmd/internal/cli"
	"dayone.dev/dayone/installconfig/report"
	"dayone.dev/dayone/manifests"
	"dayone.dev/dayone/manifests/render"
)

// renderFlags are the flags of dayone render; names follow machine-config-controller bootstrap.
type renderFlags struct {
	manifestDir, destDir, pullSecret string
	componentsOnly, strict           bool
	ignoreUnbuilt, explains          bool
	raw, hash, payload               string
}

// newRenderCommand is dayone render: a directory of manifests in, the rendered MachineConfigs and pools out.
func newRenderCommand() *cobra.Command {
	f := &renderFlags{}
	cmd := &cobra.Command{
		Use:   "render --manifest-dir IN --dest-dir OUT",
		Short: "Render the MachineConfigs of each pool into one, with MCO's names",
		Long: "Render reads every manifest of a directory and writes machine-configs/, machine-pools/ and " +
			"controller-config/ as\n" +
			"machine-config-controller bootstrap does. When it refuses the input, it writes nothing and exits with status 3.",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return f.run(cmd)
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&f.manifestDir, "manifest-dir", "", "directory of manifests to read (required)")
	flags.StringVar(&f.destDir, "dest-dir", "", "directory to write the result to (required without --explain)")
	flags.StringVar(&f.pullSecret, "pull-secret", "",
		"file with a Secret of type kubernetes.io/dockerconfigjson, checked only")
	flags.BoolVar(&f.componentsOnly, "components-only", false,
		"generate no further MachineConfigs (mirrors, kubelet, container runtime)")
	flags.BoolVar(&f.strict, "strict", false, "refuse input that MCO accepts silently although it is wrong")
	flags.BoolVar(&f.ignoreUnbuilt, "ignore-unbuilt", false,
		"ignore MachineOSConfigs that have no pre-built image")
	flags.StringVar(&f.raw, "version-raw", "", "version that must have made the ControllerConfig")
	flags.StringVar(&f.hash, "version-hash", "", "version hash that generated MachineConfigs must carry")
	flags.StringVar(&f.payload, "payload-version", "0.0.1-snapshot", "version that the FeatureGate must list")
	flags.BoolVar(&f.explains, "explain", false, "write nothing; print where each part of each rendered config comes from")
	_ = cmd.MarkFlagRequired("manifest-dir")
	cmd.AddCommand(newRenderDiffCommand(), newRenderParityCommand())
	return cmd
}

func (f *renderFlags) run(cmd *cobra.Command) error {
	if f.destDir == "" && !f.explains {
		return cli.Usagef("--dest-dir is missing: say where to write the result")
	}
	if err := checkPullSecret(f.pullSecret); err != nil {
		return err
	}
	if err := noInstallDirectory(f.manifestDir); err != nil {
		return err
	}
	set, err := manifests.ReadDir(f.manifestDir, manifests.ReadOptions{})
	if err != nil {
		return err
	}
	if f.explains {
		return f.explain(cmd, set)
	}
	result, err := render.Render(set, f.options())
	if err != nil {
		return err
	}
	cli.WriteFindings(cmd.ErrOrStderr(), result.Findings)
	if err := render.Write(f.destDir, set, result); err != nil {
		return err
	}
	return printRendered(cmd, result)
}

// written is a rendered config of a pool.
type written struct {
	// Pool is the MachineConfigPool.
	Pool string `json:"pool"`
	// Config is the name of the rendered MachineConfig.
	Config string `json:"config"`
}

// printRendered names what was written: a config a pool.
func printRendered(cmd *cobra.Command, result *render.Result) error {
	all := []written{}
	for i, c := range result.Configs {
		all = append(all, written{result.Pools[i].Name, c.Name})
	}
	return cli.PrintTable(cmd, "RenderedConfigList", all, func(w io.Writer) {
		for _, one := range all {
			fmt.Fprintln(w, one.Config)
		}
	})
}

func (f *renderFlags) explain(cmd *cobra.Command, set *manifests.Set) error {
	explained, err := render.Explain(set, f.options())
	if err != nil {
		return err
	}
	return cli.Print(cmd, "ConfigSourceList", explained, func(w io.Writer) error {
		for _, e := range explained {
			fmt.Fprint(w, e)
		}
		return nil
	})
}

func (f *renderFlags) options() render.Options {
	o := render.Options{
		Versions:       render.Versions{Raw: f.raw, Hash: f.hash, Payload: f.payload},
		ComponentsOnly: f.componentsOnly,
		NeedTemplates:  true,
		Strict:         f.strict,
	}
	if f.ignoreUnbuilt {
		o.Unbuilt = render.IgnoreUnbuilt
	}
	return o
}

// noInstallDirectory says what to render of an install directory, whose manifests lie in directories of their own.
func noInstallDirectory(dir string) error {
	if !preview.IsInstallDirectory(dir) {
		return nil
	}
	return report.Finding{Severity: report.Error, File: dir, Rule: "install-directory",
		Message: "this is an install directory: render reads one directory of manifests, with a ControllerConfig, as MCO's " +
			"bootstrap has it",
		Next: "dayone plan --dir " + dir + " shows what its nodes get; to render, put openshift/ and a ControllerConfig " +
			"into one directory"}
}

// checkPullSecret refuses a file that is no pull secret; an empty name stands for no file.
func checkPullSecret(file string) error {
	if file == "" {
		return nil
	}
	raw, err := os.ReadFile(file)
	if err != nil {
		return fmt.Errorf("read pull secret: %w", err)
	}
	set, err := manifests.Read(raw, file, manifests.ReadOptions{})
	if err != nil {
		return err
	}
	for _, s := range set.Secrets {
		if s.Object.Type == corev1.SecretTypeDockerConfigJson {
			return nil
		}
	}
	return report.Finding{Severity: report.Error, File: file, Rule: "pull-secret",
		Message: "is no Secret of type " + string(corev1.SecretTypeDockerConfigJson),
		Next:    "pass the manifest of the cluster's pull secret"}
}
