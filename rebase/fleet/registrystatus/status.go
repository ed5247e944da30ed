package registrystatus

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"dayone.dev/dayone/manifests"
	"dayone.dev/dayone/manifests/assets/cluster"
	"dayone.dev/dayone/registry/authority"
	"dayone.dev/dayone/registry/peers"
	"dayone.dev/dayone/registry/poolaccounts"
	"dayone.dev/dayone/registry/wanted"
)

// Status is what the registries of a control plane must hold and what they say that they hold.
type Status struct {
	// Registry is HOST:PORT in the names of images.
	Registry string `json:"registry"`
	// Issued is when the list was last renewed.
	Issued time.Time     `json:"issued"`
	Images []ImageStatus `json:"images"`
	Nodes  []NodeStatus  `json:"nodes"`
	// CA signs the registries' certificates; nil where no controller renews it.
	CA         *authority.Status  `json:"ca,omitempty"`
	Conditions []metav1.Condition `json:"conditions"`
}

// ImageStatus is one wanted image.
type ImageStatus struct {
	wanted.Image
	// Held are the nodes whose registry has it; Lacking says of the others why not.
	Held    []string          `json:"held"`
	Lacking map[string]string `json:"lacking,omitempty"`
}

// NodeStatus is the registry of one control-plane node.
type NodeStatus struct {
	Name string `json:"name"`
	// Ready is the node's own condition.
	Ready bool `json:"nodeReady"`
	// Behind says why its registry may lack images; "" when it has all.
	Behind string        `json:"behind,omitempty"`
	Report wanted.Report `json:"report"`
}

// Published is what the controller tells the registries.
type Published struct {
	List wanted.List
	// Peers are their addresses; nil where none are published.
	Peers *peers.List
	// Accounts are the names of those that are valid, by pool; those of "" push.
	Accounts map[string][]string
	// CA is how the rotation of their CA is; nil where no controller renews it.
	CA         *authority.Status
	Conditions []metav1.Condition
}

// ConditionAccounts is True when everybody uses the newest account that is theirs.
const ConditionAccounts = "AccountsCurrent"

// ConditionShared is True when every ready control-plane node has what the registries share from its agent. Where a
// MachineConfig brings it there is no such condition.
const ConditionShared = "SharedFilesCurrent"

// ConditionCA is True while no rotation of the registries' CA runs or is due. Where a MachineConfig brings the CA there
// is no such condition.
const ConditionCA = "CACurrent"

// ReadPublished reads it from a cluster.
func ReadPublished(ctx context.Context, c client.Client, namespace string) (*Published, error) {
	var have corev1.ConfigMap
	err := c.Get(ctx, client.ObjectKey{Namespace: namespace, Name: cluster.RegistryName}, &have)
	if apierrors.IsNotFound(err) {
		return nil, fmt.Errorf("read ConfigMap %s: the control plane has no registries: install with --cluster-registry, "+
			"see dayone registry node-config: %w", cluster.RegistryName, err)
	}
	if err != nil {
		return nil, fmt.Errorf("read ConfigMap %s: %w", cluster.RegistryName, err)
	}
	p := Published{Accounts: poolaccounts.Accepted(have.Data[wanted.AccountsFile])}
	if p.List, err = wanted.Decode([]byte(have.Data[wanted.ListFile])); err != nil {
		return nil, err
	}
	var addresses corev1.ConfigMap
	err = c.Get(ctx, client.ObjectKey{Namespace: namespace, Name: cluster.RegistryPeersName}, &addresses)
	if client.IgnoreNotFound(err) != nil {
		return nil, fmt.Errorf("read ConfigMap %s: %w", cluster.RegistryPeersName, err)
	}
	if at, err := peers.Parse([]byte(addresses.Data[wanted.PeersFile])); err == nil { // nobody can be asked otherwise
		p.Peers = &at
	}
	if err := json.Unmarshal([]byte(have.Data[cluster.StatusConditions]), &p.Conditions); err != nil {
		return nil, fmt.Errorf("read conditions: %w", err)
	}
	if p.CA, err = authority.DecodeStatus(have.Data[authority.StatusFile]); err != nil {
		return nil, err
	}
	return &p, nil
}

// ReadStatus reads it from a cluster.
func ReadStatus(ctx context.Context, c client.Client, namespace string) (*Status, error) {
	p, err := ReadPublished(ctx, c, namespace)
	if err != nil {
		return nil, err
	}
	list := p.List
	s := &Status{Issued: list.Issued, Images: []ImageStatus{}, Nodes: []NodeStatus{}, CA: p.CA,
		Conditions: p.Conditions}
	if p.Peers != nil {
		s.Registry = p.Peers.Registry
	}
	var nodes corev1.NodeList
	if err := c.List(ctx, &nodes); err != nil {
		return nil, fmt.Errorf("list nodes: %w", err)
	}
	reports := map[string]wanted.Report{}
	for _, m := range Members(nodes.Items) {
		reports[m.Name] = m.Report
		n := NodeStatus{Name: m.Name, Ready: m.Ready, Report: m.Report}
		if !m.Report.Ready || m.Report.List != list.Hash() {
			n.Behind = Lacking(list, m.Report)
		}
		s.Nodes = append(s.Nodes, n)
	}
	for _, i := range list.Images {
		row := ImageStatus{Image: i}
		if !i.OnlyKeep {
			row.Held, row.Lacking = wanted.Copies(list, i.Repository, i.Digest, reports)
		}
		s.Images = append(s.Images, row)
	}
	return s, nil
}

// Member is a control-plane node with what it reports.
type Member struct {
	Name   string
	Ready  bool
	Report wanted.Report
}

// Members are the nodes of the control plane. A report that cannot be read is a problem of its node.
func Members(nodes []corev1.Node) []Member {
	var out []Member
	for i := range nodes {
		n := &nodes[i]
		if !manifests.ControlPlane(n.Labels) {
			continue
		}
		out = append(out, Member{Name: n.Name, Ready: NodeReady(n),
			Report: wanted.Reported(n.Annotations[manifests.AnnotationRegistry])})
	}
	return out
}

// NodeReady is the node's own condition.
func NodeReady(n *corev1.Node) bool {
	for _, c := range n.Status.Conditions {
		if c.Type == corev1.NodeReady {
			return c.Status == corev1.ConditionTrue
		}
	}
	return false
}

// Lacking says what a registry lacks.
func Lacking(list wanted.List, r wanted.Report) string {
	if len(r.Missing) > 0 && r.Problem == "" && r.List == list.Hash() {
		return fmt.Sprintf("%d of %d images are missing, first %s: %s", r.Wanted-r.Held, r.Wanted, r.Missing[0].Image,
			r.Missing[0].Why)
	}
	return r.Behind(list)
}
