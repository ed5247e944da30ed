package openshift

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	corev1 "k8s.io/api/core/v1"

	"dayone.dev/dayone/manifests"
	"dayone.dev/dayone/manifests/machineconfig"
	"dayone.dev/dayone/rebase/deploy"
)

// machineConfigNamespace is where MCO looks for the Secrets that MachineOSConfigs name.
const machineConfigNamespace = "openshift-machine-config-operator"

// clusterSet are the objects that the cluster gets: the same bytes as MCO has rendered, every pool's MachineOSConfig and its Secrets.
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
	for _, object := range objects {
		switch o := object.(type) {
		case *mcfgv1.MachineConfig:
			set.MachineConfigs = append(set.MachineConfigs, manifests.NewItem(o))
		case *mcfgv1.MachineOSConfig:
			set.MachineOSConfigs = append(set.MachineOSConfigs, manifests.NewItem(o))
		}
	}
	return set, nil
}

// applyObjects gives the cluster what MCO rendered from, before any node can join: its own renderer then comes to the same names. The
// API server may come minutes later, and its kinds later still.
func (f *flow) applyObjects(ctx context.Context) error {
	set, err := f.clusterSet()
	if err != nil {
		return err
	}
	auth, err := os.ReadFile(f.id.PullAuth)
	if err != nil {
		return fmt.Errorf("read pull credential: %w", err)
	}
	return f.until(ctx, "cluster", f.Limits.API+f.Limits.Hard, func() error {
		if err := f.Cluster.Up(ctx); err != nil {
			return fmt.Errorf("the API server does not answer: %w", err)
		}
		if err := f.Cluster.AddPullAuth(ctx, auth); err != nil {
			return err
		}
		return f.Cluster.Apply(ctx, set)
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
			f.Log.WithField("phase", phase).Info("waiting: " + text)
			said = text
		}
		select {
		case <-ctx.Done():
			return errors.Join(fmt.Errorf("given up after %s", limit), err)
		case <-time.After(f.Interval):
		}
	}
}

// pullLimit bounds the test pull: the registry is on this host.
const pullLimit = 2 * time.Minute

// testPulls pulls every image as a node will: by its final name, with the mirror, the authority and the credentials of the rendered
// config that the node gets, and nothing of this host's.
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
	_, err = deploy.Inspect(ctx, f.second.Images[pool], deploy.ImportOptions{Root: root, Architecture: arch, AllowUnbootable: false,
		RegistriesConfDir: filepath.Join(root, "etc/containers/registries.conf.d"), CertsDir: filepath.Join(root, "etc/containers/certs.d")})
	return err
}

// nodeRoot lays out what a node's pull reads, from the config that is served to it.
func (f *flow) nodeRoot(pool, root string) error {
	config, _, err := rendered(f.at(mcsDir), pool)
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

// handOver gives the images away and lets the bootstrap end.
func (f *flow) handOver(ctx context.Context) error {
	if f.HandOver != nil {
		set, err := f.clusterSet()
		if err != nil {
			return err
		}
		repositories := map[string]string{}
		for _, p := range f.in.Pools {
			repositories[p.Name] = p.Repository
		}
		if err := f.HandOver(ctx, Outcome{Registry: f.registryHost, CAFile: f.id.CAFile, AuthFile: f.id.PullAuth, Platform: f.Platform, Set: set,
			Built: f.built, Repositories: repositories, Configs: f.second.Configs}); err != nil {
			return err
		}
	}
	return f.release("done")
}
