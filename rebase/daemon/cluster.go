package daemon

import (
	"context"

	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	opv1 "github.com/openshift/api/operator/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"dayone.dev/dayone/rebase/daemon/kubeapi"
)

// Cluster is what the agent asks of the API; kubeapi.Client is one. A request without an answer is a
// kubeapi.ErrNoAnswer; errors of an API that answered are Kubernetes' own.
type Cluster interface {
	ownNode
	ownReports
	published
}

// ownReports are what the agent makes about this node beside its object.
type ownReports interface {
	ownEvents
	ownRecord
}

// published is what nodes are to have.
type published interface {
	nodeConfigs
	pinnedSets
	registryFiles
}

// pinnedSets are the images that nodes keep.
type pinnedSets interface {
	// PinnedImageSet reads one of them; nil when there is none of that name.
	PinnedImageSet(ctx context.Context, name string) (*mcfgv1.PinnedImageSet, error)
}

// ownRecord is this node's MachineConfigNode, whose status is for people and other controllers.
type ownRecord interface {
	// MachineConfigNode reads it; nil when no controller has made it yet.
	MachineConfigNode(ctx context.Context) (*mcfgv1.MachineConfigNode, error)
	// ApplyMachineConfigNode makes what of its status is the agent's what o says, and leaves what is others' (server-side
	// apply).
	ApplyMachineConfigNode(ctx context.Context, o *mcfgv1.MachineConfigNode) error
}

// ownNode is this node's object; its spec and status are not needed.
type ownNode interface {
	Node(ctx context.Context) (*metav1.PartialObjectMetadata, error)
	// PatchNode changes it by a JSON merge patch.
	PatchNode(ctx context.Context, patch []byte) (*metav1.PartialObjectMetadata, error)
}

// ownEvents are the events about this node.
type ownEvents interface {
	// Event makes one, unless there is one of its name.
	Event(ctx context.Context, e kubeapi.Event) error
}

// nodeConfigs are what nodes are to have.
type nodeConfigs interface {
	// ControllerConfig reads what every node of the cluster has beside its config; nil when there is none.
	ControllerConfig(ctx context.Context) (*mcfgv1.ControllerConfig, error)
	// Config reads a rendered config.
	Config(ctx context.Context, name string) (*mcfgv1.MachineConfig, error)
	// Policies reads the object with the admin's disruption policies; nil when there is none.
	Policies(ctx context.Context) (*opv1.MachineConfiguration, error)
}
