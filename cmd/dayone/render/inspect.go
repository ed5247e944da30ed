package render

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"

	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	"github.com/spf13/cobra"

	"dayone.dev/dayone/cmd/internal/cli"
	"dayone.dev/dayone/manifests"
	"dayone.dev/dayone/manifests/render"
)

// errDiffers makes the exit status 1 after a difference was printed.
var errDiffers = errors.New("the configs differ")

// newRenderDiffCommand is dayone render diff: two rendered configs field by field.
func newRenderDiffCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "diff A B",
		Short: "Show what differs between two rendered MachineConfigs, contents decoded",
		Args:  cobra.ExactArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			var specs [2]mcfgv1.MachineConfigSpec
			for i, file := range args {
				config, err := readConfig(file)
				if err != nil {
					return err
				}
				specs[i] = config.Spec
			}
			changes, err := render.Compare(specs[0], specs[1])
			if err != nil {
				return err
			}
			err = cli.Print(cmd, "ConfigChangeList", changes, func(w io.Writer) error { return writeChanges(w, changes) })
			if err != nil {
				return err
			}
			if len(changes) > 0 {
				return errDiffers
			}
			return nil
		},
	}
	return cmd
}

// readConfig reads the one MachineConfig of a file.
func readConfig(file string) (*mcfgv1.MachineConfig, error) {
	raw, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("read rendered config: %w", err)
	}
	set, err := manifests.Read(raw, file, manifests.ReadOptions{MaxDocumentBytes: manifests.MaxFileBytes})
	if err != nil {
		return nil, err
	}
	if len(set.MachineConfigs) != 1 {
		return nil, fmt.Errorf("read rendered config: %s holds %d MachineConfigs, need one", file, len(set.MachineConfigs))
	}
	return set.MachineConfigs[0].Object, nil
}

func writeChanges(w io.Writer, changes []render.Change) error {
	for _, c := range changes {
		if c.Diff != "" {
			fmt.Fprint(w, c.Diff)
			continue
		}
		fmt.Fprintf(w, "%s: %s -> %s\n", c.Path, shown(c.Before), shown(c.After))
	}
	return nil
}

func shown(value any) string {
	if value == nil {
		return "(absent)"
	}
	raw, err := json.Marshal(value)
	if err != nil {
		return fmt.Sprint(value)
	}
	return string(raw)
}

// newRenderParityCommand is dayone render parity: bootstrap's rendering against a cluster's objects.
func newRenderParityCommand() *cobra.Command {
	var cluster, bootstrap string
	cmd := &cobra.Command{
		Use:   "parity --cluster DUMP --bootstrap DIR",
		Short: "Compare what bootstrap and the cluster rendered, and explain the difference",
		Long: "DUMP is a directory of the cluster's MachineConfigPools and MachineConfigs " +
			"(oc get machineconfigpools,machineconfigs -o yaml), DIR is what\ndayone render or MCO's bootstrap wrote.",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			theirs, err := manifests.ReadDir(cluster, manifests.ReadOptions{ExpandLists: true,
				MaxDocumentBytes: manifests.MaxFileBytes})
			if err != nil {
				return err
			}
			ours := &manifests.Set{}
			for _, folder := range []string{render.ConfigsDir, render.PoolsDir} {
				part, err := manifests.ReadDir(filepath.Join(bootstrap, folder),
					manifests.ReadOptions{MaxDocumentBytes: manifests.MaxFileBytes})
				if err != nil {
					return err
				}
				ours.Append(part)
			}
			verdicts, err := render.Parity(ours, theirs)
			if err != nil {
				return err
			}
			return printVerdicts(cmd, verdicts)
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&cluster, "cluster", "", "directory with the cluster's pools and MachineConfigs (required)")
	flags.StringVar(&bootstrap, "bootstrap", "", "directory that bootstrap rendered (required)")
	_ = cmd.MarkFlagRequired("cluster")
	_ = cmd.MarkFlagRequired("bootstrap")
	return cmd
}

func printVerdicts(cmd *cobra.Command, verdicts []render.Verdict) error {
	if len(verdicts) == 0 {
		return fmt.Errorf("compare renderings: neither directory holds a MachineConfigPool")
	}
	err := cli.Print(cmd, "ParityList", verdicts, func(w io.Writer) error {
		for _, v := range verdicts {
			fmt.Fprintf(w, "%s: %s\n", v.Pool, v.Reason)
			if !v.Same && v.Bootstrap != "" && v.Cluster != "" {
				fmt.Fprintf(w, "  bootstrap %s\n  cluster   %s\n", v.Bootstrap, v.Cluster)
			}
			if err := writeChanges(w, v.Changes); err != nil {
				return err
			}
		}
		return nil
	})
	if err == nil && slices.ContainsFunc(verdicts, func(v render.Verdict) bool { return !v.Same }) {
		return errDiffers
	}
	return err
}
