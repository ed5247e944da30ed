package daemon

import (
	"context"
	"errors"
	"fmt"

	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	opv1 "github.com/openshift/api/operator/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// errUnanswered is in the error of a request that the API did not answer: no fault of the node, which goes on when it
// does.
var errUnanswered = errors.New("the API does not answer")

// reached is a cluster whose errors tell a request without an answer from a refusal.
type reached struct{ cluster Cluster }

func marked(err error) error {
	if err == nil || !away(err) {
		return err
	}
	return fmt.Errorf("%w: %w", errUnanswered, err)
}

func (r reached) Node(ctx context.Context) (*metav1.PartialObjectMetadata, error) {
	o, err := r.cluster.Node(ctx)
	return o, marked(err)
}

func (r reached) PatchNode(ctx context.Context, patch []byte) (*metav1.PartialObjectMetadata, error) {
	o, err := r.cluster.PatchNode(ctx, patch)
	return o, marked(err)
}

func (r reached) MachineConfigNode(ctx context.Context) (*mcfgv1.MachineConfigNode, error) {
	o, err := r.cluster.MachineConfigNode(ctx)
	return o, marked(err)
}

func (r reached) ApplyMachineConfigNode(ctx context.Context, o *mcfgv1.MachineConfigNode) error {
	return marked(r.cluster.ApplyMachineConfigNode(ctx, o))
}

func (r reached) ControllerConfig(ctx context.Context) (*mcfgv1.ControllerConfig, error) {
	o, err := r.cluster.ControllerConfig(ctx)
	return o, marked(err)
}

func (r reached) Config(ctx context.Context, name string) (*mcfgv1.MachineConfig, error) {
	o, err := r.cluster.Config(ctx, name)
	return o, marked(err)
}

func (r reached) Policies(ctx context.Context) (*opv1.MachineConfiguration, error) {
	o, err := r.cluster.Policies(ctx)
	return o, marked(err)
}
