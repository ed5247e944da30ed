package openshift

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/google/renameio/v2"
	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	corev1 "k8s.io/api/core/v1"

	"dayone.dev/dayone/manifests"
	"dayone.dev/dayone/manifests/machineconfig"
	"dayone.dev/dayone/rebase/deploy/pull"
)

// machineConfigNamespace is where MCO looks for the Secrets that MachineOSConfigs name.
const machineConfigNamespace = "openshift-machine-config-operator"

// clusterSet are the objects that the cluster gets: the same bytes as MCO has rendered, every pool's MachineOSConfig
// and its Secrets.
func (f *flow) clusterSet() (*manifests.Set, error) {
	objects, err := f.objects(f.second.OSImageURL)
	if err != nil {
		return nil, err
	}
	set := &manifests.Set{}
	for _, s := range f.in.Set.Secrets {
		s.Object = s.Object.DeepCopy()
		s.Object.Namespace = machineConfigNamespace
		set.Secrets = append(set.Secrets, s)
	}
	for _, name := range slices.Sorted(maps.Keys(objects)) {
		if o, ok := objects[name].(*mcfgv1.MachineConfig); ok {
			set.MachineConfigs = append(set.MachineConfigs, manifests.NewItem(o))
		}
	}
	for _, pool := range f.pools() {
		set.MachineOSConfigs = append(set.MachineOSConfigs, manifests.NewItem(f.annotated(pool)))
	}
	return set, nil
}

// givenResult is how much the cluster was given.
type givenResult struct {
	MachineConfigs   int `json:"machineConfigs"`
	MachineOSConfigs int `json:"machineOSConfigs"`
	Secrets          int `json:"secrets"`
}

// givenFile is in the state directory from the moment on at which the cluster may have got something.
const givenFile = "cluster-given"

// given is what the cluster gets: for an MCO that knows the images as osImageURL only no MachineOSConfig, because it
// would build anew.
func (f *flow) given() (*manifests.Set, error) {
	set, err := f.clusterSet()
	if err == nil && f.second.OSImageURL {
		set.MachineOSConfigs = nil
	}
	return set, err
}

// givenInputs say when the cluster is to be given something else.
func (f *flow) givenInputs() (any, error) {
	set, err := f.given()
	if err != nil {
		return nil, err
	}
	objects, err := f.secondInputs()
	return map[string]any{"set": set, "rendered": f.second, "inputs": objects}, err // of which the journal keeps a hash
}

// applyObjects gives the cluster what MCO rendered from, before any node can join: its own renderer then comes to the
// same names. The API server may come minutes later, and its kinds later still. It is done once: later the cluster's
// controllers write there, too.
func (f *flow) applyObjects(ctx context.Context) (givenResult, error) {
	set, err := f.given()
	if err != nil {
		return givenResult{}, err
	}
	auth, err := os.ReadFile(f.id.PullAuth)
	if err != nil {
		return givenResult{}, fmt.Errorf("read pull credential: %w", err)
	}
	out := givenResult{MachineConfigs: len(set.MachineConfigs), MachineOSConfigs: len(set.MachineOSConfigs),
		Secrets: len(set.Secrets)}
	return out, f.until(ctx, "cluster", f.Limits.API+f.Limits.Hard, func() error {
		if err := f.Cluster.Up(ctx); err != nil {
			return fmt.Errorf("the API server does not answer: %w", err)
		}
		if err := renameio.WriteFile(f.path(givenFile), nil, 0o600); err != nil {
			return fmt.Errorf("note that the cluster is given objects: %w", err)
		}
		return f.Cluster.Give(ctx, set, auth)
	})
}

// until tries again until it succeeds or the limit is over; it says each new reason once.
func (f *flow) until(ctx context.Context, phase string, limit time.Duration, try func() error) error {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	said := ""
	for {
		err := try()
		if err == nil {
			return nil
		}
		if text := err.Error(); text != said {
			f.waits(phase, text)
			said = text
		}
		select {
		case <-ctx.Done():
			return errors.Join(fmt.Errorf("given up after %s", limit), err)
		case <-time.After(f.Interval):
		}
	}
}

// waits says what a phase waits for, in the log and in the records, which reach a log bundle also when the journal does
// not.
func (f *flow) waits(phase, text string) {
	f.Log.WithField("phase", phase).Info("waiting: " + text)
	f.records.once("wait-"+phase, text)
}

// pullLimit bounds the test pull: the registry is on this host.
const pullLimit = 2 * time.Minute

// testPulls pulls every image as a node will: by its final name, with the mirror, the authority and the credentials of
// the rendered config that the node gets, and nothing of this host's.
func (f *flow) testPulls(ctx context.Context) error {
	for _, pool := range f.pools() {
		if err := f.until(ctx, "pull", pullLimit, func() error { return f.testPull(ctx, pool) }); err != nil {
			return fmt.Errorf("pull the image of pool %s as a node would: %w", pool, err)
		}
		if err := f.holds(ctx, f.built[pool].Reference); err != nil {
			return err
		}
	}
	return nil
}

