package buildahengine

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/containers/image/v5/copy"
	"github.com/containers/image/v5/docker"
	"github.com/containers/image/v5/docker/reference"
	"github.com/containers/image/v5/manifest"
	"github.com/containers/image/v5/signature"
	imagestorage "github.com/containers/image/v5/storage"
	"github.com/containers/image/v5/types"
)

// push sends the image to the target by digest, without a tag: only the sealed image gets one. It gives the digest of
// what the registry has, which is not that of the local image: layers are packed on the way. The error is errRepacked
// when it packed one of the base's, too.
func push(ctx context.Context, s session, id string) (pushed string, err error) {
	named, err := reference.ParseNormalizedNamed(s.Job.Target)
	if err != nil {
		return "", fmt.Errorf("read target: %w", err)
	}
	target, err := docker.NewReferenceUnknownDigest(named)
	if err != nil {
		return "", fmt.Errorf("read target: %w", err)
	}
	source, err := imagestorage.Transport.ParseStoreReference(s.store, "@"+id)
	if err != nil {
		return "", fmt.Errorf("find built image: %w", err)
	}
	progress, done := make(chan types.ProgressProperties), make(chan struct{})
	go func() {
		defer close(done)
		countBytes(progress, s.send)
	}()
	raw, err := copyImage(ctx, s, target, source, &copy.Options{ReportWriter: s.out,
		ForceManifestMIMEType: manifestFormat(s.Job.Docker),
		Progress:              progress, ProgressInterval: progressInterval,
	})
	close(progress)
	<-done
	if err != nil {
		return "", err
	}
	if err := keptBase(s, id, raw); err != nil {
		return "", err
	}
	digest, err := manifest.Digest(raw)
	if err != nil {
		return "", fmt.Errorf("read pushed manifest: %w", err)
	}
	return digest.String(), nil
}

// copyImage is copy.Image under the engine's own policy and settings. It gives the manifest that the target has.
func copyImage(ctx context.Context, s session, target, source types.ImageReference, o *copy.Options) (raw []byte,
	err error) {
	policy, err := signature.NewPolicyFromFile(s.system.SignaturePolicyPath)
	if err != nil {
		return nil, fmt.Errorf("read policy: %w", err)
	}
	allow, err := signature.NewPolicyContext(policy)
	if err != nil {
		return nil, fmt.Errorf("read policy: %w", err)
	}
	defer func() { err = errors.Join(err, allow.Destroy()) }()
	o.SourceCtx, o.DestinationCtx = s.system, s.system
	return copy.Image(ctx, allow, target, source, o)
}

// progressInterval is often enough for a bar and rare enough for a log.
const progressInterval = 200 * time.Millisecond

// countBytes adds up what all blobs together have sent. Sizes are those before packing, as far as they are known.
func countBytes(progress <-chan types.ProgressProperties, send *sender) {
	sent, sizes := map[string]int64{}, map[string]int64{}
	for p := range progress {
		blob := p.Artifact.Digest.String()
		if p.Artifact.Size > 0 {
			sizes[blob] = p.Artifact.Size
		}
		switch p.Event {
		case types.ProgressEventSkipped, types.ProgressEventDone:
			sent[blob] = max(sizes[blob], int64(p.Offset))
		default:
			sent[blob] = int64(p.Offset)
		}
		m := message{Kind: kindBytes}
		for b, n := range sent {
			m.Bytes += n
			m.Total += max(sizes[b], n)
		}
		send.send(m)
	}
}
