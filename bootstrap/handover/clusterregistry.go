package handover

import (
	"cmp"
	"context"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"dayone.dev/dayone/manifests"
	"dayone.dev/dayone/manifests/assets/cluster"
	"dayone.dev/dayone/rebase/rollout"
	"dayone.dev/dayone/registry/credentials"
	"dayone.dev/dayone/registry/dial"
	"dayone.dev/dayone/registry/peers"
	"dayone.dev/dayone/registry/wanted"
)

const (
	// copies is to how many registries of the control plane this host brings each image: from two on, no single loss
	// loses it. The others fetch it from these.
	copies = 2
	// controlPlane is the pool of the control-plane nodes.
	controlPlane = "master"
)

// replicas brings images to the registries of the cluster's control plane, by the nodes' addresses: the name in the
// images' names may lead to any of them.
type replicas struct {
	courier courier
	// by are the couriers of this run by address: each knows what it has seen there.
	by map[string]courier
}

func newReplicas(c courier) replicas { return replicas{courier: c, by: map[string]courier{}} }

// replica is a control-plane node with its registry.
type replica struct {
	name, address string
	ready         bool
	report        wanted.Report
}

// members are the control-plane nodes in order of their names.
func (r replicas) members(ctx context.Context, cluster client.Client) ([]replica, error) {
	var nodes corev1.NodeList
	if err := cluster.List(ctx, &nodes); err != nil {
		return nil, ofCluster(fmt.Errorf("list nodes: %w", err))
	}
	byName := map[string]*corev1.Node{}
	for i := range nodes.Items {
		byName[nodes.Items[i].Name] = &nodes.Items[i]
	}
	var out []replica
	for _, p := range rollout.RegistryPeers(r.courier.o.Plan.ClusterRegistry, nodes.Items).Peers {
		n := byName[p.Name]
		m := replica{name: p.Name, address: p.Address, report: wanted.Reported(n.Annotations[manifests.AnnotationRegistry])}
		for _, c := range n.Status.Conditions {
			m.ready = m.ready || c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue
		}
		out = append(out, m)
	}
	return out, nil
}

// enough is how many of these registries must have each image before this host may go. Beside the Machine Config
// Operator nothing in the cluster brings the registries a list yet, so this host brings the images to all of them.
func (r replicas) enough(list []replica) int {
	all := max(1, len(list), r.courier.o.Plan.pool(controlPlane).Nodes)
	if r.courier.o.Plan.Controllers == MCO {
		return all
	}
	return min(copies, all)
}

func (r replicas) to(m replica) courier {
	if _, known := r.by[m.address]; !known {
		r.by[m.address] = r.courier.to(m.address)
	}
	return r.by[m.address]
}

// deliverAll brings every image of the plan to the first registries that answer, and verifies it there.
func (r replicas) deliverAll(ctx context.Context, cluster client.Client) error {
	return r.atFirst(ctx, cluster, func(c courier) error { return c.deliverAll(ctx) })
}

// adoptOrphans is the courier's, for these registries.
func (r replicas) adoptOrphans(ctx context.Context, cluster client.Client) error {
	return r.atFirst(ctx, cluster, func(c courier) error { return c.adoptOrphans(ctx, cluster) })
}

// atFirst does something at the first registries that answer, as many as are enough.
func (r replicas) atFirst(ctx context.Context, cluster client.Client, do func(courier) error) error {
	list, err := r.members(ctx, cluster)
	if err != nil {
		return err
	}
	done, enough := 0, r.enough(list)
	var failed error
	var silent []string
	for _, m := range list {
		if done == enough {
			break
		}
		if err := dial.Answers(ctx, m.address); err != nil {
			silent = append(silent, fmt.Sprintf("%s: %v", m.name, err))
			continue
		}
		if err := do(r.to(m)); err != nil {
			if failed == nil {
				failed = fmt.Errorf("registry of node %s: %w", m.name, err)
			}
			continue
		}
		done++
	}
	if done >= enough {
		return nil
	}
	if failed != nil {
		return failed
	}
	text := fmt.Sprintf("%d of the registries of %d control-plane nodes answer, and %d must have the images", done,
		len(list), enough)
	if len(silent) > 0 {
		text += ": " + strings.Join(silent, "; ") + ": see systemctl status dayone-registry on the node"
	}
	return waitsFor{text}
}

