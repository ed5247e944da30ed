package handover

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	corev1 "k8s.io/api/core/v1"

	"dayone.dev/dayone/build"
	"dayone.dev/dayone/build/machineosbuild"
	"dayone.dev/dayone/installconfig"
	"dayone.dev/dayone/manifests"
	"dayone.dev/dayone/manifests/assets/cluster"
	"dayone.dev/dayone/manifests/render"
	"dayone.dev/dayone/registry/credentials"
)

// Plan is what a bootstrap host hands over.
type Plan struct {
	// Registry is the bootstrap host's registry as the nodes know it, HOST:PORT.
	Registry string `json:"registry"`
	// Platform of the images, os/architecture.
	Platform string `json:"platform"`
	// Images are those that the host built or imported and that objects refer to.
	Images []Image `json:"images"`
	// Pools are all that were rendered.
	Pools []Pool `json:"pools"`
	// FinalCA is PEM of CAs that sign the final registries, beside the host's. Empty: none.
	FinalCA string `json:"finalCA,omitempty"`
	// ClusterRegistry is HOST:PORT in the names of images that the registries of the cluster's own control-plane nodes are
	// to hold; empty: the final registries are elsewhere.
	ClusterRegistry string `json:"clusterRegistry,omitempty"`
	// Policy and Deadline are the user's; empty: the defaults of Options.
	Policy   Policy                 `json:"policy,omitempty"`
	Deadline installconfig.Duration `json:"deadline,omitempty"`
	// Controllers says who takes over in the cluster; empty: dayone's.
	Controllers Controllers `json:"controllers,omitempty"`
	// KeepTrust leaves on the nodes what makes them trust the bootstrap registry: where it is part of their rendered
	// config.
	KeepTrust bool `json:"keepTrust,omitempty"`

	// Set holds the objects that were rendered from, Secrets included.
	Set *manifests.Set `json:"-"`
	// Rendered are the rendered configs, and Filled the pools that name them.
	Rendered []*mcfgv1.MachineConfig     `json:"-"`
	Filled   []*mcfgv1.MachineConfigPool `json:"-"`
	// Components are the MachineConfigs that rendering made itself for pre-built images.
	Components []*mcfgv1.MachineConfig `json:"-"`
}

// Image is one image that must be in its final registry.
type Image struct {
	// Repository is the final one, host[:port][/namespace]/name; in the bootstrap registry the path behind the host is the
	// same.
	Repository string `json:"repository"`
	Digest     string `json:"digest"`
	// Tags keep the final registry from collecting the image as one without a name.
	Tags []string `json:"tags"`
	// Secret that may push there, by name in the set; the first one that has credentials for the repository. Empty:
	// anonymous.
	Secret string `json:"secret,omitempty"`
}

// Reference names the image in its final registry by digest.
func (i Image) Reference() string { return i.Repository + "@" + i.Digest }

// Pool is what the nodes of a pool were installed as.
type Pool struct {
	Name string `json:"name"`
	// Config is the rendered config's name.
	Config string `json:"config"`
	// Image is the one that was built here, by its final name and digest; empty: the cluster builds it, or the pool is not
	// layered.
	Image string `json:"image,omitempty"`
	// Address is the content address of that build, Ground the address without the rendered config.
	Address string `json:"address,omitempty"`
	Ground  string `json:"ground,omitempty"`
	// Kernels are the names of the image's kernels, with commas between them.
	Kernels string `json:"kernels,omitempty"`
	// OSImageURL says that no MachineOSConfig stands for the image in the cluster: the nodes know it as their config's
	// osImageURL only.
	OSImageURL bool `json:"osImageURL,omitempty"`
	// Nodes is how many nodes must have joined before the bootstrap host may go.
	Nodes int `json:"nodes,omitempty"`
}

// BuildName is the name of the MachineOSBuild that stands for the build on the bootstrap host.
func (p Pool) BuildName() string { return machineosbuild.Name(p.Name, p.Address) }

// maxTag is the OCI distribution specification's bound on a tag.
const maxTag = 128

// tag keeps the image as long as its MachineOSBuild is there; no other build takes it.
func (p Pool) tag() string {
	const end = "-day1"
	return manifests.Shorten(p.BuildName(), maxTag-len(end)) + end
}

