package daemon

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os/exec"
	"strings"

	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"dayone.dev/dayone/rebase/nodedisk"
	"dayone.dev/dayone/rebase/nodestate"
)

// node is this node's object as it was read.
type node struct {
	object *corev1.Node
	record nodestate.Record
}

// target is what the annotations ask for.
func (n node) target() Target {
	return Target{Config: n.record.DesiredConfig, Image: n.record.DesiredImage}
}

func (a *Agent) node(ctx context.Context) (node, error) {
	var n node
	n.object = &corev1.Node{}
	if err := a.o.Client.Get(ctx, client.ObjectKey{Name: a.o.Node}, n.object); err != nil {
		return n, fmt.Errorf("read node %s: %w", a.o.Node, err)
	}
	var err error
	if n.record, err = nodestate.Parse(n.object.Annotations); err != nil {
		return n, fmt.Errorf("read node %s: %w", a.o.Node, err)
	}
	return n, nil
}

// tell changes the node's record by one patch, if it says something new. The patch changes no key but those that differ, so that what
// a controller writes meanwhile stays.
func (a *Agent) tell(ctx context.Context, n node, change func(*nodestate.Record)) error {
	record := n.record
	change(&record)
	if record == n.record {
		return nil
	}
	changes, err := record.Patch(n.object.Annotations)
	if err != nil {
		return fmt.Errorf("change record of node %s: %w", a.o.Node, err)
	}
	data, err := json.Marshal(map[string]any{"metadata": map[string]any{"annotations": changes}})
	if err != nil {
		return fmt.Errorf("encode patch: %w", err)
	}
	if err := a.o.Client.Patch(ctx, n.object.DeepCopy(), client.RawPatch(types.MergePatchType, data)); err != nil {
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
		return fmt.Errorf("introduce node %s: its first boot has left no %s/currentconfig: let dayone-firstboot finish", a.o.Node, nodedisk.Dir)
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

// config reads a rendered config from the cluster.
func (a *Agent) config(ctx context.Context, name string) (*mcfgv1.MachineConfig, error) {
	mc := &mcfgv1.MachineConfig{}
	if err := a.o.Client.Get(ctx, client.ObjectKey{Name: name}, mc); err != nil {
		return nil, fmt.Errorf("read rendered config %s: %w", name, err)
	}
	return mc, nil
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
