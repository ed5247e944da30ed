package preflight

import (
	"fmt"
	"os"
	"slices"

	"dayone.dev/dayone/build"
	"dayone.dev/dayone/manifests"
	"dayone.dev/dayone/manifests/render/mirrors"
	"dayone.dev/dayone/registry/credentials"
)

// Sources is how builds on this host reach the registries of images that a Containerfile names itself. The zero value
// asks them anonymously, and trusts the host's CAs.
type Sources struct {
	// Auth is in auth.json form, CA is PEM, RegistriesConf has mirrors.
	Auth, CA, RegistriesConf []byte
}

// Sources are those that the install directory gives a pool's build: the base image's pull Secret, and the pull secret,
// CAs and mirrors that the nodes get.
func (in *Input) Sources(p Pool) (s Sources, err error) {
	s.CA = in.Nodes.TrustBundle
	if s.Auth, err = merged(in.Nodes.PullSecret, p.BasePull); err != nil {
		return s, err
	}
	s.RegistriesConf, err = in.RegistriesConf()
	return s, err
}

// BasePull is with what the bootstrap reads the base image: the first pool's pull Secret, and for other registries
// install-config.yaml's pull secret; nil without any.
func (in *Input) BasePull() ([]byte, error) {
	for _, p := range in.Pools {
		if p.BasePull != nil {
			return merged(in.Nodes.PullSecret, p.BasePull)
		}
	}
	return in.Nodes.PullSecret, nil
}

// RegistriesConf is a registries.conf with the mirrors that nodes get, for images that this host reads: those of
// install-config.yaml and of mirror sets in the install directory; nil without any.
func (in *Input) RegistriesConf() ([]byte, error) {
	if in.Set == nil {
		return nil, nil
	}
	// Only the mirrors: what nodes may not pull by the cluster's image settings, this host may import for them.
	files, _, err := mirrors.Files(&manifests.Set{IDMSs: in.Set.IDMSs, ICSPs: in.Set.ICSPs, ITMSs: in.Set.ITMSs}, nil)
	if err != nil || len(files) == 0 {
		return nil, err // what is refused is among the rendering's findings
	}
	return files[0].Data, nil
}

// merged merges credentials; of one registry the later ones count.
func merged(list ...[]byte) (out []byte, err error) {
	for _, auth := range list {
		if len(auth) == 0 {
			continue
		}
		if out, err = credentials.Merge(out, auth); err != nil {
			return nil, fmt.Errorf("merge credentials for builds: %w", err)
		}
	}
	return out, nil
}

// Over adds these sources to those of the host: of one registry these count.
func (s Sources) Over(host Sources) (Sources, error) {
	auth, err := merged(host.Auth, s.Auth)
	if len(s.RegistriesConf) == 0 {
		s.RegistriesConf = host.RegistriesConf
	}
	return Sources{Auth: auth, CA: slices.Concat(host.CA, s.CA), RegistriesConf: s.RegistriesConf}, err
}

// Access adds own, which reaches a build's own registry, and writes both into files of dir whose names begin with name.
// registriesConf is empty without mirrors.
func (s Sources) Access(own build.Access, dir, name string) (a build.Access, registriesConf string, err error) {
	if len(s.Auth)+len(s.CA)+len(s.RegistriesConf) == 0 {
		return own, "", nil
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return a, "", fmt.Errorf("make directory for a build's credentials: %w", err)
	}
	read := func(file string) (raw []byte) {
		if file != "" && err == nil {
			raw, err = os.ReadFile(file)
		}
		return raw
	}
	ownAuth, ownCA := read(own.AuthFile), read(own.CAFile)
	if err != nil {
		return a, "", fmt.Errorf("read how a build reaches its registry: %w", err)
	}
	auth, err := merged(s.Auth, ownAuth)
	if err != nil {
		return a, "", err
	}
	if a.AuthFile, err = credentials.File(dir, name+"-auth.json", auth); err != nil {
		return a, "", err
	}
	if a.CAFile, err = credentials.File(dir, name+"-ca.pem", slices.Concat(ownCA, s.CA)); err != nil {
		return a, "", err
	}
	registriesConf, err = credentials.File(dir, name+"-registries.conf", s.RegistriesConf)
	return a, registriesConf, err
}
