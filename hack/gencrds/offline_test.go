package main

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"dayone.dev/dayone/manifests/assets/cluster"
	"dayone.dev/dayone/manifests/validation"
)

// TestTheAPIsOwnCasesHoldWithoutACluster replays what the API's own suites say of creations against the offline
// validator that dayone prepare uses: it must accept and refuse as the real server does.
func TestTheAPIsOwnCasesHoldWithoutACluster(t *testing.T) {
	from, err := locate(t.Context())
	require.NoError(t, err)
	crds, err := cluster.CRDs()
	require.NoError(t, err)
	v := validation.Of(crds)
	accepted, refused := 0, 0
	for _, crd := range crds {
		gates := enabledGates(t, from, crd)
		for _, s := range suitesOf(t, from, crd.Name) {
			if s.missing(gates) != "" {
				continue
			}
			for _, c := range s.Tests.OnCreate {
				if len(c.InitialCRDPatches) > 0 {
					continue // another schema than the shipped one
				}
				t.Run(crd.Spec.Names.Plural+"/"+s.Name+"/"+c.Name, func(t *testing.T) { offline(t, v, c) })
				if c.ExpectedError == "" {
					accepted++
				} else {
					refused++
				}
			}
		}
	}
	t.Logf("%d objects accepted, %d refused", accepted, refused)
	assert.Greater(t, accepted, 50)
	assert.Greater(t, refused, 50)
}

func offline(t *testing.T, v *validation.Validator, c acceptCase) {
	object := &unstructured.Unstructured{}
	raw, err := yaml.YAMLToJSON([]byte(c.Initial))
	require.NoError(t, err)
	require.NoError(t, object.UnmarshalJSON(raw))
	if object.GetName() == "" {
		object.SetGenerateName("case-")
	}
	faults, _, err := v.Create(t.Context(), object)
	require.NoError(t, err)
	if c.ExpectedError == "" {
		require.Empty(t, faults)
		want := &unstructured.Unstructured{}
		raw, err := yaml.YAMLToJSON([]byte(c.Expected))
		require.NoError(t, err)
		require.NoError(t, want.UnmarshalJSON(raw))
		delete(want.Object, "metadata")
		delete(object.Object, "metadata")
		assert.Equal(t, want.Object, object.Object, "defaults and dropped fields are the server's")
		return
	}
	require.NotEmpty(t, faults)
	said := faults.ToAggregate().Error()
	for _, fragment := range valueOrType.Split(strings.TrimSpace(c.ExpectedError), -1) {
		// The server prints the object's name before the faults, and all of them after a comma.
		// That rules were left out (<nil>) is no fault of the object.
		for _, part := range strings.Split(strings.Split(fragment, "<nil>")[0], ", ") {
			if part = strings.Trim(part, "[] "); strings.HasPrefix(part, "some validation rules were not checked") {
				continue
			}
			assert.Contains(t, said, part)
		}
	}
}
