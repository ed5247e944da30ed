package registrycontroller

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"dayone.dev/dayone/manifests"
	"dayone.dev/dayone/manifests/assets/cluster"
	"dayone.dev/dayone/rebase/fleet/registrystatus"
	"dayone.dev/dayone/rebase/rollout"
	"dayone.dev/dayone/rebase/wantedimages"
	"dayone.dev/dayone/registry/credentials"
	"dayone.dev/dayone/registry/poolaccounts"
)

const (
	// accountsKey is the Secret's key with the state.
	accountsKey = "accounts.json"
	// sealedAtOnce bounds how many nodes get an account in one pass, so that a list of images does not wait for thousands.
	sealedAtOnce = 100
	// clocks is how far those of the API and of the controller may be apart, and how long a pass takes to write a Secret.
	clocks = time.Minute
)

// accounts takes the accounts of pools and builders one step on and brings them to nodes and builds. It gives the users
// that registries are to accept; each write follows from the one before, so a kill between two loses nothing.
func (r *reconciler) accounts(ctx context.Context, v wantedimages.View) (users string, c metav1.Condition, more bool,
	err error) {
	var kept, push corev1.Secret
	there, err := r.secret(ctx, cluster.RegistryAccounts, &kept)
	if err != nil {
		return "", c, false, err
	}
	pushed, err := r.secret(ctx, cluster.RegistryPush, &push)
	if err != nil {
		return "", c, false, err
	}
	state, err := poolaccounts.Decode(kept.Data[accountsKey])
	if err != nil {
		return "", c, false, fmt.Errorf("secret %s: %w: delete it, and all accounts are made anew",
			cluster.RegistryAccounts, err)
	}
	in, placed := r.accountsView(v, state, push, pushed)
	next, waits, err := state.Next(r.o.Now(), in)
	if err != nil {
		return "", c, false, err
	}
	if err := r.keep(ctx, kept, there, next); err != nil {
		return "", c, false, err
	}
	// The rest may fail for one node or Secret: what registries accept does not depend on it.
	if builders := next.Of(""); pushed && builders.Current.Name != "" {
		err = r.givePush(ctx, &push, builders.Current)
	}
	if beginners := next.Of(poolaccounts.NewNodes); beginners.Current.Name != "" {
		err = errors.Join(err, r.giveNewNodes(ctx, beginners.Current))
	}
	more, sealErr := r.seal(ctx, placed, next)
	return next.Users(), judgeAccounts(next, placed, waits), more, errors.Join(err, sealErr)
}

// secret reads past the cache; false: there is none.
func (r *reconciler) secret(ctx context.Context, name string, into *corev1.Secret) (bool, error) {
	err := r.live.Get(ctx, client.ObjectKey{Namespace: r.o.Namespace, Name: name}, into)
	if apierrors.IsNotFound(err) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("read Secret %s: %w", name, err)
	}
	return true, nil
}

// keep writes the state, where it has changed. Another writer is an error.
func (r *reconciler) keep(ctx context.Context, kept corev1.Secret, there bool, next poolaccounts.State) error {
	raw, err := next.Encode()
	if err != nil || bytes.Equal(raw, kept.Data[accountsKey]) || !there && len(next.Owners) == 0 {
		return err
	}
	kept.Data = map[string][]byte{accountsKey: raw}
	if err := r.put(ctx, &kept, there, cluster.RegistryAccounts, corev1.SecretTypeOpaque); err != nil {
		return err
	}
	r.o.Log.WithField("owners", len(next.Owners)).Info("registry accounts have changed")
	return nil
}

// givePush brings the builders' account into their Secret and leaves what else is in it.
func (r *reconciler) givePush(ctx context.Context, push *corev1.Secret, a poolaccounts.Account) error {
	have := push.Data[corev1.DockerConfigJsonKey]
	if accountIn(have, r.o.Registry) == a.Name {
		return nil
	}
	own, err := credentials.Encode(credentials.Account{Username: a.Name, Password: a.Password}, r.o.Registry)
	if err != nil {
		return err
	}
	if push.Data[corev1.DockerConfigJsonKey], err = credentials.Merge(have, own); err != nil {
		return fmt.Errorf("secret %s: %w", push.Name, err)
	}
	if err := r.client.Update(ctx, push, client.FieldOwner(name)); err != nil {
		return fmt.Errorf("write Secret %s: %w", push.Name, err)
	}
	return nil
}

