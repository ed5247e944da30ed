package main

import (
	"os"
	"path/filepath"
	"reflect"
	"testing"

	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"sigs.k8s.io/yaml"
)

func TestLedgerIsComplete(t *testing.T) {
	var ledgers []ledger
	require.NoError(t, yaml.UnmarshalStrict(ledgerSource, &ledgers))
	assert.Empty(t, ledgerFaults(ledgers, ledgerKinds(), "../.."))
	page, err := os.ReadFile(filepath.Join("../..", ledgerTarget))
	require.NoError(t, err)
	assert.Equal(t, string(ledgerPage(ledgers)), string(page), "run make generate")
}

func TestLedgerFaults(t *testing.T) {
	kinds := []reflect.Type{reflect.TypeFor[mcfgv1.MachineConfig]()}
	root := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(root, "a.go"), []byte("package a\n"), 0o600))
	require.NoError(t, os.WriteFile(filepath.Join(root, "a_test.go"),
		[]byte("package a\n\nfunc TestA(t *testing.T) {\n}\n"), 0o600))
	good := row{Field: "spec.*", Is: "honoured", In: ".", Test: "..TestA", Says: "all of it"}
	with := func(change func(*row)) []ledger {
		r := good
		change(&r)
		return []ledger{{Kind: "MachineConfig", Rows: []row{r}}}
	}
	for _, c := range []struct {
		name string
		in   []ledger
		want string
	}{
		{"all is well", with(func(*row) {}), ""},
		{"a field without a row", with(func(r *row) { r.Field = "spec.fips" }), "field spec.osImageURL has no row"},
		{"a row without a field", append(with(func(*row) {}), ledger{Kind: "Pod"}), "there is no kind Pod"},
		{"a row that no field needs", []ledger{{Kind: "MachineConfig", Rows: []row{good, {Field: "spec.fipps",
			Is: "ignored", Says: "x"}}}}, "row spec.fipps has no field"},
		{"a kind without rows", nil, "MachineConfig has no rows"},
		{"a test that is not there", with(func(r *row) { r.Test = "..TestB" }), "there is no test ..TestB"},
		{"a package that is not there", with(func(r *row) { r.In = "b" }), `there is no package "b"`},
		{"no verdict", with(func(r *row) { r.Is = "fine" }), `"fine" is no verdict`},
		{"no words", with(func(r *row) { r.Says = "" }), "it says nothing"},
	} {
		t.Run(c.name, func(t *testing.T) {
			var all string
			for _, err := range ledgerFaults(c.in, kinds, root) {
				all += err.Error() + "\n"
			}
			if c.want == "" {
				assert.Empty(t, all)
				return
			}
			assert.Contains(t, all, c.want)
		})
	}
}
