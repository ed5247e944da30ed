package preview

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strings"

	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"

	"dayone.dev/dayone/bootstrap/preflight"
	"dayone.dev/dayone/build"
	"dayone.dev/dayone/installconfig"
	"dayone.dev/dayone/manifests"
	"dayone.dev/dayone/rebase/disruption"
	"dayone.dev/dayone/rebase/target"
)

// identify gives the pool's image a name by what it is built of, and a build by which two such images are compared, as
// the cluster does.
func (p *Pool) identify(in *preflight.Input, l preflight.Pool, base string) error {
	// The release's extensions go with its OS image.
	cc := in.ControllerConfig().DeepCopy()
	cc.BaseOSExtensionsContainerImage = cmp.Or(cc.BaseOSExtensionsContainerImage, base)
	extensions := build.ExtensionsImage(p.config, cc, l.Containerfile)
	request, err := build.NewRequest(build.Spec{Pool: p.Name, Config: p.config, Controller: cc, Base: base,
		Copies:        map[string]string{base: byDigest(base), extensions: byDigest(extensions)},
		Containerfile: l.Containerfile, Target: l.Repository})
	if err != nil {
		return err
	}
	address, err := request.Address()
	if err != nil {
		return err
	}
	ground, err := request.Ground()
	if err != nil {
		return err
	}
	p.state.Image = l.Repository + "#" + address[:addressDigits]
	p.build.Name = p.state.Image
	p.build.Annotations = map[string]string{manifests.AnnotationBuildAddress: address,
		manifests.AnnotationBuildGround: ground}
	p.build.Status.DigestedImagePushSpec = mcfgv1.ImageDigestFormat(p.state.Image)
	return nil
}

// addressDigits are enough of a content address for people to tell two images of a pool apart.
const addressDigits = 12

// byDigest gives a reference by digest. A tag's digest is known to the bootstrap host only: equal tags are taken for
// equal images.
func byDigest(reference string) string {
	if strings.Contains(reference, "@") {
		return reference
	}
	sum := sha256.Sum256([]byte(reference))
	return installconfig.Repository(reference) + "@sha256:" + hex.EncodeToString(sum[:])
}

// Change foresees what happens to the nodes of a pool that were installed as before says when they are to be as p says.
// It is false for a pool that before has not.
func (p *Plan) Change(pool string, before *Plan, s disruption.Settings) (disruption.Foreseen, bool, error) {
	is, found := p.Pool(pool)
	was, had := before.Pool(pool)
	if !found || !had {
		return disruption.Foreseen{}, false, nil
	}
	configs := map[string]*mcfgv1.MachineConfig{was.state.Config: was.config, is.state.Config: is.config}
	out, err := disruption.ForPool(map[string]target.Target{"": was.state}, disruption.Foresight{Target: is.state,
		Settings: s,
		Builds:   []mcfgv1.MachineOSBuild{was.build, is.build}, Config: func(name string) (*mcfgv1.MachineConfig,
			error) {
			return configs[name], nil
		}})
	if err != nil {
		return out, true, fmt.Errorf("foresee pool %s: %w", pool, err)
	}
	ways := out.Plan.Transitions
	for i := range ways {
		ways[i].Nodes, ways[i].Names = is.Nodes, []string{}
	}
	out.Plan, out.Nodes = disruption.NewPoolPlan(is.state, ways), nil
	return out, true, nil
}
