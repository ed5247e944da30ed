package serve

import (
	"fmt"
	"net/http"
	"os"

	ign35 "github.com/coreos/ignition/v2/config/v3_5/types"
	configv1 "github.com/openshift/api/config/v1"
	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"

	"dayone.dev/dayone/manifests/machineconfig"
)

// Source provides rendered configs that are not in a directory. Call Server.Reload after each change.
type Source interface {
	// Rendered is what is to be served now. It is never changed afterwards.
	Rendered() Rendered
}

// Rendered is what a Source gives: the content of a rendered directory.
type Rendered struct {
	Pools map[string]RenderedPool
	// Err is why nothing can be served yet: every pool's nodes ask again.
	Err error
	// KubeletCA and CloudCA are the ControllerConfig's.
	KubeletCA, CloudCA []byte
	// TLS is the cluster's profile; nil: the default.
	TLS *configv1.TLSSecurityProfile
}

// RenderedPool is one pool's config, or why it cannot be served now: Ignition asks again.
type RenderedPool struct {
	Config *mcfgv1.MachineConfig
	// Additions are merged after those of the options.
	Additions []ign35.Config
	Err       error
}

// loadSource is load for a Source.
func loadSource(o Options) *snapshot {
	r := o.Source.Rendered()
	s := &snapshot{pools: map[string]*poolAnswers{}, tls: r.TLS, err: r.Err}
	for name, pool := range r.Pools {
		if !o.serves(name) {
			continue
		}
		if pool.Err != nil {
			s.pools[name] = failed(http.StatusServiceUnavailable, pool.Err)
			continue
		}
		m := &material{config: pool.Config, kubeletCA: r.KubeletCA, cloudCA: r.CloudCA}
		if err := m.complete(o, name); err != nil {
			s.pools[name] = failed(http.StatusInternalServerError, fmt.Errorf("prepare pool %s: %w", name, err))
			continue
		}
		m.additions = append(m.additions, pool.Additions...)
		s.pools[name] = newPoolAnswers(m)
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
