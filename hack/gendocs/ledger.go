package main

import (
	"bytes"
	_ "embed"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"

	configv1 "github.com/openshift/api/config/v1"
	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	operatorv1 "github.com/openshift/api/operator/v1"
	operatorv1alpha1 "github.com/openshift/api/operator/v1alpha1"
	"sigs.k8s.io/yaml"
)

const ledgerTarget = "docs/operators/fields.md"

//go:embed ledger.yaml
var ledgerSource []byte

// ledger is what becomes of the fields of one kind.
type ledger struct {
	Kind string `json:"kind"`
	// Says is about the whole kind.
	Says string `json:"says"`
	Rows []row  `json:"rows"`
}

// row is about one field, or about all below a path that ends in .*.
type row struct {
	Field string `json:"field"`
	Is    string `json:"is"`
	In    string `json:"in"`
	Test  string `json:"test"`
	Says  string `json:"says"`
}

// proven are the verdicts that a test must show; the others need words only.
func proven() []string { return []string{"honoured", "refused", "named", "written"} }

// ledgerKinds are the types whose fields have rows.
func ledgerKinds() []reflect.Type {
	return []reflect.Type{reflect.TypeFor[mcfgv1.MachineConfig](), reflect.TypeFor[mcfgv1.MachineConfigPool](),
		reflect.TypeFor[mcfgv1.MachineOSConfig](), reflect.TypeFor[mcfgv1.MachineOSBuild](),
		reflect.TypeFor[operatorv1.MachineConfiguration](), reflect.TypeFor[mcfgv1.ControllerConfig](),
		reflect.TypeFor[mcfgv1.KubeletConfig](), reflect.TypeFor[mcfgv1.ContainerRuntimeConfig](),
		reflect.TypeFor[configv1.Image](), reflect.TypeFor[configv1.ImageDigestMirrorSet](),
		reflect.TypeFor[configv1.ImageTagMirrorSet](), reflect.TypeFor[operatorv1alpha1.ImageContentSourcePolicy](),
		reflect.TypeFor[mcfgv1.PinnedImageSet](), reflect.TypeFor[mcfgv1.OSImageStream](),
		reflect.TypeFor[configv1.ClusterImagePolicy](), reflect.TypeFor[configv1.ImagePolicy]()}
}

// generateLedger writes the table of fields, or checks that it is complete and up to date.
func generateLedger(check bool) error {
	var ledgers []ledger
	if err := yaml.UnmarshalStrict(ledgerSource, &ledgers); err != nil {
		return fmt.Errorf("read ledger of fields: %w", err)
	}
	if faults := ledgerFaults(ledgers, ledgerKinds(), "."); len(faults) > 0 {
		return fmt.Errorf("ledger of fields (hack/gendocs/ledger.yaml):\n%w", errors.Join(faults...))
	}
	return put(ledgerTarget, ledgerPage(ledgers), check)
}

// ledgerFaults are fields without a row, rows without a field, and rows whose proof is not there. root is the tree.
func ledgerFaults(ledgers []ledger, kinds []reflect.Type, root string) []error {
	var out []error
	left := slices.Clone(ledgers)
	for _, kind := range kinds {
		i := slices.IndexFunc(left, func(l ledger) bool { return l.Kind == kind.Name() })
		if i < 0 {
			out = append(out, fmt.Errorf("%s has no rows", kind.Name()))
			continue
		}
		used := make([]bool, len(left[i].Rows))
		for _, f := range leaves(kind, "") {
			at := rowOf(left[i].Rows, f)
			if at < 0 {
				out = append(out, fmt.Errorf("%s: field %s has no row", kind.Name(), f))
				continue
			}
			used[at] = true
		}
		for n, row := range left[i].Rows {
			if !used[n] {
				out = append(out, fmt.Errorf("%s: row %s has no field", kind.Name(), row.Field))
			}
			if err := row.proof(root); err != nil {
				out = append(out, fmt.Errorf("%s: row %s: %w", kind.Name(), row.Field, err))
			}
		}
		left = slices.Delete(left, i, i+1)
	}
	for _, l := range left {
		out = append(out, fmt.Errorf("there is no kind %s", l.Kind))
	}
	return out
}

// rowOf is the row of a field: its own, else that of the longest path above it; -1: there is none.
func rowOf(rows []row, field string) int {
	best, length := -1, -1
	for i, r := range rows {
		if r.Field == field {
			return i
		}
		above, isTree := strings.CutSuffix(r.Field, "*")
		if isTree && strings.HasPrefix(field, above) && len(above) > length {
			best, length = i, len(above)
		}
	}
	return best
}

// proof checks what a row claims.
func (r row) proof(root string) error {
	if r.Says == "" {
		return errors.New("it says nothing")
	}
	if !slices.Contains(proven(), r.Is) {
		if r.Is != "passed on" && r.Is != "ignored" {
			return fmt.Errorf("%q is no verdict", r.Is)
		}
		return nil
	}
	if files, err := filepath.Glob(filepath.Join(root, r.In, "*.go")); err != nil || r.In == "" || len(files) == 0 {
		return fmt.Errorf("there is no package %q", r.In)
	}
	dot := strings.LastIndexByte(r.Test, '.')
	if dot < 0 {
		return fmt.Errorf("test %q: write PACKAGE.TestName", r.Test)
	}
	files, err := filepath.Glob(filepath.Join(root, r.Test[:dot], "*_test.go"))
	if err != nil {
		return err
	}
	for _, name := range files {
		raw, err := os.ReadFile(name)
		if err != nil {
			return err
		}
		if bytes.Contains(raw, []byte("\nfunc "+r.Test[dot+1:]+"(t *testing.T)")) {
			return nil
		}
	}
	return fmt.Errorf("there is no test %s", r.Test)
}

// leaves are the fields of a type of openshift/api, down to what is a value or another module's type. Type and metadata
// of the object itself are Kubernetes'.
func leaves(t reflect.Type, path string) []string {
	for t.Kind() == reflect.Pointer || t.Kind() == reflect.Slice || t.Kind() == reflect.Map {
		if t.Kind() == reflect.Slice {
			path += "[]"
		}
		t = t.Elem()
	}
	if t.Kind() != reflect.Struct || !strings.HasPrefix(t.PkgPath(), "github.com/openshift/api") {
		return []string{path}
	}
	var out []string
	for i := range t.NumField() {
		f := t.Field(i)
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		switch {
		case f.Name == "TypeMeta", f.Name == "ObjectMeta", f.Name == "ListMeta", name == "-":
		case name == "":
			out = append(out, leaves(f.Type, path)...)
		case path == "":
			out = append(out, leaves(f.Type, name)...)
		default:
			out = append(out, leaves(f.Type, path+"."+name)...)
		}
	}
	return out
}
