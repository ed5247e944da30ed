package openshift

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	ign35 "github.com/coreos/ignition/v2/config/v3_5/types"
	"github.com/google/renameio/v2"
	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"dayone.dev/dayone/manifests"
	"dayone.dev/dayone/manifests/machineconfig"
	"dayone.dev/dayone/manifests/render"
	"dayone.dev/dayone/rebase/firstboot"
	"dayone.dev/dayone/registry/credentials"
)

// secondResult is what the nodes are told to be.
type secondResult struct {
	// Configs and Images map each pool that was built here to its rendered config and its image.
	Configs map[string]string `json:"configs"`
	Images  map[string]string `json:"images"`
	// OSImageURL says that this MCO does not read images from MachineOSConfigs: they are in MachineConfigs.
	OSImageURL bool `json:"osImageURL,omitempty"`
}

const (
	// stagingDir takes MCO's second rendering until it is proved to name the images; beside mcsDir, so on the same file
	// system.
	stagingDir = "/etc/mcs/dayone"
	// renderLimit bounds one run of MCO's controller: it takes seconds, and a minute where it looks at an image stream.
	renderLimit = 5 * time.Minute
	// renderAttempts bounds the runs in one process.
	renderAttempts = 3
)

// finalImage is a pool's image in its final repository, by the digest that was built here.
func (f *flow) finalImage(pool string) string {
	return f.pool(pool).Repository + "@" + f.built[pool].Digest
}

// annotated is a pool's MachineOSConfig with its image, as MCO wants it at install time.
func (f *flow) annotated(pool string) *mcfgv1.MachineOSConfig {
	object := f.pool(pool).MachineOSConfig.Object.DeepCopy()
	if object.Annotations == nil {
		object.Annotations = map[string]string{}
	}
	object.Annotations[manifests.AnnotationPreBuiltImage] = f.finalImage(pool)
	return object
}

// trust is the MachineConfig that sends a pool's nodes to the embedded registry first, by digest, and makes them trust
// it.
func (f *flow) trust(pool string) (*mcfgv1.MachineConfig, error) {
	repository := f.pool(pool).Repository
	files, err := firstboot.TrustFiles([]firstboot.Mirror{{Repository: repository, Location: f.inEmbedded(repository)}},
		f.id.CAPEM)
	if err != nil {
		return nil, err
	}
	raw, err := machineconfig.Encode(ign35.Config{Ignition: ign35.Ignition{Version: machineconfig.Version},
		Storage: ign35.Storage{Files: files}})
	if err != nil {
		return nil, err
	}
	return f.component(trustName(pool), pool, mcfgv1.MachineConfigSpec{Config: runtime.RawExtension{Raw: raw}}), nil
}

func (f *flow) component(name, pool string, spec mcfgv1.MachineConfigSpec) *mcfgv1.MachineConfig {
	return &mcfgv1.MachineConfig{TypeMeta: metav1.TypeMeta{APIVersion: mcfgv1.GroupVersion.String(),
		Kind: "MachineConfig"},
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{manifests.LabelRole: pool}}, Spec: spec}
}

// The names of what the cluster gets.
func trustName(pool string) string { return "98-" + pool + "-dayone-bootstrap-registry" }

// Files among MCO's manifests.
func moscFile(pool string) string  { return "99_dayone-machineosconfig-" + pool + ".yaml" }
func trustFile(pool string) string { return "99_dayone-bootstrap-registry-" + pool + ".yaml" }
func imageFile(pool string) string { return "99_dayone-osimageurl-" + pool + ".yaml" }

// objects are what MCO renders beside the installer's manifests, by file name. An MCO that does not read images from
// MachineOSConfigs gets MachineConfigs with osImageURL instead.
func (f *flow) objects(osImageURL bool) (map[string]any, error) {
	out := map[string]any{}
	for _, pool := range f.pools() {
		trust, err := f.trust(pool)
		if err != nil {
			return nil, err
		}
		out[trustFile(pool)] = trust
		if !osImageURL {
			out[moscFile(pool)] = f.annotated(pool)
		} else {
			image := f.finalImage(pool)
			c := f.component(manifests.PreBuiltComponentPrefix+pool, pool, mcfgv1.MachineConfigSpec{OSImageURL: image})
			c.Annotations = map[string]string{manifests.AnnotationPreBuiltImage: image}
			out[imageFile(pool)] = c
		}
	}
	return out, nil
}

