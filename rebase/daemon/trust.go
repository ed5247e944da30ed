package daemon

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"

	"dayone.dev/dayone/manifests"
	"dayone.dev/dayone/rebase/firstboot"
)

// endTrust forgets the bootstrap registry when the hand-over asks for it, and says so. No file of it is in an image or a rendered config,
// so nothing else changes. It may be done again.
func (a *Agent) endTrust(ctx context.Context, n node) error {
	asked := n.object.Annotations[manifests.AnnotationEndTrust]
	if n.away || asked == "" || n.object.Annotations[manifests.AnnotationTrustEnded] == asked {
		return nil
	}
	changed, err := firstboot.EndTrust(a.o.Root, strings.Split(asked, ",")...)
	if err != nil {
		return err
	}
	a.o.Log.WithField("registry", asked).WithField("paths", changed).Info("trust in the bootstrap registry has ended")
	data, err := json.Marshal(map[string]any{"metadata": map[string]any{"annotations": map[string]string{manifests.AnnotationTrustEnded: asked}}})
	if err != nil {
		return fmt.Errorf("encode patch: %w", err)
	}
	if _, err := a.o.Cluster.PatchNode(ctx, data); err != nil {
		return fmt.Errorf("say that trust has ended: %w", err)
	}
	return nil
}
