package preflight

import (
	"dayone.dev/dayone/manifests"
	"dayone.dev/dayone/manifests/render/mirrors"
)

// RegistriesConf is a registries.conf with the mirrors that nodes get, for images that this host reads: those of
// install-config.yaml and of mirror sets in the install directory; nil without any.
func (in *Input) RegistriesConf() ([]byte, error) {
	if in.Set == nil {
		return nil, nil
	}
	// Only the mirrors: what nodes may not pull by the cluster's image settings, this host may import for them.
	files, _, err := mirrors.Files(&manifests.Set{IDMSs: in.Set.IDMSs, ICSPs: in.Set.ICSPs, ITMSs: in.Set.ITMSs})
	if err != nil || len(files) == 0 {
		return nil, err // what is refused is among the rendering's findings
	}
	return files[0].Data, nil
}
