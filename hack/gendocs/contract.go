package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

const (
	schemaDir = "docs/schemas"
	// contractVersion is cli.APIVersion.
	contractVersion = "dayone.dev/v1"
)

// printed is a kind that commands print with -o json, and the type that it is made from.
type printed struct {
	kind, pkg, name, title string
}

// contract has every kind. The kinds whose names end in List are lists of the type.
func contract() []printed {
	return []printed{
		{"Analysis", "bootstrap/gather/analyze", "Report", "dayone analyze"},
		{"BootstrapProgress", "bootstrap/statuspage", "Status", "dayone status --url"},
		{"BootstrapStatus", "cmd/dayone/day1", "statusOutput", "dayone status"},
		{"BuildLog", "cmd/dayone/cluster", "buildLog", "dayone cluster logs"},
		{"ClusterRegistryStatus", "rebase/fleet/registrystatus", "Status", "dayone cluster registry status"},
		{"ClusterStatus", "cmd/dayone/cluster", "clusterStatus", "dayone cluster status"},
		{"ConfigChangeList", "manifests/render", "Change", "dayone render diff"},
		{"ConfigSourceList", "manifests/render", "Explanation", "dayone render --explain"},
		{"DisruptionPolicies", "rebase/forecast", "Policies", "dayone cluster policies"},
		{"Error", "cmd/internal/cli", "Failure", "every command that fails before it has an answer"},
		{"GeneratedManifests", "cmd/dayone/day1", "generated", "dayone manifests"},
		{"IgnitionPatch", "bootstrap/openshift/patch", "Result", "dayone ignition"},
		{"ImageBuild", "bootstrap/trialbuild", "Outcome", "dayone build"},
		{"ImageCopy", "registry/transfer", "Result", "dayone registry copy"},
		{"ImageDifference", "build/sbom", "Difference", "dayone diff"},
		{"ImageSignature", "cmd/dayone/image", "signature", "dayone sign"},
		{"ImageVerification", "cmd/dayone/image", "verification", "dayone verify"},
		{"Layering", "installconfig", "Sidecar", "dayone prepare"},
		{"LintReport", "installconfig/report", "Report", "dayone build lint"},
		{"LogBundle", "cmd/dayone/support", "gathered", "dayone gather"},
		{"NodeExplanation", "cmd/dayone/plan", "nodeAnswer", "dayone cluster why NODE"},
		{"ParityList", "manifests/render", "Verdict", "dayone render parity"},
		{"Plan", "bootstrap/preview", "Forecast", "dayone plan and dayone cluster plan"},
		{"PoolExplanation", "cmd/dayone/plan", "poolAnswer", "dayone cluster why POOL"},
		{"RegistryCARotation", "cmd/dayone/cluster", "rotatedCA", "dayone cluster registry rotate-ca"},
		{"RegistryCollection", "registry/storage", "CollectReport", "dayone registry gc"},
		{"RegistryExport", "cmd/dayone/cluster", "exported", "dayone cluster registry export"},
		{"RegistryRotation", "cmd/dayone/cluster", "rotated", "dayone cluster registry rotate"},
		{"RegistryImage", "bootstrap/registryimages", "Added", "dayone cluster registry add"},
		{"RegistryImageList", "registry/storage", "Image", "dayone registry ls"},
		{"RegistryStatus", "registry", "Status", "dayone registry status"},
		{"RegistryUsage", "cmd/dayone/registry", "diskUsage", "dayone registry du"},
		{"RegistryVerification", "cmd/dayone/registry", "verified", "dayone registry verify"},
		{"RenderedConfigList", "cmd/dayone/render", "written", "dayone render"},
		{"SampleDirectory", "cmd/dayone/day1", "sample", "dayone sample"},
		{"SigningKey", "cmd/dayone/image", "signingKey", "dayone keygen"},
		{"Version", "cmd/internal/cli", "programVersion", "dayone version"},
	}
}