// giveNewNodes brings the account that nodes begin with into the Secret that the config server reads.
func (r *reconciler) giveNewNodes(ctx context.Context, a poolaccounts.Account) error {
	var have corev1.Secret
	there, err := r.secret(ctx, cluster.RegistryNewNodes, &have)
	if err != nil || accountIn(have.Data[corev1.DockerConfigJsonKey], r.o.Registry) == a.Name {
		return err
	}
	own, err := credentials.Encode(credentials.Account{Username: a.Name, Password: a.Password}, r.o.Registry)
	if err != nil {
		return err
	}
	have.Data = map[string][]byte{corev1.DockerConfigJsonKey: own}
	return r.put(ctx, &have, there, cluster.RegistryNewNodes, corev1.SecretTypeDockerConfigJson)
}

// put writes a Secret of the controller's.
func (r *reconciler) put(ctx context.Context, s *corev1.Secret, there bool, named string,
	kind corev1.SecretType) (err error) {
	if there {
		err = r.client.Update(ctx, s, client.FieldOwner(name))
	} else {
		s.ObjectMeta = metav1.ObjectMeta{Namespace: r.o.Namespace, Name: named,
			Labels: map[string]string{cluster.LabelManagedBy: cluster.ManagedBy, cluster.LabelPartOf: cluster.ManagedBy}}
		s.Type = kind
		err = r.client.Create(ctx, s, client.FieldOwner(name))
	}
	if err != nil {
		return fmt.Errorf("write Secret %s: %w", named, err)
	}
	return nil
}

// accountIn is the name of the account for a registry; "" is none.
func accountIn(auth []byte, registry string) string {
	accounts, err := credentials.Parse(auth)
	if err != nil {
		return ""
	}
	a, _, err := accounts.Find(registry)
	if err != nil {
		return ""
	}
	return a.Username
}

// placed is a node that has a key, and its pool.
type placed struct {
	node *corev1.Node
	pool string
	word poolaccounts.Word
}

func (p placed) user() poolaccounts.User {
	return poolaccounts.User{Name: p.node.Name, Ready: registrystatus.NodeReady(p.node), Has: p.word.Account}
}

// accountsView is what the steps depend on. A pool has an account from the first node on whose agent has a key.
func (r *reconciler) accountsView(v wantedimages.View, s poolaccounts.State, push corev1.Secret, pushed bool) (
	in poolaccounts.View, nodes []placed) {
	pools := make([]*mcfgv1.MachineConfigPool, 0, len(v.Pools))
	for i := range v.Pools {
		pools = append(pools, &v.Pools[i])
	}
	placement := rollout.NewPlacement(pools)
	users := map[string][]poolaccounts.User{}
	for i := range v.Nodes {
		n := &v.Nodes[i]
		word := poolaccounts.Read[poolaccounts.Word](n.Annotations[manifests.AnnotationRegistryKey])
		if word.Key == "" {
			continue
		}
		p := placed{node: n, word: word}
		if pool, err := placement.Pool(n); err == nil && pool != nil {
			p.pool = pool.Name
			users[p.pool] = append(users[p.pool], p.user())
		}
		nodes = append(nodes, p)
		in.Others = append(in.Others, p.user())
	}
	for _, p := range pools {
		if len(users[p.Name]) > 0 || s.Of(p.Name).Current.Name != "" {
			in.Wants = append(in.Wants, poolaccounts.Want{Pool: p.Name, Asked: p.Annotations[manifests.AnnotationRotateAccount],
				Users: users[p.Name]})
		}
	}
	if len(nodes) > 0 || s.Of(poolaccounts.NewNodes).Current.Name != "" {
		in.Wants = append(in.Wants, poolaccounts.Want{Pool: poolaccounts.NewNodes})
	}
	if has := accountIn(push.Data[corev1.DockerConfigJsonKey], r.o.Registry); pushed && has != "" {
		builders := s.Of("")
		in.Wants = append(in.Wants, poolaccounts.Want{Asked: push.Annotations[manifests.AnnotationRotateAccount],
			Late: has != builders.Current.Name,
			Users: append(buildsOf(v.MachineOSBuilds, builders),
				poolaccounts.User{Name: "Secret " + push.Name, Ready: true, Has: has})})
	}
	for _, m := range registrystatus.Members(v.Nodes) {
		in.Registries = append(in.Registries, poolaccounts.User{Name: m.Name, Ready: m.Ready, Has: m.Report.Accounts})
	}
	return in, nodes
}