func (f *flow) secondInputs() (any, error) {
	objects, err := f.objects(false)
	if err != nil {
		return nil, err
	}
	auth, err := os.ReadFile(f.id.PullAuth)
	if err != nil {
		return nil, fmt.Errorf("read pull credential: %w", err)
	}
	sum := sha256.Sum256(auth) // no secret goes into the journal
	return map[string]any{"objects": objects, "auth": hex.EncodeToString(sum[:]), "mco": f.first.MCO}, nil
}

// secondRendering puts the inputs among MCO's manifests, lets its controller render aside, proves that the result names
// the images, and only then shows it to the config server.
func (f *flow) secondRendering(ctx context.Context) (secondResult, error) {
	if err := f.setAside(); err != nil {
		return secondResult{}, err
	}
	if err := f.mergePullSecret(); err != nil {
		return secondResult{}, err
	}
	out, err := f.renderWith(ctx, false)
	if errors.Is(err, errOtherImage) {
		f.Log.WithError(err).
			Warn("this MCO does not read images from MachineOSConfigs at install time, naming them in MachineConfigs")
		out, err = f.renderWith(ctx, true)
	}
	if err != nil {
		return secondResult{}, err
	}
	return out, publish(f.at(stagingDir), f.at(mcsDir), out.Configs)
}

func (f *flow) renderWith(ctx context.Context, osImageURL bool) (secondResult, error) {
	objects, err := f.objects(osImageURL)
	if err != nil {
		return secondResult{}, err
	}
	for name, object := range objects {
		raw, err := manifests.Marshal(object)
		if err != nil {
			return secondResult{}, err
		}
		if err := renameio.WriteFile(filepath.Join(f.at(mccDir), name), raw, 0o644); err != nil {
			return secondResult{}, fmt.Errorf("write MCO's manifest: %w", err)
		}
	}
	if osImageURL {
		if err := f.removeInputs(moscFile); err != nil {
			return secondResult{}, err
		}
	}
	for attempt := 1; ; attempt++ {
		err := f.renderOnce(ctx)
		if err == nil {
			break
		}
		if attempt == renderAttempts || ctx.Err() != nil {
			return secondResult{}, err
		}
		f.Log.WithError(err).WithField("attempt", attempt).Warn("second rendering failed, trying again")
		select {
		case <-ctx.Done():
		case <-time.After(f.Interval):
		}
	}
	return f.proved(osImageURL)
}

func (f *flow) renderOnce(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, renderLimit)
	defer cancel()
	dest := f.at(stagingDir)
	if err := errors.Join(os.RemoveAll(dest), os.MkdirAll(dest, 0o755)); err != nil {
		return fmt.Errorf("make directory for the second rendering: %w", err)
	}
	m := f.first.MCO
	return f.Renderer.Render(ctx, Rendering{Image: m.Image, Argv: withDest(m.Argv, dest), Source: f.at(mccDir),
		Dest: dest})
}

var errOtherImage = errors.New("the second rendering does not name the image that was built")

// proved reads the staged rendering and refuses one that would boot nodes into anything else.
func (f *flow) proved(osImageURL bool) (secondResult, error) {
	out := secondResult{Configs: map[string]string{}, Images: map[string]string{}, OSImageURL: osImageURL}
	for _, pool := range f.pools() {
		config, _, _, err := rendered(f.at(stagingDir), pool)
		if err != nil {
			return out, err
		}
		want := f.finalImage(pool)
		if got := config.Spec.OSImageURL; got != want {
			return out, fmt.Errorf("pool %s: %w: %s instead of %s; remove osImageURL from the pool's MachineConfigs", pool,
				errOtherImage, got, want)
		}
		out.Configs[pool], out.Images[pool] = config.Name, want
	}
	return out, nil
}