// generateContract writes the JSON schema of every kind that commands print.
func generateContract(check bool) error {
	if err := complete(contract()); err != nil {
		return err
	}
	t := newJSONTypes()
	var faults []error
	for _, p := range contract() {
		t.undocumented = nil
		schema, err := p.schema(t)
		if err != nil {
			return fmt.Errorf("schema of %s: %w", p.kind, err)
		}
		if p.kind == "Plan" && len(t.undocumented) > 0 { // elsewhere a field's name may say enough
			return fmt.Errorf("schema of %s: fields without a comment: %s", p.kind, strings.Join(t.undocumented, ", "))
		}
		raw, err := json.MarshalIndent(schema, "", "  ")
		if err != nil {
			return fmt.Errorf("schema of %s: %w", p.kind, err)
		}
		faults = append(faults, put(filepath.Join(schemaDir, p.kind+".json"), append(raw, '\n'), check))
	}
	return errors.Join(append(faults, put(filepath.Join(schemaDir, "README.md"), contractPage(), check))...)
}

// contractPage lists the kinds for readers.
func contractPage() []byte {
	var b bytes.Buffer
	b.WriteString(contractHead)
	for _, p := range contract() {
		fmt.Fprintf(&b, "| [%[1]s](%[1]s.json) | %[2]s |\n", p.kind, p.title)
	}
	return b.Bytes()
}

const contractHead = `# JSON schemas

<!-- Generated from the table in hack/gendocs by make generate. Do not edit. -->

A file a kind of what commands print with ` + "`-o json` or `-o yaml`" + `: [for scripts](../users/scripting.md).

| kind | output of |
|---|---|
`

// schema is the kind's, as package cli prints it.
func (p printed) schema(t *jsonTypes) (map[string]any, error) {
	object, err := t.named(module+"/"+p.pkg, p.name)
	if err != nil {
		return nil, err
	}
	if strings.HasSuffix(p.kind, "List") {
		object = map[string]any{"type": "object", "required": []string{"items"}, "properties": map[string]any{
			"items": map[string]any{"type": "array", "items": object}}}
	}
	properties, _ := object["properties"].(map[string]any)
	required, _ := object["required"].([]string)
	for name, value := range map[string]string{"apiVersion": contractVersion, "kind": p.kind} {
		if properties[name] != nil {
			return nil, fmt.Errorf("the type has a field %s of its own", name)
		}
		properties[name] = map[string]any{"type": "string", "enum": []string{value}}
		required = append(required, name)
	}
	slices.Sort(required)
	object["required"] = required
	object["$schema"] = "http://json-schema.org/draft-07/schema#"
	object["title"] = "Output of " + p.title + " with -o json or -o yaml"
	return object, nil
}

// complete tells whether the kinds that commands name are those of the contract.
func complete(rows []printed) error {
	named := map[string]bool{"Error": true} // explain prints it
	err := filepath.WalkDir("cmd", func(name string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() || !strings.HasSuffix(name, ".go") || strings.HasSuffix(name, "_test.go") {
			return err
		}
		raw, err := os.ReadFile(name)
		if err != nil {
			return err
		}
		parsed, err := parser.ParseFile(token.NewFileSet(), name, raw, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		ast.Inspect(parsed, func(n ast.Node) bool {
			if kind := kindIn(n); kind != "" {
				named[kind] = true
			}
			return true
		})
		return nil
	})
	if err != nil {
		return fmt.Errorf("find kinds that commands print: %w", err)
	}
	var faults []error
	for _, p := range rows {
		if !named[p.kind] {
			faults = append(faults, fmt.Errorf("no command prints kind %s: take it out of contract.go", p.kind))
		}
		delete(named, p.kind)
	}
	for kind := range named {
		faults = append(faults, fmt.Errorf("a command prints kind %s: add its type to contract.go", kind))
	}
	return errors.Join(faults...)
}

// kindIn is the kind in a call such as cli.Print(cmd, "Plan", …) or f.print(cmd, "BootstrapStatus", …); "" is none.
func kindIn(n ast.Node) string {
	call, ok := n.(*ast.CallExpr)
	if !ok || len(call.Args) < 3 {
		return ""
	}
	name := ""
	switch called := call.Fun.(type) {
	case *ast.SelectorExpr:
		name = called.Sel.Name
	case *ast.Ident:
		name = called.Name
	}
	command, _ := call.Args[0].(*ast.Ident)
	literal, ok := call.Args[1].(*ast.BasicLit)
	if !ok || command == nil || command.Name != "cmd" || !strings.HasPrefix(strings.ToLower(name), "print") {
		return ""
	}
	kind, _ := strconv.Unquote(literal.Value)
	return kind
}
