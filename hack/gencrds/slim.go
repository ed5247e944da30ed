package main

import (
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
)

// sources are the files of the API module that dayone ships: the kinds that it reads or writes, for the Default feature
// set. MachineConfigNode comes from TechPreviewNoUpgrade, the first set whose schema has configImage.
func sources() []string {
	const machineConfig, config = "0000_80_machine-config_01_", "0000_10_config-operator_01_"
	return []string{
		machineConfig + "machineconfigs.crd.yaml",
		machineConfig + "machineconfigpools-SelfManagedHA.crd.yaml",
		machineConfig + "machineosconfigs.crd.yaml",
		machineConfig + "machineosbuilds.crd.yaml",
		machineConfig + "controllerconfigs-Default.crd.yaml",
		machineConfig + "machineconfignodes-SelfManagedHA-TechPreviewNoUpgrade.crd.yaml",
		machineConfig + "machineconfigurations.crd.yaml",
		machineConfig + "kubeletconfigs-Default.crd.yaml",
		machineConfig + "containerruntimeconfigs.crd.yaml",
		machineConfig + "osimagestreams-SelfManagedHA.crd.yaml",
		machineConfig + "pinnedimagesets.crd.yaml",
		config + "apiservers-Default.crd.yaml",
		config + "clusterimagepolicies.crd.yaml",
		config + "featuregates.crd.yaml",
		config + "images.crd.yaml",
		config + "imagecontentsourcepolicies.crd.yaml",
		config + "imagedigestmirrorsets.crd.yaml",
		config + "imagetagmirrorsets.crd.yaml",
		config + "nodes-Default.crd.yaml",
	}
}

// keptAnnotations say where a definition comes from; the others are orders to the release payload's operator.
var keptAnnotations = []string{"api-approved.openshift.io", "release.openshift.io/feature-set"}

// addedColumns are what kubectl get prints of kinds for which the module has no columns, by name of the definition.
func addedColumns() map[string][]apiextensionsv1.CustomResourceColumnDefinition {
	return map[string][]apiextensionsv1.CustomResourceColumnDefinition{
		"machineosconfigs.machineconfiguration.openshift.io": {
			{Name: "OptedIn", Type: "string", JSONPath: `.status.conditions[?(@.type=="OptedIn")].status`},
			{Name: "Reason", Type: "string", JSONPath: `.status.conditions[?(@.type=="OptedIn")].reason`},
			{Name: "Build", Type: "string", JSONPath: ".status.machineOSBuild.name"},
			{Name: "Image", Type: "string", JSONPath: ".status.currentImagePullSpec", Priority: 1},
			{Name: "Age", Type: "date", JSONPath: ".metadata.creationTimestamp"},
		},
		"machineconfigurations.operator.openshift.io": {
			{Name: "Managed", Type: "string", JSONPath: ".spec.managementState"},
			{Name: "PoliciesAccepted", Type: "string",
				JSONPath: `.status.conditions[?(@.type=="DisruptionPoliciesAccepted")].status`},
			{Name: "Doubtful", Type: "string", JSONPath: `.status.conditions[?(@.type=="DisruptionPoliciesDoubtful")].status`},
			{Name: "Refused", Type: "string", Priority: 1,
				JSONPath: `.status.conditions[?(@.type=="DisruptionPoliciesAccepted")].message`},
			{Name: "Age", Type: "date", JSONPath: ".metadata.creationTimestamp"},
		},
	}
}

// slim drops prose and what only the release payload reads, and gives columns to kinds that have none.
func slim(crd *apiextensionsv1.CustomResourceDefinition) {
	kept := map[string]string{}
	for _, key := range keptAnnotations {
		if v, ok := crd.Annotations[key]; ok {
			kept[key] = v
		}
	}
	crd.Annotations = kept
	columns := addedColumns()[crd.Name]
	for i := range crd.Spec.Versions {
		version := &crd.Spec.Versions[i]
		if len(version.AdditionalPrinterColumns) == 0 {
			version.AdditionalPrinterColumns = columns
		}
		if version.Schema != nil {
			dropProse(version.Schema.OpenAPIV3Schema)
		}
	}
}

// dropProse removes the descriptions of schema and of everything below it. A property that is called description stays:
// it is a key of Properties, not the schema's own text.
func dropProse(schema *apiextensionsv1.JSONSchemaProps) {
	if schema == nil {
		return
	}
	schema.Description, schema.Title, schema.Example, schema.ExternalDocs = "", "", nil, nil
	for _, group := range []map[string]apiextensionsv1.JSONSchemaProps{schema.Properties, schema.PatternProperties,
		schema.Definitions} {
		for key, below := range group {
			dropProse(&below)
			group[key] = below
		}
	}
	for _, below := range further(schema) {
		dropProse(below)
	}
}

// further lists the schemas below one, other than those that it names in maps; some may be nil.
func further(schema *apiextensionsv1.JSONSchemaProps) []*apiextensionsv1.JSONSchemaProps {
	all := []*apiextensionsv1.JSONSchemaProps{schema.Not}
	lists := [][]apiextensionsv1.JSONSchemaProps{schema.AllOf, schema.OneOf, schema.AnyOf}
	if schema.Items != nil {
		all = append(all, schema.Items.Schema)
		lists = append(lists, schema.Items.JSONSchemas)
	}
	for _, list := range lists {
		for i := range list {
			all = append(all, &list[i])
		}
	}
	for _, other := range []*apiextensionsv1.JSONSchemaPropsOrBool{schema.AdditionalProperties, schema.AdditionalItems} {
		if other != nil {
			all = append(all, other.Schema)
		}
	}
	for _, other := range schema.Dependencies {
		all = append(all, other.Schema)
	}
	return all
}
