package daemon

import (
	"context"
	"strings"

	"dayone.dev/dayone/manifests"
	"dayone.dev/dayone/rebase/firstboot"
)

// endTrust forgets the bootstrap registry when the hand-over asks for it, and says so. No file of it is in an image or
// a rendered config, so nothing else changes. It may be done again.
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
	return a.patchAnnotations(ctx, map[string]*string{manifests.AnnotationTrustEnded: &asked})
}