// Outcome is what a bootstrap host knows when it has rendered for the last time.
type Outcome struct {
	Registry, Platform string
	// Base is the base image by its final name and digest.
	Base string
	// Set is what was rendered last, and Result what came of it.
	Set    *manifests.Set
	Result *render.Result
	// Built are the images by pool.
	Built map[string]Built
	// Nodes is how many nodes a pool must have; default 1 where an image was built.
	Nodes map[string]int
	// OSImageURL as in Pool, for all pools; Controllers and KeepTrust as in Plan.
	OSImageURL  bool
	Controllers Controllers
	KeepTrust   bool
	// FinalCA is PEM of CAs that sign the final registries; empty: none.
	FinalCA string
	// ClusterRegistry as in Plan.
	ClusterRegistry string
	// HandOver is the user's policy.
	HandOver installconfig.HandOver
}

// Built is an image that the bootstrap host has built.
type Built struct {
	*build.Result
	// Repository is the final one, Ground the content address without the rendered config.
	Repository, Ground string
}

// Make plans. It fails for what could never be handed over.
func Make(o Outcome) (*Plan, error) {
	p := &Plan{Registry: o.Registry, Platform: o.Platform, Set: &manifests.Set{}, Filled: o.Result.Pools,
		FinalCA: o.FinalCA, ClusterRegistry: o.ClusterRegistry,
		Policy: o.HandOver.Policy, Deadline: o.HandOver.Deadline, Controllers: o.Controllers, KeepTrust: o.KeepTrust}
	p.Set.Append(o.Set)
	if err := p.settleSecrets(); err != nil {
		return nil, err
	}
	p.settleConfigMaps()
	for _, config := range o.Result.Configs {
		rendered := config.DeepCopy()
		rendered.OwnerReferences = nil // the pool has no identity yet; the renderer in the cluster makes it the owner
		p.Rendered = append(p.Rendered, rendered)
	}
	for _, c := range o.Result.Components {
		if strings.HasPrefix(c.Object.Name, manifests.PreBuiltComponentPrefix) {
			p.Components = append(p.Components, c.Object)
		}
	}
	for _, filled := range o.Result.Pools {
		nodes, known := o.Nodes[filled.Name]
		pool := Pool{Name: filled.Name, Config: filled.Spec.Configuration.Name, Nodes: nodes}
		if built, here := o.Built[pool.Name]; here {
			pool.Image, pool.Address, pool.Ground = built.Repository+"@"+built.Digest, built.Address, built.Ground
			pool.OSImageURL, pool.Kernels = o.OSImageURL, strings.Join(built.Kernels, ",")
			if !known {
				pool.Nodes = 1
			}
		}
		p.Pools = append(p.Pools, pool)
	}
	p.images(o)
	settleStandalone(p)
	return p, p.Validate()
}

// images are the base and what was built: the base, too, is what the cluster builds from and what unlayered pools boot.
func (p *Plan) images(o Outcome) {
	if repository, digest, ok := strings.Cut(o.Base, "@"); ok {
		_, hex, _ := strings.Cut(digest, ":")
		tag := "dayone-base-" + hex[:min(len(hex), 12)]
		p.Images = append(p.Images, Image{Repository: repository, Digest: digest, Tags: []string{tag},
			Secret: p.pusher(repository)})
	}
	for _, pool := range p.Pools {
		if pool.Image == "" {
			continue
		}
		repository, digest, _ := strings.Cut(pool.Image, "@")
		p.Images = append(p.Images, Image{Repository: repository, Digest: digest, Tags: []string{build.Tag(pool.Address),
			pool.tag()},
			Secret: p.pushSecretOf(pool.Name, repository)})
	}
}

func (p *Plan) pushSecretOf(pool, repository string) string {
	for _, m := range p.Set.MachineOSConfigs {
		if m.Object.Spec.MachineConfigPool.Name == pool {
			return m.Object.Spec.RenderedImagePushSecret.Name
		}
	}
	return p.pusher(repository)
}

// pusher finds a push Secret with credentials for a repository.
func (p *Plan) pusher(repository string) string {
	for _, m := range p.Set.MachineOSConfigs {
		name := m.Object.Spec.RenderedImagePushSecret.Name
		if s := p.secret(name); s != nil && credentials.Covers(s.Data[corev1.DockerConfigJsonKey], repository) {
			return name
		}
	}
	return ""
}