// agreed waits until the registry of every ready control-plane node has every image that the cluster refers to. It asks
// them, and believes no report.
func (r replicas) agreed(ctx context.Context, c client.Client) error {
	if r.courier.o.Plan.Controllers != MCO {
		if err := r.kept(ctx, c); err != nil {
			return err
		}
	}
	v, err := readView(ctx, c)
	if err != nil {
		return err
	}
	images := append([]Image{}, r.courier.o.Plan.Images...)
	repositories := r.courier.o.Plan.repositories()
	concerned, _ := Concerned(r.courier.o.Plan, references(v))
	for _, ref := range concerned {
		images = append(images, orphan(ref.Image, repositories))
	}
	list, err := r.members(ctx, c)
	if err != nil {
		return err
	}
	full := 0
	for _, m := range list {
		if !m.ready {
			continue
		}
		if err := r.lacks(ctx, m, images); err != nil {
			return err
		}
		full++
	}
	if enough := r.enough(list); full < enough {
		return waitsFor{fmt.Sprintf("%d control-plane nodes are ready, and the registries of %d must have the images", full,
			enough)}
	}
	return nil
}

// lacks says what the registry of a node does not have.
func (r replicas) lacks(ctx context.Context, m replica, images []Image) error {
	to := r.to(m)
	for _, i := range images {
		if to.verified[i.Reference()] {
			continue
		}
		there, err := to.holds(ctx, i)
		if err != nil {
			return fmt.Errorf("registry of node %s: %w", m.name, err)
		}
		if !there {
			why := m.report.Problem
			for _, missing := range m.report.Missing {
				why = missing.Image + ": " + missing.Why
			}
			return waitsFor{fmt.Sprintf("the registry of node %s has not fetched %s yet: %s", m.name, i.Reference(),
				cmp.Or(why, "dayone cluster registry status shows what it does"))}
		}
		to.verified[i.Reference()] = true
	}
	return nil
}

// kept waits until the cluster's controllers look after these registries: without a list they hold nothing for long.
func (r replicas) kept(ctx context.Context, c client.Client) error {
	registry := r.courier.o.Plan.ClusterRegistry
	var published corev1.ConfigMap
	err := c.Get(ctx, client.ObjectKey{Namespace: cluster.DefaultNamespace, Name: cluster.RegistryPeersName}, &published)
	if client.IgnoreNotFound(err) != nil {
		return ofCluster(fmt.Errorf("read ConfigMap %s: %w", cluster.RegistryPeersName, err))
	}
	next := ": run dayone cluster install (or upgrade) with --node-agent --cluster-registry " + registry
	if err != nil {
		return waitsFor{"no controller looks after the cluster's own registries" + next}
	}
	list, err := peers.Parse([]byte(published.Data[wanted.PeersFile]))
	if err != nil || list.Registry != registry {
		return waitsFor{fmt.Sprintf("the controllers look after the registry %q and the images are in %s%s", list.Registry,
			registry, next)}
	}
	return nil
}

// accountFor gives credentials for a registry an entry for an address of it.
func accountFor(auth []byte, registry, address string) ([]byte, error) {
	accounts, err := credentials.Parse(auth)
	if err != nil {
		return nil, err
	}
	account, found, err := accounts.Find(registry)
	if err != nil || !found {
		return auth, err
	}
	more, err := credentials.Encode(account, address)
	if err != nil {
		return nil, err
	}
	return credentials.Merge(auth, more)
}
