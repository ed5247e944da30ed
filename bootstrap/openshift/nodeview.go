package openshift

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"dayone.dev/dayone/bootstrap/day1"
	"dayone.dev/dayone/manifests/machineconfig"
	"dayone.dev/dayone/rebase/deploy/pull"
)

// pullLimit bounds the test pull: the registry is on this host.
const pullLimit = 2 * time.Minute

// testPulls pulls every image as a node will: by its final name, with the mirror, the CA and the credentials of
// the rendered config that the node gets, and nothing of this host's.
func testPulls(ctx context.Context, f flow, l day1.Layered[firstRendering], second day1.Rendered) error {
	for _, pool := range names(f.pools()) {
		try := func() error { return testPull(ctx, f, pool, second.Images[pool]) }
		if err := f.until(ctx, phasePull, pullLimit, try); err != nil {
			return fmt.Errorf("pull the image of pool %s as a node would: %w", pool, err)
		}
		if err := l.Registry.Holds(ctx, l.Images[pool].Reference); err != nil {
			return err
		}
	}
	return nil
}

func testPull(ctx context.Context, f flow, pool, image string) error {
	root, err := os.MkdirTemp(f.Path("tmp"), "node-")
	if err != nil {
		return fmt.Errorf("make a node's root: %w", err)
	}
	defer os.RemoveAll(root) //nolint:errcheck // scratch, below the state directory
	if err := nodeRoot(f, pool, root); err != nil {
		return err
	}
	_, arch, _ := strings.Cut(f.Platform, "/")
	_, err = pull.Inspect(ctx, image, pull.Options{Root: root, Architecture: arch,
		AllowUnbootable: false,
		Policies:        pull.Policies(root), SkipKeyFiles: true,
		RegistriesConfDir: filepath.Join(root, "etc/containers/registries.conf.d"),
		CertsDir:          filepath.Join(root, "etc/containers/certs.d")})
	return err
}

// nodeRoot lays out what a node's pull reads, from the config that is served to it.
func nodeRoot(f flow, pool, root string) error {
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

// checkServed asks MCO's server, as a node would, and waits until it serves the images. The files in the directory do
// not prove it: a rendering that was under way meanwhile, or a server that has not read them yet, would give a node the
// release's OS image.
func checkServed(ctx context.Context, f flow, second day1.Rendered) error {
	if f.ConfigURL == "" {
		return nil
	}
	if _, err := os.Stat(f.at(podManifest)); errors.Is(err, fs.ErrNotExist) {
		f.Log.Info("bootkube has ended MCO's server on this node: nodes get their configs from the cluster")
		return nil
	}
	// no proxy: it is this host
	client := &http.Client{Timeout: time.Minute, Transport: &http.Transport{DisableKeepAlives: true}}
	for _, pool := range names(f.pools()) {
		if !answered(pool) {
			continue
		}
		err := f.until(ctx, phaseServed, servedLimit, func() error { return servedOnce(ctx, f, client, pool, second) })
		if err != nil {
			return fmt.Errorf("pool %s: %w", pool, err)
		}
	}
	return nil
}

func servedOnce(ctx context.Context, f flow, client *http.Client, pool string, second day1.Rendered) error {
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
	_, hash, _ := strings.Cut(second.Images[pool], "@sha256:")
	if !strings.Contains(string(raw), hash) || !strings.Contains(string(raw), second.Configs[pool]) {
		if err := publish(f.at(stagingDir), f.at(mcsDir), map[string]string{pool: second.Configs[pool]}); err != nil {
			return err
		}
		return errors.New("the config server still serves the first rendering")
	}
	return nil
}

// maxConfig bounds an answer, in bytes; configs cannot be larger than an API object (1.5 MiB), some times over in their
// encodings.
const maxConfig = 64 << 20
