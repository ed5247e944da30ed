package registrycontroller

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"dayone.dev/dayone/manifests"
	"dayone.dev/dayone/manifests/render"
	"dayone.dev/dayone/rebase/fleet/registrystatus"
	"dayone.dev/dayone/rebase/wantedimages"
	"dayone.dev/dayone/registry/authority"
	"dayone.dev/dayone/registry/poolaccounts"
)

// caStateKey is the key of Secret cluster.RegistryShared with the state of the CA's rotation. It is beside the CA, so
// that one write changes both.
const caStateKey = "ca-rotation.json"

// renewCA takes the rotation of the registries' CA one step on, where one runs or is due. The Secret is written first,
// and kept has what it has then; what nodes and builds are to trust follows. A kill between two writes loses nothing.
func renewCA(ctx context.Context, r *reconciler, kept *corev1.Secret, v wantedimages.View,
	members []registrystatus.Member) (*authority.Status, metav1.Condition, error) {
	state, err := authority.Decode(kept.Data[caStateKey])
	if err != nil {
		return nil, failedCA(err), fmt.Errorf("secret %s: %w: remove its key %s; the CA in %s goes on", kept.Name, err,
			caStateKey, poolaccounts.SharedCA)
	}
	in, config := caView(r.o.Registry, v, members, *kept, state)
	next, waits, err := state.Next(r.o.Now(), in)
	if err != nil {
		return nil, failedCA(err), fmt.Errorf("secret %s: %w", kept.Name, err)
	}
	if err := keepCA(ctx, r, kept, state, next); err != nil {
		return nil, failedCA(err), err
	}
	if bundle := next.Bundle(in.Bundle); config != nil && !bytes.Equal(bundle, in.Bundle) {
		if err := giveBundle(ctx, r, config, bundle); err != nil {
			return nil, failedCA(err), err
		}
	}
	status := next.Status(string(kept.Data[poolaccounts.SharedCA]), in.Nodes, waits)
	return &status, judgeCA(status, waits, next, config), nil
}

// caView is what the steps depend on, and the ControllerConfig; nil: there is none.
func caView(registry string, v wantedimages.View, members []registrystatus.Member, kept corev1.Secret,
	state authority.State) (authority.View, *mcfgv1.ControllerConfig) {
	ca := string(kept.Data[poolaccounts.SharedCA])
	in := authority.View{CA: ca,
		Request:     authority.ParseRequest(kept.Annotations[manifests.AnnotationRotateCA]),
		Unavailable: "there is no ControllerConfig " + render.ControllerConfigName + ", from which nodes learn what to trust"}
	works := poolaccounts.Shared{Users: string(kept.Data[poolaccounts.SharedUsers]), CA: state.CA(ca)}.Hash()
	for _, m := range members {
		in.Registries = append(in.Registries, authority.Registry{Node: m.Name, Ready: m.Ready,
			Works: m.Report.Shared == works})
	}
	for i := range v.Nodes {
		n := &v.Nodes[i]
		word := poolaccounts.Read[poolaccounts.Word](n.Annotations[manifests.AnnotationRegistryKey])
		in.Nodes = append(in.Nodes, authority.Node{Name: n.Name, Ready: registrystatus.NodeReady(n),
			Agent: word.Key != "", Trusts: word.Trusts})
	}
	for i := range v.MachineOSBuilds {
		if b := &v.MachineOSBuilds[i]; !ended(b) {
			in.Builds = append(in.Builds, authority.Build{Name: b.Name, Began: b.CreationTimestamp.Time})
		}
	}
	at := slices.IndexFunc(v.ControllerConfigs, func(c mcfgv1.ControllerConfig) bool {
		return c.Name == render.ControllerConfigName
	})
	if at < 0 {
		return in, nil
	}
	config := &v.ControllerConfigs[at]
	in.Unavailable, in.Bundle = "", bundleOf(config, registry)
	return in, config
}

// bundleFile is the registries' key in a ControllerConfig, where ".." stands for the colon before a port.
func bundleFile(registry string) string { return strings.ReplaceAll(registry, ":", "..") }

// bundleOf is what nodes get to trust for the registries; the user's counts where both name them.
func bundleOf(c *mcfgv1.ControllerConfig, registry string) (out []byte) {
	for _, b := range slices.Concat(c.Spec.ImageRegistryBundleData, c.Spec.ImageRegistryBundleUserData) {
		if b.File == bundleFile(registry) {
			out = b.Data
		}
	}
	return out
}

