package registrycontroller

import (
	"context"
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	applycorev1 "k8s.io/client-go/applyconfigurations/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"dayone.dev/dayone/manifests/assets/cluster"
	"dayone.dev/dayone/rebase/fleet/registrystatus"
	"dayone.dev/dayone/rebase/wantedimages"
	"dayone.dev/dayone/registry/authority"
	"dayone.dev/dayone/registry/wanted"
)

// Types of the conditions in the ConfigMap.
const (
	// conditionHeld is True when the registry of every ready control-plane node has all wanted images.
	conditionHeld = "ImagesHeld"
	// conditionKnown is False while a node names an image of the cluster's registry that nobody has made.
	conditionKnown = "ReferencesKnown"
	// maxNamed is how many images or nodes a message names.
	maxNamed = 5
)

// published is what the ConfigMaps had when they were read.
type published struct {
	list wanted.List
	// peers are the addresses; users are accounts that registries accept beside their own; ca is how the rotation of their
	// CA is, "" where nobody knows.
	peers, users, ca string
	conditions       []metav1.Condition
}

// read asks the API and no cache: the controller may read these ConfigMaps only. One that is missing or damaged is
// written anew.
func (r *reconciler) read(ctx context.Context) (published, error) {
	var have corev1.ConfigMap
	err := r.live.Get(ctx, client.ObjectKey{Namespace: r.o.Namespace, Name: cluster.RegistryName}, &have)
	if client.IgnoreNotFound(err) != nil {
		return published{}, fmt.Errorf("read ConfigMap %s: %w", cluster.RegistryName, err)
	}
	var addresses corev1.ConfigMap
	err = r.live.Get(ctx, client.ObjectKey{Namespace: r.o.Namespace, Name: cluster.RegistryPeersName}, &addresses)
	if client.IgnoreNotFound(err) != nil {
		return published{}, fmt.Errorf("read ConfigMap %s: %w", cluster.RegistryPeersName, err)
	}
	out := published{peers: addresses.Data[wanted.PeersFile], users: have.Data[wanted.AccountsFile],
		ca: have.Data[authority.StatusFile]}
	if raw := have.Data[wanted.ListFile]; raw != "" {
		if out.list, err = wanted.Decode([]byte(raw)); err != nil {
			r.o.Log.WithError(err).Warn("published list is damaged and is written anew")
		}
	}
	if json.Unmarshal([]byte(have.Data[cluster.StatusConditions]), &out.conditions) != nil {
		out.conditions = nil
	}
	return out, nil
}

// listed is the administrator's list of further images, as it is now.
func (r *reconciler) listed(ctx context.Context) (map[string]string, error) {
	var m corev1.ConfigMap
	err := r.live.Get(ctx, client.ObjectKey{Namespace: r.o.Namespace, Name: cluster.RegistryImages}, &m)
	if client.IgnoreNotFound(err) != nil {
		return nil, fmt.Errorf("read ConfigMap %s: %w", cluster.RegistryImages, err)
	}
	return m.Data, nil
}

// write publishes what differs. A list that is too large leaves the one before, and says so.
func (r *reconciler) write(ctx context.Context, have, next published) error {
	list := next.list
	settled := slices.DeleteFunc(slices.Clone(have.conditions), func(c metav1.Condition) bool {
		return meta.FindStatusCondition(next.conditions, c.Type) == nil
	})
	for _, c := range next.conditions {
		c.LastTransitionTime = metav1.NewTime(r.o.Now().UTC())
		meta.SetStatusCondition(&settled, c)
	}
	if have.peers != next.peers {
		if err := r.apply(ctx, cluster.RegistryPeersName, map[string]string{wanted.PeersFile: next.peers}); err != nil {
			return err
		}
	}
	if reflect.DeepEqual(have.list, list) && have.users == next.users && have.ca == next.ca &&
		reflect.DeepEqual(have.conditions, settled) {
		return nil
	}
	raw, err := list.Encode()
	if err != nil {
		return fmt.Errorf("publish wanted images: remove old MachineOSBuilds, or keep fewer: %w", err)
	}
	shown, err := json.MarshalIndent(settled, "", " ")
	if err != nil {
		return fmt.Errorf("write conditions: %w", err)
	}
	data := map[string]string{wanted.ListFile: string(raw), wanted.AccountsFile: next.users,
		cluster.StatusConditions: string(shown)}
	if next.ca != "" {
		data[authority.StatusFile] = next.ca
	}
	if err := r.apply(ctx, cluster.RegistryName, data); err != nil {
		return err
	}
	if have.list.Hash() != list.Hash() {
		r.o.Log.WithField("images", len(list.Images)).Info("other images are wanted")
	}
	return nil
}

