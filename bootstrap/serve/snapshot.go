package serve

import (
	"cmp"
	"fmt"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	configv1 "github.com/openshift/api/config/v1"
	"sigs.k8s.io/yaml"

	"dayone.dev/dayone/manifests/machineconfig"
	"dayone.dev/dayone/manifests/render"
)

// snapshot is what was rendered at one moment; it never changes.
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

// load reads everything. An error becomes the answer of the pools concerned; load itself does not fail.
func load(o Options) *snapshot {
	var r Rendered
	if o.Source != nil {
		r = o.Source.Rendered()
	} else {
		r = readRendered(o)
	}
	s := &snapshot{pools: map[string]*poolAnswers{}, tls: r.TLS, err: r.Err}
	for name, pool := range r.Pools {
		if !o.serves(name) {
			continue
		}
		if pool.Err != nil {
			s.pools[name] = failed(cmp.Or(pool.status, http.StatusServiceUnavailable), pool.Err)
			continue
		}
		m := &material{config: pool.Config, kubeletCA: r.KubeletCA, cloudCA: r.CloudCA}
		if err := m.complete(o, name); err != nil {
			s.pools[name] = failed(http.StatusInternalServerError, fmt.Errorf("prepare pool %s: %w", name, err))
			continue
		}
		m.additions = append(m.additions, pool.Additions...)
		s.pools[name] = newPoolAnswers(m)
		for _, choice := range pool.Choices {
			one := *m
			one.additions = append(slices.Clone(m.additions), choice)
			s.pools[name].choices = append(s.pools[name].choices, newPoolAnswers(&one))
		}
	}
	return s
}

// complete parses the config and reads what the options append to it.
func (m *material) complete(o Options, pool string) error {
	var err error
	if m.ignition, err = machineconfig.ParseRendered(m.config.Spec.Config.Raw); err != nil {
		return fmt.Errorf("parse Ignition config of %s: %w", m.config.Name, err)
	}
	if o.Kubeconfig != "" {
		if m.kubeconfig, err = readKubeconfig(o.Kubeconfig); err != nil {
			return err
		}
	}
	m.certs = map[string][]byte{}
	for host, file := range o.BootstrapCerts {
		if m.certs[host], err = os.ReadFile(file); err != nil {
			return fmt.Errorf("read certificate for %s: %w", host, err)
		}
	}
	for _, key := range []string{"", pool} {
		if addition, ok := o.Additions[key]; ok {
			m.additions = append(m.additions, addition)
		}
	}
	return nil
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