func (p *Plan) secret(name string) *corev1.Secret {
	for _, s := range p.Set.Secrets {
		if s.Object.Name == name {
			return s.Object
		}
	}
	return nil
}

// settleSecrets keeps the Secrets that MachineOSConfigs name, those in the builder's namespace, such as entitlements
// for RUN, and the cluster's pull secret where dayone makes it, with their content in the form that the API gives back.
func (p *Plan) settleSecrets() error {
	wanted := map[string]bool{}
	for _, m := range p.Set.MachineOSConfigs {
		wanted[m.Object.Spec.RenderedImagePushSecret.Name] = true
		if ref := m.Object.Spec.BaseImagePullSecret; ref != nil {
			wanted[ref.Name] = true
		}
	}
	found := map[string]bool{}
	kept := p.Set.Secrets[:0:0]
	for _, item := range p.Set.Secrets {
		name := item.Object.Name
		pullSecret := p.ClusterRegistry != "" && name == cluster.PullSecretName &&
			item.Object.Namespace == cluster.PullSecretNamespace
		if found[name] || !wanted[name] && !pullSecret && item.Object.Namespace != cluster.DefaultNamespace {
			continue
		}
		s := item.Object.DeepCopy()
		for key, text := range s.StringData {
			if s.Data == nil {
				s.Data = map[string][]byte{}
			}
			s.Data[key] = []byte(text)
		}
		s.StringData = nil
		item.Object = s
		kept = append(kept, item)
		found[name] = true
	}
	p.Set.Secrets = kept
	maps.DeleteFunc(wanted, func(name string, _ bool) bool { return name == "" || found[name] })
	if len(wanted) > 0 {
		return fmt.Errorf(
			"plan the hand-over: MachineOSConfigs name Secrets that are not in the install directory: %s: put them into "+
				"the layering directory",
			strings.Join(slices.Sorted(maps.Keys(wanted)), ", "))
	}
	return nil
}

// settleConfigMaps keeps those in the builder's namespace: builds read package repositories from them. All others are
// not of dayone's making.
func (p *Plan) settleConfigMaps() {
	p.Set.ConfigMaps = slices.DeleteFunc(slices.Clone(p.Set.ConfigMaps),
		func(i manifests.Item[*corev1.ConfigMap]) bool { return i.Object.Namespace != cluster.DefaultNamespace })
}

// Validate says what keeps a plan from being carried out.
func (p *Plan) Validate() error {
	if p.Registry == "" {
		return errors.New("hand-over plan: the bootstrap registry is missing")
	}
	if p.Controllers != Dayone && p.Controllers != MCO {
		return fmt.Errorf("hand-over plan: controllers %q are not known", p.Controllers)
	}
	for _, i := range p.Images {
		if !strings.HasPrefix(i.Digest, "sha256:") {
			return fmt.Errorf("hand-over plan: image %s has no digest", i.Repository)
		}
	}
	for _, pool := range p.Pools {
		if pool.Config == "" {
			return fmt.Errorf("hand-over plan: pool %s was not rendered", pool.Name)
		}
		if pool.Image != "" && pool.Address == "" {
			return fmt.Errorf("hand-over plan: the image of pool %s has no content address", pool.Name)
		}
	}
	return nil
}

// pool is one by its name; one without an image where the plan has none.
func (p *Plan) pool(name string) Pool {
	for _, pool := range p.Pools {
		if pool.Name == name {
			return pool
		}
	}
	return Pool{Name: name}
}

// staysHere refuses a plan whose images would go with the host.
func (p *Plan) staysHere() error {
	for _, i := range p.Images {
		if host, _, _ := strings.Cut(i.Repository, "/"); host == p.Registry {
			return fmt.Errorf(
				"hand over: image %s is to end up in the bootstrap registry itself, which goes: give its pool another push spec",
				i.Repository)
		}
	}
	return nil
}

// source is an image's repository in a registry that mirrors the final one.
func (i Image) source(host string) string {
	return host + "/" + installconfig.RepositoryPath(i.Repository)
}

// repositories are the final ones of this plan.
func (p *Plan) repositories() map[string]Image {
	out := map[string]Image{}
	for _, i := range p.Images {
		if _, known := out[i.Repository]; !known {
			out[i.Repository] = i
		}
	}
	return out
}
