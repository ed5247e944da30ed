package daemon

import (
	"context"
	"strings"

	"dayone.dev/dayone/manifests"
	"dayone.dev/dayone/rebase/firstboot"
)

// endBootstrapTrust removes the bootstrap registry's mirror, CA and credentials when the hand-over asks for it, and
// confirms it. No file of it is in an image or a rendered config, so nothing else changes. It may be done again.
func endBootstrapTrust(ctx context.Context, e *edges, n node) error {
	asked := n.object.Annotations[manifests.AnnotationEndTrust]
	if n.away || asked == "" || n.object.Annotations[manifests.AnnotationTrustEnded] == asked {
		return nil
	}
	changed, err := firstboot.EndTrust(e.root, strings.Split(asked, ",")...)
	if err != nil {
		return err
	}
	e.log.WithField("registry", asked).WithField("paths", changed).Info("trust in the bootstrap registry has ended")
	return e.record.annotate(ctx, map[string]*string{manifests.AnnotationTrustEnded: &asked})
}
