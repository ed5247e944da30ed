package openshift

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"dayone.dev/dayone/manifests"
	"dayone.dev/dayone/registry/imagecopy"
)

// PushImages copies every image that was built here to its final repository, byte for byte, with the push Secret of its MachineOSConfig, and
// gives the first failure. What is there already is not sent again. caFile signs the final registries beside the host's authorities.
func PushImages(ctx context.Context, o Outcome, caFile string) error {
	scratch, err := os.MkdirTemp("", "dayone-push-")
	if err != nil {
		return fmt.Errorf("push images: %w", err)
	}
	defer os.RemoveAll(scratch) //nolint:errcheck // in the system's temporary directory
	for _, item := range o.Set.MachineOSConfigs {
		pool := item.Object.Spec.MachineConfigPool.Name
		built := o.Built[pool]
		if built == nil {
			continue
		}
		auth := filepath.Join(scratch, pool+".json")
		if err := os.WriteFile(auth, pushAuth(o.Set, item.Object.Spec.RenderedImagePushSecret.Name), 0o600); err != nil {
			return fmt.Errorf("push image of pool %s: %w", pool, err)
		}
		from := imagecopy.Endpoint{Reference: "docker://" + built.Reference, CAFile: o.CAFile, AuthFile: o.AuthFile}
		to := imagecopy.Endpoint{Reference: "docker://" + string(item.Object.Spec.RenderedImagePushSpec), CAFile: caFile, AuthFile: auth}
		done, err := imagecopy.Copy(ctx, from, to, imagecopy.Options{TempDir: scratch})
		if err != nil {
			return fmt.Errorf("push image of pool %s to %s: %w", pool, item.Object.Spec.RenderedImagePushSpec, err)
		}
		if got := done.Digest.String(); got != built.Digest {
			return fmt.Errorf("push image of pool %s: %s arrived as %s", pool, built.Digest, got)
		}
	}
	return nil
}

func pushAuth(set *manifests.Set, name string) []byte {
	for _, s := range set.Secrets {
		if s.Object.Name != name {
			continue
		}
		if raw := s.Object.Data[corev1.DockerConfigJsonKey]; len(raw) > 0 {
			return raw
		}
		return []byte(strings.TrimSpace(s.Object.StringData[corev1.DockerConfigJsonKey]))
	}
	return []byte(`{"auths":{}}`)
}
