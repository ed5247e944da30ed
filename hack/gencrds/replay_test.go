package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	configv1 "github.com/openshift/api/config/v1"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/retry"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"dayone.dev/dayone/hack/kube/kubetest"
	"dayone.dev/dayone/manifests/assets/cluster"
)

// suite is one file of the API's own accept and reject cases (openshift/api, tests/types.go).
type suite struct {
	Name         string   `json:"name"`
	CRDName      string   `json:"crdName"`
	FeatureGate  string   `json:"featureGate"`
	FeatureGates []string `json:"featureGates"`
	Tests        struct {
		OnCreate []acceptCase `json:"onCreate"`
		OnUpdate []acceptCase `json:"onUpdate"`
	} `json:"tests"`
}

type acceptCase struct {
	Name                string          `json:"name"`
	InitialCRDPatches   json.RawMessage `json:"initialCRDPatches"`
	Initial             string          `json:"initial"`
	Updated             string          `json:"updated"`
	Expected            string          `json:"expected"`
	ExpectedError       string          `json:"expectedError"`
	ExpectedStatusError string          `json:"expectedStatusError"`
}

const (
	waitLimit = time.Minute
	waitEvery = 50 * time.Millisecond
)

// TestTheAPIsOwnAcceptAndRejectCasesHold replays every suite of the shipped kinds whose feature gates the shipped
// schema has.
func TestTheAPIsOwnAcceptAndRejectCasesHold(t *testing.T) {
	env := kubetest.Start(t, kubetest.Options{})
	from, err := locate(t.Context())
	require.NoError(t, err)
	crds, err := cluster.CRDs()
	require.NoError(t, err)
	replayed := map[string]int{}
	for _, crd := range crds {
		gates := enabledGates(t, from, crd)
		for _, s := range suitesOf(t, from, crd.Name) {
			if missing := s.missing(gates); missing != "" {
				t.Logf("%s: %s: not in the shipped schema: %s", crd.Name, s.Name, missing)
				continue
			}
			r := &replay{env: env, crd: crd}
			for _, c := range append(s.Tests.OnCreate, s.Tests.OnUpdate...) {
				replayed[crd.Name]++
				t.Run(crd.Spec.Names.Plural+"/"+s.Name+"/"+c.Name, func(t *testing.T) { r.run(t, c) })
			}
		}
	}
	total := 0
	for name, n := range replayed {
		t.Logf("%4d cases of %s", n, name)
		total += n
	}
	t.Logf("%4d cases in all", total)
	for _, kind := range []string{"machineosconfigs", "machineosbuilds", "machineconfigpools", "machineconfignodes",
		"controllerconfigs", "kubeletconfigs"} {
		assert.Positive(t, replayed[kind+".machineconfiguration.openshift.io"], kind)
	}
	assert.Positive(t, replayed["machineconfigurations.operator.openshift.io"])
}

// enabledGates are the feature gates with which the definition's schema was made.
func enabledGates(t *testing.T, from origin, crd *apiextensionsv1.CustomResourceDefinition) []string {
	set := "Default"
	if crd.Annotations["release.openshift.io/feature-set"] != "" {
		set = strings.Split(crd.Annotations["release.openshift.io/feature-set"], ",")[0]
	}
	raw, err := os.ReadFile(filepath.Join(from.Dir, "payload-manifests", "featuregates",
		"featureGate-4-10-SelfManagedHA-"+set+".yaml"))
	require.NoError(t, err)
	var gates configv1.FeatureGate
	require.NoError(t, yaml.Unmarshal(raw, &gates))
	var names []string
	for _, g := range gates.Status.FeatureGates[0].Enabled {
		names = append(names, string(g.Name))
	}
	return names
}

func suitesOf(t *testing.T, from origin, crdName string) []suite {
	files, err := filepath.Glob(filepath.Join(from.Dir, "*", "v1*", "tests", crdName, "*.yaml"))
	require.NoError(t, err)
	var suites []suite
	for _, file := range files {
		if strings.Contains(file, "/machineconfiguration/v1alpha1/") {
			continue // another version of the same kind, which is not shipped
		}
		raw, err := os.ReadFile(file)
		require.NoError(t, err)
		var s suite
		require.NoError(t, yaml.Unmarshal(raw, &s), file)
		s.Name = strings.TrimSuffix(filepath.Base(file), ".yaml")
		suites = append(suites, s)
	}
	return suites
}

// missing names the first gate that the suite wants otherwise than gates has it; a leading minus means that it must be
// off.
func (s suite) missing(gates []string) string {
	for _, g := range append(s.FeatureGates, s.FeatureGate) {
		if name, off := strings.CutPrefix(g, "-"); g != "" && slices.Contains(gates, name) == off {
			return g
		}
	}
	return ""
}

// replay runs cases of one kind, one after another.
type replay struct {
	env      *kubetest.Env
	crd      *apiextensionsv1.CustomResourceDefinition
	sentinel int
}