// giveBundle changes what nodes and builds trust for the registries. No rendered config and no image depends on it.
func giveBundle(ctx context.Context, r *reconciler, c *mcfgv1.ControllerConfig, bundle []byte) error {
	own := mcfgv1.ImageRegistryBundle{File: bundleFile(r.o.Registry), Data: bundle}
	all := slices.Clone(c.Spec.ImageRegistryBundleUserData)
	at := slices.IndexFunc(all, func(b mcfgv1.ImageRegistryBundle) bool { return b.File == own.File })
	if at < 0 {
		all = append(all, own)
	} else {
		all[at] = own
	}
	patch, err := json.Marshal(map[string]any{ // others may write the list, too: it is of this version
		"metadata": map[string]string{"resourceVersion": c.ResourceVersion},
		"spec":     map[string]any{"imageRegistryBundleUserData": all}})
	if err != nil {
		return fmt.Errorf("encode patch: %w", err)
	}
	if err := r.client.Patch(ctx, &mcfgv1.ControllerConfig{ObjectMeta: metav1.ObjectMeta{Name: c.Name}},
		client.RawPatch(types.MergePatchType, patch), client.FieldOwner(name)); err != nil {
		return fmt.Errorf("give nodes the CAs of the registries: write ControllerConfig: %w", err)
	}
	r.o.Log.Info("nodes get other CAs of the registries")
	return nil
}

// keepCA writes state and CA, where one has changed. Another writer is an error.
func keepCA(ctx context.Context, r *reconciler, kept *corev1.Secret, was, next authority.State) error {
	raw, err := next.Encode()
	if err != nil {
		return err
	}
	ca := []byte(next.CA(string(kept.Data[poolaccounts.SharedCA])))
	if bytes.Equal(raw, kept.Data[caStateKey]) && bytes.Equal(ca, kept.Data[poolaccounts.SharedCA]) {
		return nil
	}
	changed := kept.DeepCopy()
	changed.Data = maps.Clone(kept.Data)
	changed.Data[caStateKey], changed.Data[poolaccounts.SharedCA] = raw, ca
	if err := r.client.Update(ctx, changed, client.FieldOwner(name)); err != nil {
		return fmt.Errorf("write Secret %s: %w", kept.Name, err)
	}
	*kept = *changed
	if was.Step != next.Step {
		r.o.Log.WithFields(map[string]any{"from": was.Step, "to": next.Step}).Info("rotation of the registries' CA goes on")
	}
	return nil
}

func failedCA(err error) metav1.Condition {
	return metav1.Condition{Type: registrystatus.ConditionCA, Status: metav1.ConditionFalse, Reason: "Failed",
		Message: err.Error()}
}

// judgeCA says what a rotation waits for, or how long the CA is valid.
func judgeCA(s authority.Status, waits []authority.Wait, state authority.State,
	config *mcfgv1.ControllerConfig) metav1.Condition {
	out := metav1.Condition{Type: registrystatus.ConditionCA, Status: metav1.ConditionTrue, Reason: "Current"}
	if s.Rotation != nil {
		out.Status, out.Reason = metav1.ConditionFalse, "Rotating"
		out.Message = "step " + string(s.Rotation.Step) + ": " + s.Rotation.Step.Does()
		if text := s.Rotation.Text(); text != "" {
			out.Message += "; it waits: " + text
		}
		return out
	}
	if len(waits) > 0 {
		out.Status, out.Reason = metav1.ConditionFalse, "CannotBegin"
		out.Message = "the CA is to be replaced: " + authority.Rotation{Waits: waits}.Text()
		return out
	}
	out.Message = fmt.Sprintf("CA %q, %s, is valid until %s and is replaced from %s on", s.Name, s.Fingerprint,
		s.NotAfter.Format(time.DateOnly), s.RenewedFrom.Format(time.DateOnly))
	if len(s.Behind) > 0 {
		out.Message += "; these nodes have not said that they trust it, and get it from the API when their agent works: " +
			strings.ReplaceAll(few(slices.Clone(s.Behind)), ";", ",")
	}
	if config != nil && state.LeftIn(config.Spec.AdditionalTrustBundle) {
		out.Message += "; the additional trust bundle still has a CA that was replaced: remove it with the next change of " +
			"configs"
	}
	return out
}
