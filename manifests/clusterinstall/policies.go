package clusterinstall

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"

	operatorv1 "github.com/openshift/api/operator/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"dayone.dev/dayone/manifests/assets/cluster"
)

// PolicyManager owns the entries that an advisor has in spec.nodeDisruptionPolicy of MachineConfiguration cluster.
const PolicyManager = "dayone-advisor"

// ApplyPolicies makes these entries PolicyManager's in the MachineConfiguration as it was read, and removes those that
// it had and that are not among them. Entries of others stay. It never takes a field from another: then, and where the
// object has changed meanwhile, it fails with a conflict. Both lists may be empty.
func ApplyPolicies(ctx context.Context, c client.Client, object client.Object, files, units []any) error {
	o := &unstructured.Unstructured{Object: map[string]any{}}
	policy := map[string]any{}
	if len(files) > 0 {
		policy["files"] = files
	}
	if len(units) > 0 {
		policy["units"] = units
	}
	if len(policy) > 0 {
		o.Object["spec"] = map[string]any{"nodeDisruptionPolicy": policy}
	}
	o.SetGroupVersionKind(operatorv1.GroupVersion.WithKind("MachineConfiguration"))
	o.SetName(cluster.MachineConfiguration)
	o.SetResourceVersion(object.GetResourceVersion())
	return c.Apply(ctx, client.ApplyConfigurationFromUnstructured(o), client.FieldOwner(PolicyManager))
}

// ReleasePolicies removes all entries that an advisor has; it is not an error that there are none. An entry that
// somebody else has changed stays.
func ReleasePolicies(ctx context.Context, c client.Client) error {
	for {
		object := &unstructured.Unstructured{}
		object.SetGroupVersionKind(operatorv1.GroupVersion.WithKind("MachineConfiguration"))
		err := c.Get(ctx, client.ObjectKey{Name: cluster.MachineConfiguration}, object)
		if apierrors.IsNotFound(err) || meta.IsNoMatchError(err) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("read MachineConfiguration %s: %w", cluster.MachineConfiguration, err)
		}
		if !slices.ContainsFunc(object.GetManagedFields(), ofAdvisor) {
			return nil
		}
		left, err := LeaveShared(ctx, c, object)
		if err == nil && !left {
			err = ApplyPolicies(ctx, c, object, nil, nil)
		}
		if err != nil && !apierrors.IsConflict(err) {
			return fmt.Errorf("remove dayone's entries from MachineConfiguration %s: %w", cluster.MachineConfiguration, err)
		}
	}
}

func ofAdvisor(m metav1.ManagedFieldsEntry) bool {
	return m.Manager == PolicyManager && m.Operation == metav1.ManagedFieldsOperationApply && m.FieldsV1 != nil
}

// LeaveShared gives up the advisor's part in entries that somebody else has changed, so that they stay as they are when
// the advisor's others change or go: a server-side apply without such an entry would take his change along.
func LeaveShared(ctx context.Context, c client.Client, object client.Object) (left bool, err error) {
	theirs := map[string]bool{}
	fields := object.GetManagedFields()
	for _, m := range fields {
		if ofAdvisor(m) || m.FieldsV1 == nil {
			continue
		}
		err := eachEntry(m.FieldsV1.GetRawBytes(), func(_ map[string]any, key string) { theirs[key] = true })
		if err != nil {
			return false, err
		}
	}
	fields = slices.Clone(fields)
	for i, m := range fields {
		if !ofAdvisor(m) {
			continue
		}
		tree, own := map[string]any{}, false
		if err := json.Unmarshal(m.FieldsV1.GetRawBytes(), &tree); err != nil {
			return false, fmt.Errorf("read owners of fields: %w", err)
		}
		walkEntries(tree, func(list map[string]any, key string) {
			if theirs[key] {
				delete(list, key)
				own = true
			}
		})
		if !own {
			continue
		}
		raw, err := json.Marshal(tree)
		if err != nil {
			return false, fmt.Errorf("write owners of fields: %w", err)
		}
		fields[i].FieldsV1, left = metav1.NewFieldsV1(string(raw)), true
	}
	if !left {
		return false, nil
	}
	patch, err := json.Marshal([]map[string]any{
		{"op": "test", "path": "/metadata/resourceVersion", "value": object.GetResourceVersion()},
		{"op": "replace", "path": "/metadata/managedFields", "value": fields}})
	if err != nil {
		return false, fmt.Errorf("encode owners of fields: %w", err)
	}
	o := &operatorv1.MachineConfiguration{ObjectMeta: metav1.ObjectMeta{Name: object.GetName()}}
	return true, c.Patch(ctx, o, client.RawPatch(types.JSONPatchType, patch))
}

// eachEntry names the entries in which the owner of fields has a part: by the list's key in the API's form.
func eachEntry(fields []byte, do func(list map[string]any, key string)) error {
	tree := map[string]any{}
	if err := json.Unmarshal(fields, &tree); err != nil {
		return fmt.Errorf("read owners of fields: %w", err)
	}
	walkEntries(tree, do)
	return nil
}

func walkEntries(tree map[string]any, do func(list map[string]any, key string)) {
	spec, _ := tree["f:spec"].(map[string]any)
	policy, _ := spec["f:nodeDisruptionPolicy"].(map[string]any)
	for _, field := range []string{"f:files", "f:units"} {
		list, _ := policy[field].(map[string]any)
		for key := range list {
			do(list, key)
		}
	}
}

// PolicyEntries names the entries of spec.nodeDisruptionPolicy in which the advisor has a part, and those in which
// others have: by path for files, by name for units.
func PolicyEntries(object client.Object) (advisor, others map[string]bool, err error) {
	advisor, others = map[string]bool{}, map[string]bool{}
	for _, m := range object.GetManagedFields() {
		if m.FieldsV1 == nil || m.Subresource != "" {
			continue
		}
		to := others
		if ofAdvisor(m) {
			to = advisor
		}
		err = eachEntry(m.FieldsV1.GetRawBytes(), func(_ map[string]any, key string) {
			var is map[string]string
			if len(key) > 2 && json.Unmarshal([]byte(key[2:]), &is) == nil { // after "k:"
				to[is["path"]+is["name"]] = true
			}
		})
		if err != nil {
			return nil, nil, err
		}
	}
	return advisor, others, nil
}