func (f *flow) testPull(ctx context.Context, pool string) error {
	root, err := os.MkdirTemp(f.path("tmp"), "node-")
	if err != nil {
		return fmt.Errorf("make a node's root: %w", err)
	}
	defer os.RemoveAll(root) //nolint:errcheck // scratch, below the state directory
	if err := f.nodeRoot(pool, root); err != nil {
		return err
	}
	_, arch, _ := strings.Cut(f.Platform, "/")
	_, err = pull.Inspect(ctx, f.second.Images[pool], pull.Options{Root: root, Architecture: arch,
		AllowUnbootable:   false,
		RegistriesConfDir: filepath.Join(root, "etc/containers/registries.conf.d"),
		CertsDir:          filepath.Join(root, "etc/containers/certs.d")})
	return err
}

// nodeRoot lays out what a node's pull reads, from the config that is served to it.
func (f *flow) nodeRoot(pool, root string) error {
	config, _, _, err := rendered(f.at(mcsDir), pool)
	if err != nil {
		return err
	}
	parsed, err := machineconfig.ParseRendered(config.Spec.Config.Raw)
	if err != nil {
		return fmt.Errorf("read the rendered config of pool %s: %w", pool, err)
	}
	write := func(path string, content []byte) error {
		full := filepath.Join(root, path)
		if err := os.MkdirAll(filepath.Dir(full), 0o700); err != nil {
			return err
		}
		return os.WriteFile(full, content, 0o600)
	}
	for _, file := range parsed.Storage.Files {
		if !strings.HasPrefix(file.Path, "/etc/containers/") {
			continue
		}
		content, err := machineconfig.Contents(file.Contents)
		if err == nil {
			err = write(file.Path, content)
		}
		if err != nil {
			return fmt.Errorf("lay out %s of pool %s: %w", file.Path, pool, err)
		}
	}
	set, _, err := readSet(filepath.Join(f.at(mccDir), mccPullSecret))
	if err != nil || len(set.Secrets) != 1 {
		return fmt.Errorf("read MCO's pull secret: %w", err)
	}
	return write("/run/ostree/auth.json", set.Secrets[0].Object.Data[corev1.DockerConfigJsonKey])
}

// servedLimit bounds the wait until MCO's server shows the second rendering: kubelet may be starting it again.
const servedLimit = 10 * time.Minute

// answered are the pools that MCO's server answers for during the bootstrap; the others get their configs from the
// cluster.
func answered(pool string) bool { return pool == "master" || pool == "arbiter" }

// seeServed asks MCO's server, as a node would, and waits until it gives the images. What lies in the directory does
// not prove it: a rendering that was under way meanwhile, or a server that has not looked yet, would give a node the
// stock image.
func (f *flow) seeServed(ctx context.Context) error {
	if f.ConfigURL == "" {
		return nil
	}
	if _, err := os.Stat(f.at(podManifest)); errors.Is(err, fs.ErrNotExist) {
		f.Log.Info("bootkube has ended MCO's server on this node: nodes get their configs from the cluster")
		return nil
	}
	// no proxy: it is this host
	client := &http.Client{Timeout: time.Minute, Transport: &http.Transport{DisableKeepAlives: true}}
	for _, pool := range f.pools() {
		if !answered(pool) {
			continue
		}
		err := f.until(ctx, "served", servedLimit, func() error { return f.servedOnce(ctx, client, pool) })
		if err != nil {
			return fmt.Errorf("pool %s: %w", pool, err)
		}
	}
	return nil
}

func (f *flow) servedOnce(ctx context.Context, client *http.Client, pool string) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, f.ConfigURL+pool, nil)
	if err != nil {
		return err
	}
	request.Header.Set("Accept", "application/vnd.coreos.ignition+json;version=3.2.0")
	response, err := client.Do(request)
	if err != nil {
		return fmt.Errorf("the config server does not answer: %w", err)
	}
	defer response.Body.Close()
	raw, err := io.ReadAll(io.LimitReader(response.Body, maxConfig))
	if err != nil || response.StatusCode != http.StatusOK {
		return fmt.Errorf("the config server answers with status %d", response.StatusCode)
	}
	// The image is in files of the config, whose contents are percent-encoded or not.
	_, hash, _ := strings.Cut(f.second.Images[pool], "@sha256:")
	if !strings.Contains(string(raw), hash) || !strings.Contains(string(raw), f.second.Configs[pool]) {
		if err := publish(f.at(stagingDir), f.at(mcsDir), map[string]string{pool: f.second.Configs[pool]}); err != nil {
			return err
		}
		return errors.New("the config server still gives the first rendering")
	}
	return nil
}

// maxConfig bounds an answer, in bytes; configs cannot be larger than an API object (1.5 MiB), some times over in their
// encodings.
const maxConfig = 64 << 20
