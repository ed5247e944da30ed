package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"dayone.dev/dayone/cmd/internal/cli"
	"dayone.dev/dayone/cmd/internal/connect"
	"dayone.dev/dayone/manifests/assets/cluster"
)

func newClusterManifests(c *connect.Flags) *cobra.Command {
	f := &installFlags{Flags: c}
	var dir string
	cmd := &cobra.Command{
		Use:   "manifests",
		Short: "Print what install would apply, or write it as a kustomize directory",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if dir == "" {
				return printObjects(cmd, f)
			}
			objects, err := f.objects()
			if err != nil {
				return err
			}
			if err := writeKustomize(dir, objects); err != nil {
				return err
			}
			fmt.Fprintf(cmd.ErrOrStderr(),
				"%d objects written; kubectl apply --server-side -k %s applies them (a second time when it did not know "+
					"the new kinds yet)\n", len(objects), dir)
			return nil
		},
	}
	f.add(cmd)
	cmd.Flags().StringVar(&dir, "kustomize", "", "directory to write, which must not exist or be empty")
	return cmd
}

// objects are everything that an installation has, CRDs first.
func (f *installFlags) objects() ([]*unstructured.Unstructured, error) {
	o, err := f.options(cluster.Images{})
	if err != nil {
		return nil, err
	}
	crds, err := cluster.CRDs()
	if err != nil {
		return nil, err
	}
	var all []*unstructured.Unstructured
	for _, crd := range crds {
		object, err := applicableCRD(crd)
		if err != nil {
			return nil, err
		}
		all = append(all, object)
	}
	rest, err := cluster.Objects(o)
	return append(all, rest...), err
}

func printObjects(cmd *cobra.Command, f *installFlags) error {
	objects, err := f.objects()
	if err != nil {
		return err
	}
	if cli.Output(cmd) == "json" {
		list := map[string]any{"apiVersion": "v1", "kind": "List", "items": objects}
		return cli.Print(cmd, list, nil)
	}
	for _, o := range objects {
		body, err := document(o)
		if err != nil {
			return err
		}
		if _, err := cmd.OutOrStdout().Write(append([]byte("---\n"), body...)); err != nil {
			return err
		}
	}
	return nil
}

func document(o *unstructured.Unstructured) ([]byte, error) {
	raw, err := json.Marshal(o.Object)
	if err != nil {
		return nil, fmt.Errorf("write %s %s: %w", o.GetKind(), o.GetName(), err)
	}
	return yaml.JSONToYAML(raw)
}

// writeKustomize writes one file per object and a kustomization that names them in order.
func writeKustomize(dir string, objects []*unstructured.Unstructured) error {
	entries, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("write kustomize directory: %w", err)
	}
	if len(entries) > 0 {
		return fmt.Errorf("write kustomize directory: %s is not empty", dir)
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("write kustomize directory: %w", err)
	}
	var list bytes.Buffer
	list.WriteString("apiVersion: kustomize.config.k8s.io/v1beta1\nkind: Kustomization\nresources:\n")
	for i, o := range objects {
		body, err := document(o)
		if err != nil {
			return err
		}
		name := fmt.Sprintf("%02d-%s-%s.yaml", i, strings.ToLower(o.GetKind()), o.GetName())
		if err := os.WriteFile(filepath.Join(dir, name), body, 0o644); err != nil {
			return fmt.Errorf("write kustomize directory: %w", err)
		}
		fmt.Fprintf(&list, "- %s\n", name)
	}
	if err := os.WriteFile(filepath.Join(dir, "kustomization.yaml"), list.Bytes(), 0o644); err != nil {
		return fmt.Errorf("write kustomize directory: %w", err)
	}
	return nil
}
