package servecontroller

import (
	"bytes"
	"fmt"
	"path"
	"slices"
	"strings"

	ign35 "github.com/coreos/ignition/v2/config/v3_5/types"
	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	corev1 "k8s.io/api/core/v1"

	"dayone.dev/dayone/manifests/machineconfig"
	"dayone.dev/dayone/rebase/daemon/mirrorfiles"
	"dayone.dev/dayone/rebase/nodedisk"
	"dayone.dev/dayone/rebase/rollout"
	"dayone.dev/dayone/registry/credentials"
	"dayone.dev/dayone/registry/peers"
)

// clusterRegistry is how new nodes reach the registries of the control plane until their agent runs.
type clusterRegistry struct {
	list peers.List
	// ca has their authorities in PEM; empty: the node's own count.
	ca []byte
}

// findRegistry reads where the registries are. Without any the images' own registry is asked.
func (r *Reconciler) findRegistry(nodes []corev1.Node, controllers []mcfgv1.ControllerConfig) clusterRegistry {
	if r.o.Registry == "" {
		return clusterRegistry{}
	}
	list := rollout.RegistryPeers(r.o.Registry, nodes)
	if err := list.Validate(); err != nil {
		r.o.Log.WithError(err).Warn("new nodes get no addresses of the control plane's registries")
		return clusterRegistry{}
	}
	out := clusterRegistry{list: list}
	for i := range controllers {
		s := &controllers[i].Spec
		out.ca = append(out.ca, s.AdditionalTrustBundle...)
		for _, b := range slices.Concat(s.ImageRegistryBundleData, s.ImageRegistryBundleUserData) {
			if strings.ReplaceAll(b.File, "..", ":") == r.o.Registry {
				out.ca = append(append(bytes.TrimSpace(out.ca), '\n'), b.Data...)
			}
		}
	}
	return out
}

// has tells whether an image is one of theirs.
func (c clusterRegistry) has(image string) bool {
	return len(c.list.Peers) > 0 && strings.HasPrefix(image, c.list.Registry+"/")
}

// account is that of a pull secret at the images' registry, for its name and for each address; nil: there is none.
func (c clusterRegistry) account(auth []byte, image string) ([]byte, error) {
	accounts, err := credentials.Parse(auth)
	if err != nil {
		return nil, err
	}
	repository, _, _ := strings.Cut(image, "@")
	account, found, err := accounts.Find(repository)
	if err != nil || !found {
		return nil, err
	}
	return credentials.Encode(account, append(c.addresses(), c.list.Registry)...)
}

func (c clusterRegistry) addresses() []string {
	out := make([]string, len(c.list.Peers))
	for i, p := range c.list.Peers {
		out[i] = p.Address
	}
	return out
}

// choices are what new nodes get: all have the addresses, each begins with another one. Nothing of it is in an image
// or a config, so a control-plane node that comes or goes changes nothing on nodes that are there.
func (c clusterRegistry) choices() ([]ign35.Config, error) {
	list, err := c.list.Encode()
	if err != nil {
		return nil, err
	}
	fixed := []ign35.File{nodeFile(peers.Path, list)}
	if len(c.ca) > 0 { // for images of pods, which kubelet pulls by name; the agent's file from its first look on
		fixed = append(fixed, nodeFile(path.Join(nodedisk.RegistryCerts, c.list.Registry, "ca.crt"), c.ca))
	}
	addresses := c.addresses()
	for _, address := range addresses {
		if len(c.ca) > 0 {
			fixed = append(fixed, nodeFile(mirrorfiles.CAPath(address), c.ca))
		}
	}
	var out []ign35.Config
	for i := range addresses {
		order := slices.Concat(addresses[i:], addresses[:i])
		files := append(slices.Clone(fixed), nodeFile(mirrorfiles.DropInPath,
			mirrorfiles.DropIn(c.list.Registry, order...)))
		out = append(out, ign35.Config{Ignition: ign35.Ignition{Version: ign35.MaxVersion.String()},
			Storage: ign35.Storage{Files: files}})
	}
	return out, nil
}

func nodeFile(path string, content []byte) ign35.File {
	mode, overwrite := 0o644, true
	return ign35.File{Node: ign35.Node{Path: path, Overwrite: &overwrite},
		FileEmbedded1: ign35.FileEmbedded1{Mode: &mode, Contents: machineconfig.Inline(content)}}
}

// dressed gives a pool's additions the way to the registries, where its image is theirs.
func (r *Reconciler) dressed(image string, c clusterRegistry) (addition ign35.Config, choices []ign35.Config,
	err error) {
	o := *r.o.FirstBoot
	o.PullAuth = *r.pullAuth.Load()
	if c.has(image) {
		if o.RegistryAccount, err = c.account(o.PullAuth, image); err == nil {
			// An agent of an earlier dayone, which a disk image may have, knows the pull secret only.
			o.PullAuth, err = credentials.Merge(o.PullAuth, o.RegistryAccount)
		}
		if err == nil {
			choices, err = c.choices()
		}
		if err != nil {
			return addition, nil, fmt.Errorf("let new nodes reach the control plane's registries: %w", err)
		}
	}
	addition, err = r.firstBoot(image, o)
	return addition, choices, err
}