// publish copies a proved rendering to where the config server reads: each config before the pool that names it, each
// file in one step.
func publish(from, to string, configs map[string]string) error {
	for pool, config := range configs {
		for _, name := range []string{filepath.Join(render.ConfigsDir, config+".yaml"),
			filepath.Join(render.PoolsDir, pool+".yaml")} {
			raw, err := os.ReadFile(filepath.Join(from, name))
			if err != nil {
				return fmt.Errorf("publish the second rendering: %w", err)
			}
			if err := renameio.WriteFile(filepath.Join(to, name), raw, 0o664); err != nil {
				return fmt.Errorf("publish the second rendering: %w", err)
			}
		}
	}
	return nil
}

func (f *flow) secondHolds(_ context.Context, r secondResult) error {
	for pool, name := range r.Configs {
		config, _, _, err := rendered(f.at(mcsDir), pool)
		if err != nil {
			return err
		}
		if config.Name != name {
			return fmt.Errorf("pool %s: the config server has %s, not %s", pool, config.Name, name)
		}
	}
	return nil
}

// removeInputs takes files of all pools out of MCO's manifests.
func (f *flow) removeInputs(names ...func(pool string) string) error {
	for _, pool := range f.pools() {
		for _, name := range names {
			if err := os.Remove(filepath.Join(f.at(mccDir), name(pool))); err != nil && !errors.Is(err, fs.ErrNotExist) {
				return fmt.Errorf("take back MCO's manifest: %w", err)
			}
		}
	}
	return nil
}

// undoInputs takes everything out of MCO's manifests again and shows the first rendering.
func (f *flow) undoInputs(ctx context.Context) error {
	if err := f.removeInputs(moscFile, trustFile, imageFile); err != nil {
		return err
	}
	raw, err := os.ReadFile(f.path("pull-secret.orig"))
	if err == nil {
		err = renameio.WriteFile(filepath.Join(f.at(mccDir), mccPullSecret), raw, 0o644)
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("take back MCO's pull secret: %w", err)
	}
	if f.second.Configs == nil {
		return nil // nothing was shown
	}
	if err := f.renderOnce(ctx); err != nil {
		return err
	}
	first := map[string]string{}
	for pool, p := range f.first.Pools {
		first[pool] = p.Config
	}
	return publish(f.at(stagingDir), f.at(mcsDir), first)
}

// mergePullSecret adds the embedded registry's pull credential to the secret from which nodes get theirs. A
// MachineConfig with that file would hide every later change of the cluster's pull secret.
func (f *flow) mergePullSecret() error {
	file := filepath.Join(f.at(mccDir), mccPullSecret)
	set, raw, err := readSet(file)
	if err != nil {
		return fmt.Errorf("read MCO's pull secret: %w", err)
	}
	if len(set.Secrets) != 1 || set.Secrets[0].Object.Type != corev1.SecretTypeDockerConfigJson {
		return fmt.Errorf("read MCO's pull secret: %s is no Secret of type %s", file, corev1.SecretTypeDockerConfigJson)
	}
	auth, err := os.ReadFile(f.id.PullAuth)
	if err != nil {
		return fmt.Errorf("read pull credential: %w", err)
	}
	secret := set.Secrets[0].Object
	merged, err := credentials.Merge(secret.Data[corev1.DockerConfigJsonKey], auth)
	if err != nil {
		return err
	}
	if _, err := os.Stat(f.path("pull-secret.orig")); errors.Is(err, fs.ErrNotExist) {
		if err := renameio.WriteFile(f.path("pull-secret.orig"), raw, 0o600); err != nil {
			return fmt.Errorf("keep MCO's pull secret: %w", err)
		}
	}
	var compact json.RawMessage = merged
	if one, err := json.Marshal(compact); err == nil {
		merged = one
	}
	secret.Data[corev1.DockerConfigJsonKey] = merged
	out, err := manifests.Marshal(secret)
	if err != nil {
		return err
	}
	if err := renameio.WriteFile(file, out, 0o644); err != nil {
		return fmt.Errorf("write MCO's pull secret: %w", err)
	}
	return nil
}
