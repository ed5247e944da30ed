package validation

import (
	"context"
	"fmt"
	"sync"

	apivalidation "k8s.io/apimachinery/pkg/api/validation"

	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	structural "k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/cel"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/defaulting"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/listtype"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/objectmeta"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/pruning"
	schemavalidation "k8s.io/apiextensions-apiserver/pkg/apiserver/validation"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
	celconfig "k8s.io/apiserver/pkg/apis/cel"

	"dayone.dev/dayone/manifests/assets/cluster"
)

// Validator knows the kinds of the embedded CRDs. It is safe for concurrent use.
type Validator struct {
	kinds map[schema.GroupVersionKind]*kind
}

// kind is one version of one CRD; its rules are compiled when the first object comes: that takes some ten milliseconds.
type kind struct {
	crd     *apiextensionsv1.CustomResourceDefinition
	version apiextensionsv1.CustomResourceDefinitionVersion

	compile sync.Once
	err     error
	tree    *structural.Structural
	checks  schemavalidation.SchemaValidator
	rules   *cel.Validator
}

// New returns the Validator of the embedded CRDs: those of github.com/openshift/api with every schema, validation and
// rule (manifests/assets/cluster). A process has one: reading the CRDs and compiling their rules takes a tenth of a
// second.
func New() (*Validator, error) { return embedded() }

var embedded = sync.OnceValues(func() (*Validator, error) {
	crds, err := cluster.CRDs()
	if err != nil {
		return nil, err
	}
	return Of(crds), nil
})

// Of makes a Validator for other definitions.
func Of(crds []*apiextensionsv1.CustomResourceDefinition) *Validator {
	v := &Validator{kinds: map[schema.GroupVersionKind]*kind{}}
	for _, crd := range crds {
		for _, version := range crd.Spec.Versions {
			if version.Served {
				v.kinds[schema.GroupVersionKind{Group: crd.Spec.Group, Version: version.Name,
					Kind: crd.Spec.Names.Kind}] = &kind{crd: crd, version: version}
			}
		}
	}
	return v
}

// Create is what the API server would answer to the creation of an object, which is changed as the server would change
// it: fields that the schema does not have go, defaults come, and the status goes where only its own endpoint may set
// it. It also returns the unknown fields, which the server drops silently. An object of an unknown kind gives no fault.
func (v *Validator) Create(ctx context.Context, object *unstructured.Unstructured) (faults field.ErrorList,
	unknown []string, err error) {
	k := v.kinds[object.GroupVersionKind()]
	if k == nil {
		return nil, nil, nil
	}
	k.compile.Do(func() { k.err = k.prepare() })
	if k.err != nil {
		return nil, nil, fmt.Errorf("compile the schema of %s: %w", k.crd.Name, k.err)
	}
	faults = k.arrive(object, &unknown)
	if len(faults) > 0 {
		return faults, unknown, nil
	}
	namespaced := k.crd.Spec.Scope == apiextensionsv1.NamespaceScoped
	if namespaced && object.GetNamespace() == "" {
		object.SetNamespace("default") // kubectl and cluster-bootstrap put it there
	}
	if object.GetName() == "" && object.GetGenerateName() != "" {
		object.SetName(object.GetGenerateName() + "00000")
	}
	faults = append(faults, apivalidation.ValidateObjectMetaAccessor(object, namespaced, apivalidation.NameIsDNSSubdomain,
		field.NewPath("metadata"))...)
	faults = append(faults, schemavalidation.ValidateCustomResource(nil, object.Object, k.checks)...)
	faults = append(faults, objectmeta.Validate(nil, object.Object, k.tree, false)...)
	faults = append(faults, listtype.ValidateListSetsAndMaps(nil, k.tree, object.Object)...)
	if k.rules != nil && !blocking(faults) {
		broken, _ := k.rules.Validate(ctx, nil, k.tree, object.Object, nil, celconfig.RuntimeCELCostBudget)
		faults = append(faults, broken...)
	}
	return faults, unknown, nil
}

// prepare compiles schema and rules as the API server does when it gets the CRD.
func (k *kind) prepare() error {
	var internal apiextensions.CustomResourceValidation
	if err := apiextensionsv1.Convert_v1_CustomResourceValidation_To_apiextensions_CustomResourceValidation(
		k.version.Schema, &internal, nil); err != nil {
		return err
	}
	var err error
	if k.tree, err = structural.NewStructural(internal.OpenAPIV3Schema); err != nil {
		return err
	}
	if err = defaulting.PruneDefaults(k.tree); err != nil {
		return err
	}
	if k.checks, _, err = schemavalidation.NewSchemaValidator(internal.OpenAPIV3Schema); err != nil {
		return err
	}
	k.rules = cel.NewValidator(k.tree, true, celconfig.PerCallLimit)
	return nil
}

// arrive does with an object what the server does before it validates: metadata of the right types, unknown fields and
// the status gone, defaults filled in.
func (k *kind) arrive(object *unstructured.Unstructured, unknown *[]string) field.ErrorList {
	_, found, dropped, err := objectmeta.GetObjectMetaWithOptions(object.Object,
		objectmeta.ObjectMetaOptions{ReturnUnknownFieldPaths: true})
	if err != nil {
		return field.ErrorList{field.Invalid(field.NewPath("metadata"), "", err.Error())}
	}
	if !found {
		return field.ErrorList{field.Required(field.NewPath("metadata"), "")}
	}
	*unknown = append(*unknown, dropped...)
	*unknown = append(*unknown, pruning.PruneWithOptions(object.Object, k.tree, true,
		structural.UnknownFieldPathOptions{TrackUnknownFieldPaths: true})...)
	defaulting.PruneNonNullableNullsWithoutDefaults(object.Object, k.tree)
	if k.version.Subresources != nil && k.version.Subresources.Status != nil {
		delete(object.Object, "status")
	}
	defaulting.Default(object.Object, k.tree)
	return nil
}

// blocking says whether faults keep the rules from being looked at: a rule may not be shown a value of the wrong type.
func blocking(faults field.ErrorList) bool {
	for _, f := range faults {
		switch f.Type {
		case field.ErrorTypeNotSupported, field.ErrorTypeRequired, field.ErrorTypeTooLong, field.ErrorTypeTooMany,
			field.ErrorTypeTypeInvalid:
			return true
		}
	}
	return false
}
