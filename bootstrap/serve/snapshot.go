package serve

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	configv1 "github.com/openshift/api/config/v1"
	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	"sigs.k8s.io/yaml"

	"dayone.dev/dayone/manifests"
	"dayone.dev/dayone/manifests/render"
)

// snapshot is what was on disk at one moment; it never changes.
type snapshot struct {
	pools map[string]*poolAnswers
	tls   *configv1.TLSSecurityProfile
	// err is why there are no pools at all yet.
	err error
}

// pool returns the answers of a pool, which may be a failure.
func (s *snapshot) pool(name string) *poolAnswers {
	if p, ok := s.pools[name]; ok {
		return p
	}
	if s.err != nil {
		return failed(http.StatusServiceUnavailable, s.err)
	}
	return failed(http.StatusNotFound, fmt.Errorf("there is no pool %s in %s", name, render.PoolsDir))
}

// load reads everything. What is missing or broken becomes the failing answer of the pools concerned; load itself does
// not fail.
func load(o Options) *snapshot {
	if o.Source != nil {
		return loadSource(o)
	}
	s := &snapshot{pools: map[string]*poolAnswers{}, tls: loadProfile(o.BaseDir)}
	entries, err := os.ReadDir(filepath.Join(o.BaseDir, render.PoolsDir))
	if err != nil {
		return s
	}
	for _, entry := range entries {
		name, isYAML := strings.CutSuffix(entry.Name(), ".yaml")
		if isYAML && o.serves(name) {
			s.pools[name] = loadPool(o, name)
		}
	}
	return s
}

func loadPool(o Options, name string) *poolAnswers {
	var pool mcfgv1.MachineConfigPool
	if err := readYAML(filepath.Join(o.BaseDir, render.PoolsDir, name+".yaml"), &pool); err != nil {
		return failed(http.StatusInternalServerError, err)
	}
	config := pool.Status.Configuration.Name
	if config == "" || filepath.Base(config) != config {
		return failed(http.StatusInternalServerError, fmt.Errorf("pool %s names no rendered MachineConfig", name))
	}
	m := &material{config: &mcfgv1.MachineConfig{}}
	if err := readYAML(filepath.Join(o.BaseDir, render.ConfigsDir, config+".yaml"), m.config); err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			return failed(http.StatusNotFound, err)
		}
		return failed(http.StatusInternalServerError, err)
	}
	if err := m.fill(o, name); err != nil {
		return failed(http.StatusInternalServerError, fmt.Errorf("prepare pool %s: %w", name, err))
	}
	return newPoolAnswers(m)
}

// fill reads what is appended to the pool's config.
func (m *material) fill(o Options, pool string) error {
	var controller mcfgv1.ControllerConfig
	if err := readYAML(filepath.Join(o.BaseDir, render.ControllerDir, render.ControllerFile), &controller); err != nil {
		return err
	}
	m.kubeletCA, m.cloudCA = controller.Spec.KubeAPIServerServingCAData, controller.Spec.CloudProviderCAData
	if _, standalone := controller.Annotations[manifests.AnnotationStandalone]; standalone {
		m.kubeletCA = nil // it only fills a place that the API demands
	}
	return m.complete(o, pool)
}

// readKubeconfig returns the file's bytes if it is a kubeconfig with a cluster.
func readKubeconfig(file string) ([]byte, error) {
	raw, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("read kubeconfig: %w", err)
	}
	var content struct {
		Clusters []struct {
			Name string `json:"name"`
		} `json:"clusters"`
	}
	if err := yaml.Unmarshal(raw, &content); err != nil {
		return nil, fmt.Errorf("parse kubeconfig %s: it is not a YAML mapping", file)
	}
	if len(content.Clusters) == 0 {
		return nil, fmt.Errorf("parse kubeconfig %s: it names no cluster", file)
	}
	return raw, nil
}

// loadProfile returns the cluster's TLS profile, nil without one.
func loadProfile(base string) *configv1.TLSSecurityProfile {
	var server configv1.APIServer
	if readYAML(filepath.Join(base, render.APIServerDir, render.APIServerFile), &server) != nil {
		return nil
	}
	return server.Spec.TLSSecurityProfile
}

func readYAML(file string, into any) error {
	raw, err := os.ReadFile(file)
	if err != nil {
		return fmt.Errorf("read rendered object: %w", err)
	}
	if err := yaml.Unmarshal(raw, into); err != nil {
		return fmt.Errorf("parse %s: %w", file, err)
	}
	return nil
}

// fingerprint tells two states of the files apart without reading them: names, sizes, times and inodes.
func fingerprint(o Options) string {
	var b strings.Builder
	folders := []string{render.PoolsDir, render.ConfigsDir, render.ControllerDir, render.APIServerDir}
	if o.BaseDir == "" {
		folders = nil
	}
	for _, folder := range folders {
		dir := filepath.Join(o.BaseDir, folder)
		entries, err := os.ReadDir(dir)
		if err != nil {
			continue
		}
		for _, e := range entries {
			note(&b, filepath.Join(dir, e.Name()))
		}
	}
	note(&b, o.Kubeconfig)
	for _, host := range slices.Sorted(maps.Keys(o.BootstrapCerts)) {
		note(&b, o.BootstrapCerts[host])
	}
	return b.String()
}

func note(b *strings.Builder, file string) {
	if file == "" {
		return
	}
	info, err := os.Stat(file)
	if err != nil {
		fmt.Fprintf(b, "%s absent\n", file)
		return
	}
	var inode uint64 // tells a replaced file from the one before, even with equal size and time
	if stat, ok := info.Sys().(*syscall.Stat_t); ok {
		inode = stat.Ino
	}
	fmt.Fprintf(b, "%s %d %d %d\n", file, info.Size(), info.ModTime().UnixNano(), inode)
}
