package deploy

import (
	"strings"

	"github.com/containers/image/v5/manifest"
	"github.com/opencontainers/go-digest"
)

// prune drops the names of images that no deployment was made from, and of layers that no remaining image has. Their
// content goes with ostree's next cleanup, at the latest with the next deployment. It does nothing when one image does
// not tell its layers.
func (r repository) prune(deployed map[string]bool) error {
	unlock, err := r.lock()
	if err != nil {
		return err
	}
	defer unlock()
	refs, err := r.refs()
	if err != nil {
		return err
	}
	keep, drop := map[string]bool{}, []string{}
	for ref := range refs {
		if !strings.HasPrefix(ref, imagePrefix) {
			continue
		}
		commit, err := r.resolve(ref)
		if err != nil {
			return err
		}
		if !deployed[commit] {
			drop = append(drop, ref)
			continue
		}
		layers, err := r.layersOf(commit)
		if err != nil {
			return err
		}
		if len(layers) == 0 {
			return nil
		}
		for _, l := range layers {
			keep[layerRef(l)] = true
		}
	}
	if len(keep) == 0 {
		return nil // a system whose deployments came from no image
	}
	for ref := range refs {
		if strings.HasPrefix(ref, layerPrefix) && !keep[ref] {
			drop = append(drop, ref)
		}
	}
	objects, err := r.open()
	if err != nil {
		return err
	}
	return objects.DeleteRefs(drop...)
}

// layersOf reads the layers of an image commit; none when the commit does not tell.
func (r repository) layersOf(commit string) ([]digest.Digest, error) {
	metadata, err := r.metadata(commit)
	raw := metadata[metaManifest]
	if err != nil || raw == "" {
		return nil, err
	}
	m, err := manifest.FromBlob([]byte(raw), manifest.GuessMIMEType([]byte(raw)))
	if err != nil {
		return nil, nil //nolint:nilerr // another program's commit: it does not tell
	}
	var layers []digest.Digest
	for _, l := range m.LayerInfos() {
		layers = append(layers, l.Digest)
	}
	return layers, nil
}