// apply writes a ConfigMap of the controller's.
func (r *reconciler) apply(ctx context.Context, configMap string, data map[string]string) error {
	o := applycorev1.ConfigMap(configMap, r.o.Namespace).WithData(data).
		WithLabels(map[string]string{cluster.LabelManagedBy: cluster.ManagedBy, cluster.LabelPartOf: cluster.ManagedBy})
	err := r.client.Apply(ctx, o, client.FieldOwner(name), client.ForceOwnership)
	if apierrors.IsNotFound(err) {
		return fmt.Errorf("write ConfigMap %s: its namespace is missing: %w", configMap, err)
	}
	if err != nil {
		return fmt.Errorf("write ConfigMap %s: %w", configMap, err)
	}
	return nil
}

// judge makes the conditions. A node that is not ready does not count: what it has is seen when it is back.
func judge(list wanted.List, members []registrystatus.Member, unknown []wantedimages.Unknown) []metav1.Condition {
	held := metav1.Condition{Type: conditionHeld, Status: metav1.ConditionTrue, Reason: "AllHeld"}
	var bad []string
	count := 0
	for _, m := range members {
		if !m.Ready {
			continue
		}
		count++
		if m.Report.Ready && m.Report.List == list.Hash() {
			continue
		}
		bad = append(bad, m.Name+": "+registrystatus.Lacking(list, m.Report))
	}
	held.Message = fmt.Sprintf("%d images are in the registries of %d ready control-plane nodes", len(list.Fetched()),
		count)
	switch {
	case count == 0:
		held.Status, held.Reason, held.Message = metav1.ConditionUnknown, "NoNodes", "no control-plane node is ready"
	case len(bad) > 0:
		held.Status, held.Reason, held.Message = metav1.ConditionFalse, "Missing", few(bad)
	}
	known := metav1.Condition{Type: conditionKnown, Status: metav1.ConditionTrue, Reason: "AsExpected",
		Message: "every image that a node names was made by the cluster"}
	if len(unknown) > 0 {
		known.Status, known.Reason, known.Message = metav1.ConditionFalse, "Unknown", notKnown(unknown)
	}
	return []metav1.Condition{held, known}
}

// notKnown says which references count for nothing, and what to do.
func notKnown(unknown []wantedimages.Unknown) string {
	var ofNodes, ofList []string
	for _, u := range unknown {
		if u.Node == "" {
			ofList = append(ofList, fmt.Sprintf("%q in %s", u.Image, u.Annotation))
		} else {
			ofNodes = append(ofNodes, fmt.Sprintf("node %s names %s in %s", u.Node, u.Image, u.Annotation))
		}
	}
	var out []string
	if len(ofNodes) > 0 {
		out = append(out, few(ofNodes)+": no build, MachineOSConfig or config has this image; it is not fetched. Correct "+
			"the annotation, or push the image and name it in the MachineOSConfig")
	}
	if len(ofList) > 0 {
		out = append(out, "ConfigMap "+cluster.RegistryImages+" has "+few(ofList)+": this is no image of the registries by "+
			"digest; write REGISTRY/PATH@sha256:DIGEST, as dayone cluster registry add prints it")
	}
	return strings.Join(out, ". ")
}

func few(all []string) string {
	if len(all) > maxNamed {
		all = append(all[:maxNamed:maxNamed], fmt.Sprintf("and %d more", len(all)-maxNamed))
	}
	return strings.Join(all, "; ")
}
