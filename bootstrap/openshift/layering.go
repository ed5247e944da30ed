package openshift

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"slices"

	ign35 "github.com/coreos/ignition/v2/config/v3_5/types"
	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"dayone.dev/dayone/bootstrap/clusterregistry"
	"dayone.dev/dayone/bootstrap/day1"
	"dayone.dev/dayone/bootstrap/preflight"
	"dayone.dev/dayone/build"
	"dayone.dev/dayone/installconfig"
	"dayone.dev/dayone/manifests"
	"dayone.dev/dayone/manifests/machineconfig"
	"dayone.dev/dayone/rebase/firstboot"
	"dayone.dev/dayone/registry/credentials"
)

// layering is what turns MCO's rendering into a layered one: the pools that were built here, their images in the final
// registry, and the embedded registry from which nodes pull them meanwhile.
type layering struct {
	pools []preflight.Pool
	// others are the objects of the pools that are built in the cluster: they reach it with the hand-over. MCO on this
	// node must not see them: a MachineOSConfig without an image stops it.
	others   *manifests.Set
	images   map[string]string
	registry *day1.Registry
	// basePolicy is the policy of base images, nil without one.
	basePolicy []byte
	// own is what the registries of the cluster's masters share, nil where the final registry is another.
	own *clusterregistry.Shared
}

func newLayering(in *preflight.Input, r *day1.Registry, built map[string]*build.Result) layering {
	y := layering{pools: day1.BuiltHere(in), others: others(in), images: map[string]string{}, registry: r,
		basePolicy: in.Signing.BasePolicy, own: in.Shared}
	for _, p := range y.pools {
		y.images[p.Name] = day1.FinalImage(p, built[p.Name])
	}
	return y
}

func names(pools []preflight.Pool) []string {
	var out []string
	for _, p := range pools {
		out = append(out, p.Name)
	}
	return out
}

// Names of MachineConfigs in the cluster.
func trustName(pool string) string { return "98-" + pool + "-dayone-bootstrap-registry" }

// Files among MCO's manifests.
func moscFile(pool string) string  { return "99_dayone-machineosconfig-" + pool + ".yaml" }
func trustFile(pool string) string { return "99_dayone-bootstrap-registry-" + pool + ".yaml" }
func imageFile(pool string) string { return "99_dayone-osimageurl-" + pool + ".yaml" }

// objects are what MCO renders beside the installer's manifests, by file name. An MCO that does not read images from
// MachineOSConfigs gets MachineConfigs with osImageURL instead.
func (y layering) objects(osImageURL bool) (map[string]any, error) {
	out := map[string]any{}
	for _, p := range y.pools {
		trust, err := y.trust(p)
		if err != nil {
			return nil, err
		}
		out[trustFile(p.Name)] = trust
		if !osImageURL {
			out[moscFile(p.Name)] = y.annotated(p)
			continue
		}
		image := y.images[p.Name]
		c := component(manifests.PreBuiltComponentPrefix+p.Name, p.Name, mcfgv1.MachineConfigSpec{OSImageURL: image})
		c.Annotations = map[string]string{manifests.AnnotationPreBuiltImage: image}
		out[imageFile(p.Name)] = c
	}
	return out, nil
}

// annotated is a pool's MachineOSConfig with its image, as MCO wants it at install time.
func (y layering) annotated(p preflight.Pool) *mcfgv1.MachineOSConfig {
	object := p.MachineOSConfig.Object.DeepCopy()
	if object.Annotations == nil {
		object.Annotations = map[string]string{}
	}
	object.Annotations[manifests.AnnotationPreBuiltImage] = y.images[p.Name]
	return object
}

// trust is the MachineConfig that sends a pool's nodes to the embedded registry first, by digest, and makes them trust
// it.
func (y layering) trust(p preflight.Pool) (*mcfgv1.MachineConfig, error) {
	mirror := firstboot.Mirror{Repository: p.Repository, Location: y.registry.Name(p.Repository)}
	files, err := firstboot.TrustFiles([]firstboot.Mirror{mirror}, y.registry.Identity.CAPEM)
	if err != nil {
		return nil, err
	}
	raw, err := trustConfig(files)
	if err != nil {
		return nil, err
	}
	return component(trustName(p.Name), p.Name, mcfgv1.MachineConfigSpec{Config: runtime.RawExtension{Raw: raw}}), nil
}

// trustConfig writes an Ignition config of files. The order of the members counts: the journal keeps a hash of the
// text.
func trustConfig(files []ign35.File) ([]byte, error) {
	type contents struct {
		Compression *string `json:"compression,omitempty"`
		Source      *string `json:"source"`
	}
	type file struct {
		Overwrite *bool    `json:"overwrite,omitempty"`
		Path      string   `json:"path"`
		Contents  contents `json:"contents"`
		Mode      *int     `json:"mode,omitempty"`
	}
	var config struct {
		Ignition struct {
			Version string `json:"version"`
		} `json:"ignition"`
		Storage struct {
			Files []file `json:"files"`
		} `json:"storage"`
	}
	config.Ignition.Version = machineconfig.Version
	for _, f := range files {
		config.Storage.Files = append(config.Storage.Files, file{Overwrite: f.Overwrite, Path: f.Path, Mode: f.Mode,
			Contents: contents{Compression: f.Contents.Compression, Source: f.Contents.Source}})
	}
	raw, err := json.Marshal(config)
	if err != nil {
		return nil, fmt.Errorf("write the trust of the nodes: %w", err)
	}
	return raw, nil
}

