package buildcontroller

import (
	"context"
	"strings"

	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"

	"dayone.dev/dayone/build"
	"dayone.dev/dayone/build/decide"
	"dayone.dev/dayone/build/poolrequest"
)

// Reasons why there is no content address, or no build of it.
const (
	reasonPoolMissing    = "PoolMissing"
	reasonNotRendered    = "NotRendered"
	reasonSecretMissing  = "SecretMissing"
	reasonSecretUnusable = "SecretUnusable"
	reasonRegistry       = "RegistryUnavailable"
	reasonRegistryFull   = "RegistryFull"
)

// desired is the image that a MachineOSConfig needs now.
type desired struct {
	address, repository string
	// ground is the address without the rendered config.
	ground string
	// problem says why there is no address.
	problem *decide.Problem
	// rendered is the name of the rendered config.
	rendered string
	// request lacks the rendered config, which is large and read again when a build begins.
	request build.Request
}

func (d desired) content() content { return content{d.repository, d.address} }

// desiredKey changes whenever something may change that the request is made of.
type desiredKey struct {
	generation       int64
	rendered, images string
	release          string
	controller       types.UID
	controllerIs     int64
}

// remembered is a computed result: the address of a request costs a read and a hash of the whole rendered config.
type remembered struct {
	key     desiredKey
	desired desired
}

// findDesired computes what a MachineOSConfig needs. The error is the API's; what an admin can mend is a problem.
func findDesired(ctx context.Context, x scope, o observation) (desired, error) {
	if o.pool == nil {
		return withProblem(stalled(reasonPoolMissing,
			"there is no MachineConfigPool %q; create it, or delete this MachineOSConfig", o.poolName()))
	}
	rendered := o.pool.Spec.Configuration.Name
	if rendered == "" {
		return withProblem(waiting(0, reasonNotRendered, "pool %s has no rendered config yet", o.pool.Name))
	}
	cc, err := x.api.controllerConfig(ctx)
	if err != nil {
		return desired{}, err
	}
	release, err := x.api.releaseImage(ctx, cc, o.pool)
	if err != nil {
		return desired{}, err
	}
	images := poolrequest.BuiltImages(o.config, o.builds)
	key := desiredKey{generation: o.config.Generation, rendered: rendered, images: strings.Join(images, " "),
		release: release, controller: cc.UID, controllerIs: cc.Generation}
	if d, ok := x.memory.known(o.config.UID, key); ok {
		return d, nil
	}
	config, err := x.api.renderedConfig(ctx, rendered)
	if apierrors.IsNotFound(err) {
		return withProblem(waiting(0, reasonNotRendered, "the rendered config %s of pool %s does not exist yet", rendered,
			o.pool.Name))
	}
	if err != nil {
		return desired{}, err
	}
	base, err := baseImage(ctx, x.api, config, release, o.pool.Name, images)
	if err != nil {
		return desired{}, err
	}
	d, err := desiredOf(o.config, config, cc, base, x.o.Platform)
	if problemOf(err) != nil {
		d, err = withProblem(err)
	}
	if err == nil {
		x.memory.desired.Store(o.config.UID, remembered{key, d})
	}
	return d, err
}

func withProblem(err error) (desired, error) { return desired{problem: problemOf(err)}, nil }

// desiredOf makes the request and its address.
func desiredOf(mosc *mcfgv1.MachineOSConfig, config *mcfgv1.MachineConfig, cc *mcfgv1.ControllerConfig, base,
	platform string) (desired, error) {
	request, err := poolrequest.Of(mosc, config, cc, base, platform)
	if err != nil {
		return desired{}, err
	}
	d := desired{repository: request.Target, rendered: config.Name, request: request}
	d.request.Config = nil
	if d.address, err = request.Address(); err == nil {
		d.ground, err = request.Ground()
	}
	if f := build.AsFailure(err); f != nil {
		return d, stalled(poolrequest.ReasonInvalid, "%s; %s", f.Message, f.Next)
	}
	if err != nil {
		return d, stalled(poolrequest.ReasonInvalid, "%s", err)
	}
	return d, nil
}

// baseImage is the Base of a rendered config.
func baseImage(ctx context.Context, c api, config *mcfgv1.MachineConfig, release, pool string,
	built []string) (string, error) {
	url := config.Spec.OSImageURL
	if poolrequest.Base(url, release, "", built) == release {
		return release, nil
	}
	component, err := c.preBuiltComponent(ctx, pool)
	if err != nil {
		return "", err
	}
	return poolrequest.Base(url, release, component, built), nil
}