// buildsOf are those that began before the builders' account was replaced, and that still push with the one before.
func buildsOf(builds []mcfgv1.MachineOSBuild, builders poolaccounts.Owner) (out []poolaccounts.User) {
	for i := range builds {
		b := &builds[i]
		if !ended(b) && !b.CreationTimestamp.After(builders.Switched.Add(clocks)) {
			out = append(out, poolaccounts.User{Name: "build " + b.Name, Ready: true, Has: builders.Beside.Name})
		}
	}
	return out
}

func ended(b *mcfgv1.MachineOSBuild) bool {
	return slices.ContainsFunc(b.Status.Conditions, func(c metav1.Condition) bool {
		return c.Status == metav1.ConditionTrue && (c.Type == string(mcfgv1.MachineOSBuildSucceeded) ||
			c.Type == string(mcfgv1.MachineOSBuildFailed) || c.Type == string(mcfgv1.MachineOSBuildInterrupted))
	})
}

// seal gives nodes their pool's account, where they have another one or another key. more: some are left for the next
// pass.
func (r *reconciler) seal(ctx context.Context, nodes []placed, s poolaccounts.State) (more bool, err error) {
	done := 0
	for _, p := range nodes {
		a := s.Of(p.pool).Current
		have := poolaccounts.Read[poolaccounts.Sealed](p.node.Annotations[manifests.AnnotationRegistryAccount])
		if p.pool == "" || a.Name == "" || have.Account == a.Name && have.Key == p.word.Key {
			continue
		}
		if done == sealedAtOnce {
			return true, err
		}
		done++
		if one := r.sealFor(ctx, p, a); one != nil {
			err = errors.Join(err, fmt.Errorf("node %s: %w", p.node.Name, one))
		}
	}
	return false, err
}

func (r *reconciler) sealFor(ctx context.Context, p placed, a poolaccounts.Account) error {
	sealed, err := poolaccounts.Seal(a, r.o.Registry, p.node.Name, p.word.Key)
	if err != nil {
		return err
	}
	return r.give(ctx, p.node.Name, manifests.AnnotationRegistryAccount, sealed)
}

// give writes what is sealed for a node on it.
func (r *reconciler) give(ctx context.Context, node, annotation string, sealed poolaccounts.Sealed) error {
	text, err := poolaccounts.Annotation(sealed)
	if err != nil {
		return err
	}
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"annotations": map[string]string{
		annotation: text}}})
	if err != nil {
		return fmt.Errorf("encode patch: %w", err)
	}
	return client.IgnoreNotFound(r.client.Patch(ctx, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: node}},
		client.RawPatch(types.MergePatchType, patch), client.FieldOwner(name)))
}

// judgeAccounts says what a rotation waits for, and which ready nodes do not use the newest account.
func judgeAccounts(s poolaccounts.State, nodes []placed, waits []string) metav1.Condition {
	out := metav1.Condition{Type: registrystatus.ConditionAccounts, Status: metav1.ConditionTrue, Reason: "Current",
		Message: fmt.Sprintf("%d accounts, each in use by all that are ready", len(s.Owners))}
	var behind []string
	for _, p := range nodes {
		if u := p.user(); u.Ready && p.pool != "" && u.Has != s.Of(p.pool).Current.Name {
			behind = append(behind, p.node.Name)
		}
	}
	slices.Sort(behind)
	if len(behind) > 0 {
		waits = append(waits, "nodes that do not use their pool's newest account yet: "+
			strings.ReplaceAll(few(behind), ";", ",")+": see dayone-daemon's log there")
	}
	if len(waits) > 0 {
		out.Status, out.Reason, out.Message = metav1.ConditionFalse, "Rotating", few(waits)
	}
	return out
}
