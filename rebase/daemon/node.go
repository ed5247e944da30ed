package daemon

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os/exec"
	"strings"

	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	opv1 "github.com/openshift/api/operator/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"dayone.dev/dayone/rebase/nodedisk"
	"dayone.dev/dayone/rebase/nodestate"
	"dayone.dev/dayone/rebase/target"
)

// Cluster is what the agent asks of the API; kubeapi.Client is one. Errors of an API that answered are Kubernetes' own.
type Cluster interface {
	OwnNode
	OwnRecord
	Configs
}

// OwnRecord is this node's MachineConfigNode, whose status is for people and other controllers.
type OwnRecord interface {
	// MachineConfigNode reads it; nil when nobody has made it yet.
	MachineConfigNode(ctx context.Context) (*mcfgv1.MachineConfigNode, error)
	// ApplyMachineConfigNode makes what of its status is the agent's what o says, and leaves what is others' (server-side
	// apply).
	ApplyMachineConfigNode(ctx context.Context, o *mcfgv1.MachineConfigNode) error
}

// OwnNode is this node's object; its spec and status are not needed.
type OwnNode interface {
	Node(ctx context.Context) (*metav1.PartialObjectMetadata, error)
	// PatchNode changes it by a JSON merge patch.
	PatchNode(ctx context.Context, patch []byte) (*metav1.PartialObjectMetadata, error)
}

// Configs are what nodes are to have.
type Configs interface {
	// ControllerConfig reads what every node of the cluster has beside its config; nil when there is none.
	ControllerConfig(ctx context.Context) (*mcfgv1.ControllerConfig, error)
	// Config reads a rendered config.
	Config(ctx context.Context, name string) (*mcfgv1.MachineConfig, error)
	// Policies reads the object with the admin's disruption policies; nil when there is none.
	Policies(ctx context.Context) (*opv1.MachineConfiguration, error)
}

// node is this node's object as it was read.
type node struct {
	object *metav1.PartialObjectMetadata
	record nodestate.Record
	// away says that the API does not answer: the record is what the disk says, and nothing is written.
	away bool
}

// target is what the annotations ask for.
func (n node) target() target.Target {
	return n.record.Desired()
}

func (a *Agent) node(ctx context.Context) (node, error) {
	object, err := a.o.Cluster.Node(ctx)
	a.seen.api(err)
	if err != nil {
		return a.without(err)
	}
	n := node{object: object}
	if n.record, err = nodestate.Parse(object.Annotations); err != nil {
		return n, fmt.Errorf("read node %s: %w", a.o.Node, err)
	}
	return n, nil
}

// without gives the node as the disk knows it, when the API is away and the state that the agent is in needs nobody's
// answer: what was begun is finished.
func (a *Agent) without(cause error) (node, error) {
	if !away(cause) || !a.journal.State.alone() {
		return node{}, cause
	}
	current, err := a.current()
	if err != nil {
		return node{}, errors.Join(cause, err)
	}
	to := a.journal.Target
	if a.journal.State == Idle {
		to = current.Target()
	}
	n := node{object: &metav1.PartialObjectMetadata{}, away: true}
	n.record = nodestate.Record{CurrentConfig: current.Config.Name, CurrentImage: current.Image,
		DesiredConfig: to.Config, DesiredImage: to.Image}
	return n, nil
}

// away tells that nobody answered, or only that the API cannot answer now; a refusal is an answer.
func away(err error) bool {
	var status apierrors.APIStatus
	if !errors.As(err, &status) {
		return err != nil
	}
	return apierrors.IsServerTimeout(err) || apierrors.IsServiceUnavailable(err) || apierrors.IsTooManyRequests(err) ||
		apierrors.IsInternalError(err) || apierrors.IsTimeout(err)
}

// tell changes the node's record by one patch, if it says something new. The patch changes no key but those that
// differ, so that what a controller writes meanwhile stays. What was told is in n's object then, for whoever tells more
// in the same step; what others wrote is not.
func (a *Agent) tell(ctx context.Context, n node, change func(*nodestate.Record)) error {
	if n.away {
		return nil
	}
	record, err := nodestate.Parse(n.object.Annotations)
	if err != nil {
		return fmt.Errorf("read record of node %s: %w", a.o.Node, err)
	}
	change(&record)
	changes, err := record.Patch(n.object.Annotations)
	if err != nil {
		return fmt.Errorf("change record of node %s: %w", a.o.Node, err)
	}
	if len(changes) == 0 {
		return nil
	}
	if err := a.patchAnnotations(ctx, changes); err != nil {
		return err
	}
	n.object.Annotations = nodestate.Apply(n.object.Annotations, changes)
	return nil
}

// working says what the agent is at. A node that has failed stays so until it gets further: the next attempt may fail
// in the same way.
func working(progress string) func(*nodestate.Record) {
	return func(r *nodestate.Record) {
		r.Progress = progress
		if !failed(r.State) {
			r.State, r.Reason = nodestate.StateWorking, ""
		}
	}
}

// further says that a node which had failed is on its way again.
func further(r *nodestate.Record) {
	if failed(r.State) {
		r.State, r.Reason = nodestate.StateWorking, ""
	}
}

func failed(s nodestate.State) bool {
	return s == nodestate.StateDegraded || s == nodestate.StateUnreconcilable
}

// patchAnnotations sets annotations of the node, or removes those that are nil.
func (a *Agent) patchAnnotations(ctx context.Context, changes map[string]*string) error {
	data, err := json.Marshal(map[string]any{"metadata": map[string]any{"annotations": changes}})
	if err != nil {
		return fmt.Errorf("encode patch: %w", err)
	}
	if _, err := a.o.Cluster.PatchNode(ctx, data); err != nil {
		return fmt.Errorf("write record of node %s: %w", a.o.Node, err)
	}
	return nil
}

// introduce writes the record of a node that the cluster sees for the first time: what its first boot left on disk.
func (a *Agent) introduce(ctx context.Context, n node) error {
	current, err := nodedisk.ReadCurrent(a.o.Root)
	if err != nil {
		return err
	}
	if current.Config == nil {
		return fmt.Errorf("introduce node %s: its first boot has left no %s/currentconfig: let dayone-firstboot finish",
			a.o.Node, nodedisk.Dir)
	}
	return a.tell(ctx, n, func(r *nodestate.Record) {
		r.CurrentConfig, r.CurrentImage = current.Config.Name, current.Image
		r.FirstPivotConfig = current.Config.Name
		if r.DesiredConfig == "" {
			r.DesiredConfig, r.DesiredImage = current.Config.Name, current.Image
		}
		r.State = nodestate.StateDone
	})
}

// current is what the node has; it is an error that it has nothing.
func (a *Agent) current() (nodedisk.Current, error) {
	c, err := nodedisk.ReadCurrent(a.o.Root)
	if err == nil && c.Config == nil {
		err = errors.New("the node's current config is gone from its disk")
	}
	return c, err
}

// systemctl runs the program of that name.
type systemctl struct{}

func (systemctl) Systemctl(ctx context.Context, args ...string) error {
	out, err := exec.CommandContext(ctx, "systemctl", args...).CombinedOutput()
	if err != nil {
		return fmt.Errorf("systemctl %s: %w: %s", strings.Join(args, " "), err, strings.TrimSpace(string(out)))
	}
	return nil
}
