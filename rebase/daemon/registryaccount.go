package daemon

import (
	"context"
	"path/filepath"

	"github.com/sirupsen/logrus"

	"dayone.dev/dayone/manifests"
	"dayone.dev/dayone/registry/certs"
	"dayone.dev/dayone/registry/peers"
	"dayone.dev/dayone/registry/poolaccounts"
)

// registryAccount keeps the account of the node's pool at the registries of the control plane on the node, and on a
// control-plane node what its registry shares with the others. The controller seals both for the node's key and
// replaces them; they are in no image.
type registryAccount struct {
	root, node string
	log        *logrus.Entry
	own        *poolaccounts.Node
}

// settle takes what the controller has sealed, and says which account the node uses and which CAs it trusts. What fails
// is tried again when the agent looks next: the node goes on with the account that it has.
func (a *registryAccount) settle(ctx context.Context, w recordWriter, n node) {
	if n.away {
		return
	}
	if err := a.follow(ctx, w, n); err != nil {
		a.log.WithError(err).Warn("cannot take over the node's account at the registries of the control plane")
	}
}

func (a *registryAccount) follow(ctx context.Context, w recordWriter, n node) (err error) {
	if a.own == nil {
		if a.own, err = poolaccounts.OpenNode(a.root, a.node); err != nil {
			return err
		}
	}
	sealed := n.object.Annotations[manifests.AnnotationRegistryAccount]
	took, err := a.own.Take(poolaccounts.Read[poolaccounts.Sealed](sealed))
	if err != nil {
		return err
	}
	if took {
		a.log.Info("the node has another account at the registries of the control plane")
	}
	shared := n.object.Annotations[manifests.AnnotationRegistryShared]
	took, sharedErr := a.own.TakeShared(a.root, poolaccounts.Read[poolaccounts.Sealed](shared))
	if took {
		a.log.Info("the node's registry has other accounts of its own, or another CA")
	}
	if sharedErr != nil { // the account does not depend on it
		a.log.WithError(sharedErr).Warn("cannot take over what the registries of the control plane share")
	}
	says := a.own.Word()
	if list, err := peers.Read(filepath.Join(a.root, peers.Path)); err == nil { // else it knows no registry
		says.Trusts = certs.Trusts(a.root, list.Registry)
	}
	word, err := poolaccounts.Annotation(says)
	if err != nil {
		return err
	}
	return w.say(ctx, n.object.Annotations, map[string]string{manifests.AnnotationRegistryKey: word})
}
