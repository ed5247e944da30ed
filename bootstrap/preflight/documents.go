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

// documents looks at every document of the install directory as the API server will, of kinds that dayone reads or not:
// one object that the API refuses keeps the installer's bootstrap waiting for an hour.
type documents struct {
	api      *validation.Validator
	layering string
	rep      report.Report
	err      error
}

// outline is what is looked at besides the CRDs' rules.
type outline struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
	Metadata   struct {
		Name      string `json:"name"`
		Namespace string `json:"namespace"`
	} `json:"metadata"`
}

// inspect is shown every document.
func (d *documents) inspect(raw []byte, at manifests.Origin) {
	var o outline
	if json.Unmarshal(raw, &o) != nil {
		return // the reader has refused it
	}
	if o.Metadata.Name == "" && o.Kind != "List" {
		place := at.At("metadata.name", "name")
		place.Next = "give the object a name"
		d.rep.Errorf(place, "a %s without a name cannot be created", o.Kind)
		return
	}
	d.namespace(o, at)
	d.place(o, at)
	findings, err := d.api.Findings(context.Background(), raw, at)
	if err != nil && d.err == nil {
		d.err = err
	}
	for _, f := range findings {
		// The reader of manifests warns of unknown fields itself, for the kinds that it knows.
		if f.Severity == report.Error {
			d.rep.Add(f)
		}
	}
}

// namespace refuses Secrets and ConfigMaps that the installer's bootstrap could not create, or that the builder would
// not find.
func (d *documents) namespace(o outline, at manifests.Origin) {
	if o.APIVersion != "v1" || (o.Kind != "Secret" && o.Kind != "ConfigMap") {
		return
	}
	place := at.At("metadata.namespace", "namespace")
	if inLayering := path.Dir(at.File) == d.layering; inLayering && o.Metadata.Namespace != cluster.DefaultNamespace {
		place.Next = "write namespace: " + cluster.DefaultNamespace
		d.rep.Errorf(place, "%s %q is in namespace %q, where no MachineOSConfig can use it", o.Kind, o.Metadata.Name,
			o.Metadata.Namespace)
	} else if o.Metadata.Namespace == "" {
		place.Next = "name the namespace"
		d.rep.Errorf(place, "%s %q has no namespace: the installer's bootstrap could not create it", o.Kind, o.Metadata.Name)
	}
}

// reservedPrefixes are names of the installer's own assets (openshift/installer, pkg/asset/machines): other objects in
// such a file are lost.
func reservedPrefixes() []string {
	return []string{machineConfigPrefix, "99_openshift-cluster-api_", "99_openshift-machine-api_",
		"99_openshift-etcd_fencing-"}
}

// machineConfigPrefix is the one of them that users take, for MachineConfigs.
const machineConfigPrefix = "99_openshift-machineconfig_"

// usersKinds are kinds that users write into these directories and the installer never into files of those names.
func usersKinds() []string {
	return []string{"MachineConfig", "MachineConfigPool", "MachineOSConfig", "KubeletConfig", "ContainerRuntimeConfig",
		"ConfigMap"}
}

// place refuses objects in files whose name belongs to something else.
func (d *documents) place(o outline, at manifests.Origin) {
	dir, name := path.Split(at.File)
	if (dir != "openshift/" && dir != "manifests/") || !slices.Contains(usersKinds(), o.Kind) {
		return
	}
	for _, prefix := range reservedPrefixes() {
		if strings.HasPrefix(name, prefix) && (prefix != machineConfigPrefix || o.Kind != "MachineConfig") {
			place := at.At("", "reserved-name")
			place.Next = "give the file another name, for example 99_user-" + strings.ToLower(o.Kind) + ".yaml"
			d.rep.Errorf(place, "the installer keeps the names %s* for itself and would lose %s %q", prefix, o.Kind,
				o.Metadata.Name)
		}
	}
}

// api adds what the API would refuse, also in the objects that are generated, and that no rule of ours has named at the
// same place.
func (c *checker) api(d *documents) error {
	for _, g := range c.in.Generated {
		raw, err := json.Marshal(g.Object)
		if err != nil {
			return fmt.Errorf("encode %s: %w", g.File, err)
		}
		d.inspect(raw, manifests.Origin{File: g.File, Document: 1})
	}
	named := map[string]bool{}
	for _, f := range c.rep.Findings {
		named[f.File+" "+f.Path] = named[f.File+" "+f.Path] || f.Severity == report.Error
	}
	for _, f := range d.rep.Findings {
		if f.Rule == validation.RuleAPI && named[f.File+" "+f.Path] {
			continue
		}
		c.rep.Add(f)
	}
	return d.err
}
