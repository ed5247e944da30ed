package serve

import (
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"strings"

	ign35 "github.com/coreos/ignition/v2/config/v3_5/types"
	configv1 "github.com/openshift/api/config/v1"
	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	"sigs.k8s.io/yaml"

	"dayone.dev/dayone/manifests"
	"dayone.dev/dayone/manifests/render"
)

// Source provides rendered configs that are not in a directory. Call Server.Reload after each change.
type Source interface {
	// Rendered is what is to be served now. It is never changed afterwards.
	Rendered() Rendered
}

// Rendered is what a Source provides: the content of a rendered directory.
type Rendered struct {
	Pools map[string]RenderedPool
	// Err is why nothing can be served yet: every pool's nodes ask again.
	Err error
	// KubeletCA and CloudCA are the ControllerConfig's.
	KubeletCA, CloudCA []byte
	// TLS is the cluster's profile; nil: the default.
	TLS *configv1.TLSSecurityProfile
}

// RenderedPool is one pool's config, or why it cannot be served now.
type RenderedPool struct {
	Config *mcfgv1.MachineConfig
	// Additions are merged after those of the options.
	Additions []ign35.Config
	// Choices are alternatives of which each client gets one, always the same as long as there are as many; it is merged
	// last. So clients spread over what the alternatives name in another order.
	Choices []ign35.Config
	Err     error
	// status answers while Err is set; 0: 503, after which Ignition asks again.
	status int
}

// readRendered reads a rendered directory. What is missing or broken becomes the error of the pools concerned.
func readRendered(o Options) Rendered {
	r := Rendered{Pools: map[string]RenderedPool{}}
	var server configv1.APIServer
	if readYAML(filepath.Join(o.BaseDir, render.APIServerDir, render.APIServerFile), &server) == nil {
		r.TLS = server.Spec.TLSSecurityProfile
	}
	entries, err := os.ReadDir(filepath.Join(o.BaseDir, render.PoolsDir))
	if err != nil {
		return r
	}
	var controller mcfgv1.ControllerConfig
	broken := readYAML(filepath.Join(o.BaseDir, render.ControllerDir, render.ControllerFile), &controller)
	r.KubeletCA, r.CloudCA = controller.Spec.KubeAPIServerServingCAData, controller.Spec.CloudProviderCAData
	if _, standalone := controller.Annotations[manifests.AnnotationStandalone]; standalone {
		r.KubeletCA = nil // it only fills a field that the API demands
	}
	for _, entry := range entries {
		name, isYAML := strings.CutSuffix(entry.Name(), ".yaml")
		if !isYAML || !o.serves(name) {
			continue
		}
		p := readPool(o.BaseDir, name)
		if p.Err == nil && broken != nil {
			p = RenderedPool{Err: fmt.Errorf("prepare pool %s: %w", name, broken), status: http.StatusInternalServerError}
		}
		r.Pools[name] = p
	}
	return r
}

// readPool reads the config that the pool's file names.
func readPool(base, name string) RenderedPool {
	p := RenderedPool{Config: &mcfgv1.MachineConfig{}, status: http.StatusInternalServerError}
	var pool mcfgv1.MachineConfigPool
	if p.Err = readYAML(filepath.Join(base, render.PoolsDir, name+".yaml"), &pool); p.Err != nil {
		return p
	}
	config := pool.Status.Configuration.Name
	if config == "" || filepath.Base(config) != config {
		p.Err = fmt.Errorf("pool %s names no rendered MachineConfig", name)
		return p
	}
	p.Err = readYAML(filepath.Join(base, render.ConfigsDir, config+".yaml"), p.Config)
	if errors.Is(p.Err, fs.ErrNotExist) {
		p.status = http.StatusNotFound
	}
	return p
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