func (r *replay) run(t *testing.T, c acceptCase) {
	if len(c.InitialCRDPatches) > 0 {
		r.update(t, c.InitialCRDPatches)
		t.Cleanup(func() { r.update(t, nil) })
	}
	initial := r.object(t, c.Initial)
	status := initial.Object["status"]
	err := r.env.Client.Create(t.Context(), initial)
	if c.Updated == "" {
		if !judge(t, c.ExpectedError, err) {
			return
		}
	}
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, r.env.Client.Delete(context.WithoutCancel(t.Context()), initial)) })
	if status != nil && c.Updated != "" {
		initial.Object["status"] = status
		require.NoError(t, r.env.Client.Status().Update(t.Context(), initial))
	}
	if c.InitialCRDPatches != nil {
		r.update(t, nil)
	}
	if c.Updated != "" && !r.change(t, c, initial) {
		return
	}
	r.compare(t, c.Expected, initial)
}

// change applies the case's update and reports whether it was accepted.
func (r *replay) change(t *testing.T, c acceptCase, initial *unstructured.Unstructured) bool {
	updated := r.object(t, c.Updated)
	updated.SetName(initial.GetName())
	updated.SetNamespace(initial.GetNamespace())
	updated.SetResourceVersion(initial.GetResourceVersion())
	status := updated.Object["status"]
	if !judge(t, c.ExpectedError, r.env.Client.Update(t.Context(), updated)) {
		return false
	}
	if status == nil {
		return true
	}
	updated.Object["status"] = status
	return judge(t, c.ExpectedStatusError, r.env.Client.Status().Update(t.Context(), updated))
}

// judge reports whether the request was accepted, as it should have been.
func judge(t *testing.T, want string, err error) bool {
	if want == "" {
		require.NoError(t, err)
		return true
	}
	require.Error(t, err)
	at := 0
	for _, fragment := range valueOrType.Split(strings.TrimSpace(want), -1) {
		i := strings.Index(err.Error()[at:], fragment)
		require.GreaterOrEqual(t, i, 0, "%q is not, or not there, in: %v", fragment, err)
		at += i + len(fragment)
	}
	return false
}

// valueOrType is what the cases, written for an older apiserver, have where a newer one prints the value as JSON.
var valueOrType = regexp.MustCompile(
	`"(?:object|array|string|integer|number|boolean|null)": |"null"$|map\[string\]interface.*$`)

func (r *replay) compare(t *testing.T, want string, object *unstructured.Unstructured) {
	have := &unstructured.Unstructured{}
	have.SetGroupVersionKind(object.GroupVersionKind())
	require.NoError(t, r.env.Client.Get(t.Context(), client.ObjectKeyFromObject(object), have))
	wanted := r.object(t, want)
	for _, o := range []*unstructured.Unstructured{have, wanted} {
		delete(o.Object, "metadata")
	}
	assert.Equal(t, wanted.Object, have.Object)
}

func (r *replay) object(t *testing.T, text string) *unstructured.Unstructured {
	o := &unstructured.Unstructured{}
	raw, err := yaml.YAMLToJSON([]byte(text))
	require.NoError(t, err)
	require.NoError(t, o.UnmarshalJSON(raw))
	if o.GetName() == "" {
		o.SetGenerateName("case-")
	}
	return o
}

// update makes the served schema the shipped one with patches, which may be nil, and waits until it is in force: a
// property of a new name tells.
func (r *replay) update(t *testing.T, patches json.RawMessage) {
	ctx := context.WithoutCancel(t.Context())
	crd := r.crd.DeepCopy()
	r.sentinel++
	name := fmt.Sprintf("sentinel%d", r.sentinel)
	// the server's own controllers write its status
	require.NoError(t, retry.RetryOnConflict(retry.DefaultBackoff, func() error {
		if err := r.env.Client.Get(ctx, client.ObjectKeyFromObject(crd), crd); err != nil {
			return err
		}
		crd.Spec = *r.crd.Spec.DeepCopy()
		crd.Spec.Versions[0].Schema.OpenAPIV3Schema.Properties[name] = apiextensionsv1.JSONSchemaProps{Type: "integer"}
		return r.env.Client.Update(ctx, crd)
	}))
	if patches != nil {
		require.NoError(t, r.env.Client.Patch(ctx, crd, client.RawPatch(types.JSONPatchType, patches)))
		r.sentinel++
		name = fmt.Sprintf("sentinel%d", r.sentinel)
		more := fmt.Sprintf(
			`[{"op":"add","path":"/spec/versions/0/schema/openAPIV3Schema/properties/%s","value":{"type":"integer"}}]`, name)
		require.NoError(t, r.env.Client.Patch(ctx, crd, client.RawPatch(types.JSONPatchType, []byte(more))))
	}
	require.EventuallyWithT(t, func(c *assert.CollectT) {
		probe := &unstructured.Unstructured{Object: map[string]any{name: "text"}}
		probe.SetGroupVersionKind(schema.GroupVersionKind{Group: crd.Spec.Group, Version: crd.Spec.Versions[0].Name,
			Kind: crd.Spec.Names.Kind})
		probe.SetName("probe")
		err := r.env.Client.Create(ctx, probe, client.DryRunAll)
		assert.True(c, apierrors.IsInvalid(err) && strings.Contains(err.Error(), name), "%v", err)
	}, waitLimit, waitEvery)
}
