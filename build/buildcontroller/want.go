package buildcontroller

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"
	"sync"

	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"dayone.dev/dayone/build"
	"dayone.dev/dayone/build/decide"
	"dayone.dev/dayone/build/job"
	"dayone.dev/dayone/installconfig"
	"dayone.dev/dayone/manifests"
	"dayone.dev/dayone/manifests/render"
)

// Reasons why there is no content address.
const (
	ReasonPoolMissing    = "PoolMissing"
	ReasonNotRendered    = "NotRendered"
	ReasonBaseMissing    = "BaseImageMissing"
	ReasonPushSpec       = "PushSpecUnusable"
	ReasonInvalidRequest = "InvalidRequest"
	ReasonSecretMissing  = "SecretMissing"
	ReasonSecretUnusable = "SecretUnusable"
	ReasonRegistry       = "RegistryUnavailable"
)

// wanted is what a MachineOSConfig asks for.
type wanted struct {
	address, repository string
	// ground is the address without the rendered config.
	ground  string
	problem *decide.Problem
	// config is the rendered config's name.
	config string
	// request lacks the rendered config, which is large and read again when a build begins.
	request build.Request
}

// wishes remembers what was computed: the address of a request costs a read and a hash of the whole rendered config.
type wishes struct {
	mu    sync.Mutex
	byKey map[types.UID]wish
	// images are the osImageURLs of rendered configs, whose content never changes under a name.
	images map[string]string
}

type wish struct {
	key    string
	wanted wanted
}

func newWishes() *wishes {
	return &wishes{byKey: map[types.UID]wish{}, images: map[string]string{}}
}

func problem(reason, format string, args ...any) wanted {
	return wanted{problem: &decide.Problem{Reason: reason, Message: fmt.Sprintf(format, args...)}}
}

func waiting(reason, format string, args ...any) wanted {
	w := problem(reason, format, args...)
	w.problem.Waits = true
	return w
}

// want finds out what a MachineOSConfig asks for. The error is one of the API's; what the admin can mend is a problem.
func (r *Reconciler) want(ctx context.Context, mosc *mcfgv1.MachineOSConfig, pool *mcfgv1.MachineConfigPool,
	own []*mcfgv1.MachineOSBuild) (wanted, error) {
	if pool == nil {
		return problem(ReasonPoolMissing, "there is no MachineConfigPool %q; make it, or delete this MachineOSConfig",
			mosc.Spec.MachineConfigPool.Name), nil
	}
	rendered := pool.Spec.Configuration.Name
	if rendered == "" {
		return waiting(ReasonNotRendered, "pool %s has no rendered config yet", pool.Name), nil
	}
	var cc mcfgv1.ControllerConfig
	if err := r.client.Get(ctx, client.ObjectKey{Name: render.ControllerConfigName},
		&cc); client.IgnoreNotFound(err) != nil {
		return wanted{}, fmt.Errorf("read ControllerConfig: %w", err)
	}
	images := imagesOf(mosc, own)
	key := r.wishKey(mosc, rendered, &cc, images)
	if known, ok := r.wishes.get(mosc.UID, key); ok {
		return known, nil
	}
	config, err := r.rendered(ctx, rendered)
	if apierrors.IsNotFound(err) {
		return waiting(ReasonNotRendered, "the rendered config %s of pool %s does not exist yet", rendered, pool.Name), nil
	}
	if err != nil {
		return wanted{}, err
	}
	base := cc.Spec.BaseOSContainerImage
	if asked := config.Spec.OSImageURL; asked != "" && asked != base {
		built, err := r.builtForPool(ctx, asked, pool.Name, images)
		if err != nil {
			return wanted{}, err
		}
		if !built {
			base = asked
		}
	}
	w := r.ask(mosc, config, &cc, base)
	w.config = rendered
	w.request.Config = nil
	r.wishes.put(mosc.UID, key, w)
	return w, nil
}

func (r *Reconciler) rendered(ctx context.Context, name string) (*mcfgv1.MachineConfig, error) {
	var config mcfgv1.MachineConfig
	if err := r.live.Get(ctx, client.ObjectKey{Name: name}, &config); err != nil {
		return nil, fmt.Errorf("read rendered config %s: %w", name, err)
	}
	r.wishes.image(name, config.Spec.OSImageURL)
	return &config, nil
}

// wishKey changes whenever something may change that the request is made of.
func (r *Reconciler) wishKey(mosc *mcfgv1.MachineOSConfig, rendered string, cc *mcfgv1.ControllerConfig,
	images []string) string {
	h := sha256.New()
	for _, s := range []string{rendered, fmt.Sprint(mosc.Generation), strings.Join(images, " "),
		cc.Spec.BaseOSContainerImage,
		cc.Spec.BaseOSExtensionsContainerImage, string(cc.Spec.AdditionalTrustBundle), r.o.Platform,
		fmt.Sprint(proxies(cc))} {
		fmt.Fprintf(h, "%d %s\n", len(s), s)
	}
	return hex.EncodeToString(h.Sum(nil))
}

func (w *wishes) get(uid types.UID, key string) (wanted, bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	known, ok := w.byKey[uid]
	return known.wanted, ok && known.key == key
}

