package preflight

import (
	"context"
	"encoding/json"
	"fmt"
	"path"
	"slices"
	"strings"

	"dayone.dev/dayone/installconfig/report"
	"dayone.dev/dayone/manifests"
	"dayone.dev/dayone/manifests/assets/cluster"
	"dayone.dev/dayone/manifests/validation"
)

// outline is what is checked of a document besides the CRDs' rules.
type outline struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
	Metadata   struct {
		Name      string `json:"name"`
		Namespace string `json:"namespace"`
	} `json:"metadata"`
}

// refusedByAPI checks every document of the install directory as the API server will, of kinds that dayone reads or
// not, and the generated objects: one object that the API refuses keeps the installer's bootstrap waiting for an hour.
// What another check has refused at the same place is not repeated.
func refusedByAPI(d *directory, in *Input, rep *report.Report) error {
	api, err := validation.New()
	if err != nil {
		return err
	}
	documents := slices.Clone(d.documents)
	for _, g := range in.Generated {
		raw, err := json.Marshal(g.Object)
		if err != nil {
			return fmt.Errorf("encode %s: %w", g.File, err)
		}
		documents = append(documents, document{raw, manifests.Origin{File: g.File, Document: 1}})
	}
	scheme, err := manifests.Scheme()
	if err != nil {
		return err
	}
	known := knownKinds(scheme)
	refused := map[[2]string]bool{} // by file and path
	for _, f := range rep.Findings {
		refused[[2]string{f.File, f.Path}] = refused[[2]string{f.File, f.Path}] || f.Severity == report.Error
	}
	for _, doc := range documents {
		findings, err := documentFindings(api, known, doc, d.sidecar.Config.LayeringDir)
		if err != nil {
			return err
		}
		findings = strictly(d, findings)
		for _, f := range findings {
			if f.Rule != validation.RuleAPI || !refused[[2]string{f.File, f.Path}] {
				rep.Add(f)
			}
		}
	}
	return nil
}

// documentFindings are the errors in one document.
func documentFindings(api *validation.Validator, known kinds, doc document, layeringDir string) (
	[]report.Finding, error) {
	var rep report.Report
	var o outline
	if json.Unmarshal(doc.raw, &o) != nil {
		return nil, nil // the reader of manifests refuses it
	}
	if o.Metadata.Name == "" && o.Kind != "List" {
		at := doc.origin.At("metadata.name", "name")
		at.Next = "give the object a name"
		rep.Errorf(at, "a %s without a name cannot be created", o.Kind)
		return rep.Findings, nil
	}
	known.typed(o, doc.origin, &rep)
	namespace(o, doc.origin, layeringDir, &rep)
	reservedName(o, doc.origin, &rep)
	findings, err := api.Findings(context.Background(), doc.raw, doc.origin)
	for _, f := range findings {
		// The reader of manifests warns of unknown fields itself, for the kinds that it knows.
		if f.Severity == report.Error {
			rep.Add(f)
		}
	}
	return rep.Findings, err
}

// namespace refuses Secrets and ConfigMaps that the installer's bootstrap could not create, or that the builder would
// not find.
func namespace(o outline, origin manifests.Origin, layeringDir string, rep *report.Report) {
	if o.APIVersion != "v1" || (o.Kind != "Secret" && o.Kind != "ConfigMap") {
		return
	}
	at := origin.At("metadata.namespace", "namespace")
	if path.Dir(origin.File) == layeringDir && o.Metadata.Namespace != cluster.DefaultNamespace {
		at.Next = "write namespace: " + cluster.DefaultNamespace
		rep.Errorf(at, "%s %q is in namespace %q, where no MachineOSConfig can use it", o.Kind, o.Metadata.Name,
			o.Metadata.Namespace)
	} else if o.Metadata.Namespace == "" {
		at.Next = "name the namespace"
		rep.Errorf(at, "%s %q has no namespace: the installer's bootstrap could not create it", o.Kind, o.Metadata.Name)
	}
}

// machineConfigPrefix is the one of reservedPrefixes that users also use, for MachineConfigs.
const machineConfigPrefix = "99_openshift-machineconfig_"

// reservedPrefixes are names of the installer's own assets (openshift/installer, pkg/asset/machines): other objects in
// such a file are lost.
func reservedPrefixes() []string {
	return []string{machineConfigPrefix, "99_openshift-cluster-api_", "99_openshift-machine-api_",
		"99_openshift-etcd_fencing-"}
}

// usersKinds are kinds that users write into these directories and the installer never into files of those names.
func usersKinds() []string {
	return []string{"MachineConfig", "MachineConfigPool", "MachineOSConfig", "KubeletConfig", "ContainerRuntimeConfig",
		"ConfigMap"}
}

// reservedName refuses objects in files that have a name of the installer's assets.
func reservedName(o outline, origin manifests.Origin, rep *report.Report) {
	dir, name := path.Split(origin.File)
	if !slices.Contains(installerDirs(), path.Clean(dir)) || !slices.Contains(usersKinds(), o.Kind) {
		return
	}
	for _, prefix := range reservedPrefixes() {
		if strings.HasPrefix(name, prefix) && (prefix != machineConfigPrefix || o.Kind != "MachineConfig") {
			at := origin.At("", "reserved-name")
			at.Next = "give the file another name, for example 99_user-" + strings.ToLower(o.Kind) + ".yaml"
			rep.Errorf(at, "the installer keeps the names %s* for itself and would lose %s %q", prefix, o.Kind,
				o.Metadata.Name)
		}
	}
}
