package cluster

import (
	"embed"
	"fmt"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"sigs.k8s.io/yaml"
)

//go:embed crds/*.yaml
var crdFiles embed.FS

// CRDs are the definitions of the kinds that dayone reads and writes, sorted by name. They are those of
// github.com/openshift/api without descriptions; every call returns new objects.
func CRDs() ([]*apiextensionsv1.CustomResourceDefinition, error) {
	entries, err := crdFiles.ReadDir("crds")
	if err != nil {
		return nil, fmt.Errorf("list embedded CRDs: %w", err)
	}
	crds := make([]*apiextensionsv1.CustomResourceDefinition, 0, len(entries))
	for _, e := range entries {
		raw, err := crdFiles.ReadFile("crds/" + e.Name())
		if err != nil {
			return nil, fmt.Errorf("read embedded CRD %s: %w", e.Name(), err)
		}
		crd := &apiextensionsv1.CustomResourceDefinition{}
		if err := yaml.UnmarshalStrict(raw, crd); err != nil {
			return nil, fmt.Errorf("read embedded CRD %s: %w", e.Name(), err)
		}
		crds = append(crds, crd)
	}
	return crds, nil
}