func (w *wishes) put(uid types.UID, key string, v wanted) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.byKey[uid] = wish{key, v}
}

func (w *wishes) forget(uid types.UID) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.byKey, uid)
}

func (w *wishes) image(rendered, image string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.images[rendered] = image
}

// ask makes the request of what the objects say and its address.
func (r *Reconciler) ask(mosc *mcfgv1.MachineOSConfig, config *mcfgv1.MachineConfig, cc *mcfgv1.ControllerConfig,
	base string) wanted {
	request, no := RequestOf(mosc, config, cc, base, r.o.Platform)
	if no != nil {
		return wanted{problem: no}
	}
	address, err := request.Address()
	ground := ""
	if err == nil {
		ground, err = request.Ground()
	}
	if err != nil {
		message := err.Error()
		if f := build.AsFailure(err); f != nil {
			message = f.Message + "; " + f.Next
		}
		return problem(ReasonInvalidRequest, "%s", message)
	}
	return wanted{address: address, ground: ground, repository: request.Target, request: request}
}

// RequestOf is the build that a MachineOSConfig asks for with a rendered config on a base image, or why there is none.
// Credentials and limits are the Job's.
func RequestOf(mosc *mcfgv1.MachineOSConfig, config *mcfgv1.MachineConfig, cc *mcfgv1.ControllerConfig, base,
	platform string) (build.Request, *decide.Problem) {
	refused := func(reason, format string, args ...any) (build.Request, *decide.Problem) {
		return build.Request{}, problem(reason, format, args...).problem
	}
	repository := installconfig.Repository(string(mosc.Spec.RenderedImagePushSpec))
	if rule := digestForm(repository); rule != "" {
		return refused(ReasonPushSpec, "spec.renderedImagePushSpec %s: %s; the API would refuse the finished image",
			mosc.Spec.RenderedImagePushSpec, rule)
	}
	if base == "" {
		return refused(ReasonBaseMissing,
			"neither the rendered config %s nor the ControllerConfig names a base image; set osImageURL in a MachineConfig",
			config.Name)
	}
	_, architecture, _ := strings.Cut(platform, "/")
	text, err := job.Containerfile(mosc, architecture)
	if err != nil {
		return refused(ReasonInvalidRequest, "%s", err)
	}
	request, err := build.NewRequest(build.Spec{
		Pool: mosc.Spec.MachineConfigPool.Name, Config: config, Controller: &cc.Spec, Base: base, Platform: platform,
		Containerfile: text, ContainerfileName: "MachineOSConfig " + mosc.Name, Target: repository,
		Options: build.Options{ProxyEnvironment: proxies(cc)},
	})
	if err != nil {
		return refused(ReasonInvalidRequest, "%s", err)
	}
	return request, nil
}

// proxies are the cluster's: build pods and their RUN reach the network as nodes do.
func proxies(cc *mcfgv1.ControllerConfig) map[string]string {
	if p := cc.Spec.Proxy; p != nil {
		return build.Proxies(p.HTTPProxy, p.HTTPSProxy, p.NoProxy)
	}
	return nil
}

// imagesOf are the images that were built for the pool, as far as its objects know them, sorted.
func imagesOf(mosc *mcfgv1.MachineOSConfig, own []*mcfgv1.MachineOSBuild) []string {
	images := []string{mosc.Annotations[manifests.AnnotationPreBuiltImage], string(mosc.Status.CurrentImagePullSpec)}
	for _, b := range own {
		images = append(images, string(b.Status.DigestedImagePushSpec))
	}
	slices.Sort(images)
	return slices.Compact(images)
}

// builtForPool tells whether an image that a rendered config names is no base: the image that was built for the pool
// and that its nodes were installed with stands in osImageURL too, by way of a MachineConfig of its own, and outlives
// the MachineOSConfig there.
func (r *Reconciler) builtForPool(ctx context.Context, image, pool string, images []string) (bool, error) {
	if slices.Contains(images, image) {
		return true, nil
	}
	var component mcfgv1.MachineConfig
	err := r.live.Get(ctx, client.ObjectKey{Name: manifests.PreBuiltComponentPrefix + pool}, &component)
	if client.IgnoreNotFound(err) != nil {
		return false, fmt.Errorf("read MachineConfig of the pre-built image: %w", err)
	}
	return err == nil && component.Spec.OSImageURL == image, nil
}

func first(values ...string) string {
	for _, v := range values {
		if v != "" {
			return v
		}
	}
	return ""
}

// digestForm says why a repository cannot stand before a digest in the API (openshift/api machineconfiguration/v1,
// ImageDigestFormat: a dotted host, at most one namespace); empty means that it can.
func digestForm(repository string) string {
	host, path, ok := strings.Cut(repository, "/")
	switch parts := strings.Split(path, "/"); {
	case !ok || !strings.Contains(host, "."):
		return "the registry's name needs a dot in it"
	case len(parts) > 2:
		return "more than one namespace before the name"
	case len(parts) == 2 && strings.Contains(parts[0], "."):
		return "a dot in the namespace"
	}
	return ""
}