func component(name, pool string, spec mcfgv1.MachineConfigSpec) *mcfgv1.MachineConfig {
	return &mcfgv1.MachineConfig{TypeMeta: metav1.TypeMeta{APIVersion: mcfgv1.GroupVersion.String(),
		Kind: "MachineConfig"},
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{manifests.LabelRole: pool}}, Spec: spec}
}

// pullAuth are the accounts with which nodes pull: that of the embedded registry, and that of the masters' own.
func (y layering) pullAuth() ([]byte, error) {
	auth, err := os.ReadFile(y.registry.Identity.PullAuth)
	if err != nil {
		return nil, fmt.Errorf("read pull credential: %w", err)
	}
	if y.own == nil {
		return auth, nil
	}
	if auth, err = credentials.Merge(auth, y.own.PullAuth); err != nil {
		return nil, fmt.Errorf("let nodes pull from the cluster's own registries: %w", err)
	}
	return auth, nil
}

// inputs are what the second rendering depends on.
func (y layering) inputs(mco controller) (map[string]any, error) {
	objects, err := y.objects(false)
	if err != nil {
		return nil, err
	}
	auth, err := y.pullAuth()
	if err != nil {
		return nil, err
	}
	sum := sha256.Sum256(auth) // the journal keeps a hash of no secret
	return map[string]any{"objects": objects, "auth": hex.EncodeToString(sum[:]), "mco": mco}, nil
}

// handedOver are the objects that the cluster gets at the latest with the hand-over: the same bytes as MCO has
// rendered, every pool's MachineOSConfig, and the Secrets and ConfigMaps beside them.
func (y layering) handedOver(input *manifests.Set, osImageURL bool) (*manifests.Set, error) {
	set, err := y.bootstrapped(input, osImageURL)
	if err != nil {
		return nil, err
	}
	set.ConfigMaps, set.MachineOSConfigs = y.others.ConfigMaps, append(set.MachineOSConfigs,
		y.others.MachineOSConfigs...)
	return set, nil
}

// others are the objects of the pools that are built in the cluster: their MachineOSConfigs, and the Secrets and
// ConfigMaps of all pools, in the namespace where builds look for them.
func others(in *preflight.Input) *manifests.Set {
	set := &manifests.Set{ConfigMaps: in.Set.ConfigMaps, Secrets: placed(in.Set)}
	for _, p := range in.Pools {
		if p.BuildAt != installconfig.BuildAtBootstrap {
			set.MachineOSConfigs = append(set.MachineOSConfigs, manifests.NewItem(p.MachineOSConfig.Object))
		}
	}
	return set
}

// placed are the Secrets in the namespace where MCO looks for them.
func placed(input *manifests.Set) []manifests.Item[*corev1.Secret] {
	var out []manifests.Item[*corev1.Secret]
	for _, s := range input.Secrets {
		s.Object = s.Object.DeepCopy()
		s.Object.Namespace = machineConfigNamespace
		out = append(out, s)
	}
	return out
}

// bootstrapped are those of the pools that were built here, and the key with which dayone's builder signs the images
// that the cluster builds.
func (y layering) bootstrapped(input *manifests.Set, osImageURL bool) (*manifests.Set, error) {
	objects, err := y.objects(osImageURL)
	if err != nil {
		return nil, err
	}
	key, err := day1.SigningSecret(y.registry.Identity, y.basePolicy)
	if err != nil {
		return nil, err
	}
	set := &manifests.Set{Secrets: append(placed(input), manifests.NewItem(key))}
	for _, name := range slices.Sorted(maps.Keys(objects)) {
		if o, ok := objects[name].(*mcfgv1.MachineConfig); ok {
			set.MachineConfigs = append(set.MachineConfigs, manifests.NewItem(o))
		}
	}
	for _, p := range y.pools {
		set.MachineOSConfigs = append(set.MachineOSConfigs, manifests.NewItem(y.annotated(p)))
	}
	return set, nil
}

// applied are the objects that the cluster gets before any node joins. An MCO that knows the images as osImageURL only
// gets no MachineOSConfig: it would build anew.
func (y layering) applied(input *manifests.Set, osImageURL bool) (*manifests.Set, error) {
	set, err := y.bootstrapped(input, osImageURL)
	if err == nil && osImageURL {
		set.MachineOSConfigs = nil
	}
	return set, err
}

// all are applied and what the others have of a hand-over, for a cluster to which nothing is handed over later.
func (y layering) all(input *manifests.Set, osImageURL bool) (*manifests.Set, error) {
	set, err := y.applied(input, osImageURL)
	if err == nil {
		set.ConfigMaps, set.MachineOSConfigs = y.others.ConfigMaps, append(set.MachineOSConfigs,
			y.others.MachineOSConfigs...)
	}
	return set, err
}

// clusterInputs say when the cluster gets something else.
func (y layering) clusterInputs(input *manifests.Set, second day1.Rendered, mco controller) (map[string]any, error) {
	set, err := y.applied(input, second.OSImageURL)
	if err != nil {
		return nil, err
	}
	inputs, err := y.inputs(mco)
	return map[string]any{"set": set, "rendered": second, "inputs": inputs}, err
}

// withdrawn names the objects that the cluster must no longer have after a fallback.
func withdrawn(pools []preflight.Pool) *manifests.Set {
	set := &manifests.Set{}
	for _, p := range pools {
		for _, name := range []string{trustName(p.Name), manifests.PreBuiltComponentPrefix + p.Name} {
			set.MachineConfigs = append(set.MachineConfigs,
				manifests.NewItem(component(name, p.Name, mcfgv1.MachineConfigSpec{})))
		}
		set.MachineOSConfigs = append(set.MachineOSConfigs, p.MachineOSConfig)
	}
	return set
}
