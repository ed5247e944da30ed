package forecastcontroller

import (
	"context"
	"fmt"
	"sync"

	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// maxConfigs is how many rendered configs are kept: those that pools have and go to. One has up to a megabyte.
const maxConfigs = 12

// configs reads rendered configs, which nobody changes.
type configs struct {
	live client.Reader
	mu   sync.Mutex
	// known are in the order of their last use, the latest last.
	known []*mcfgv1.MachineConfig
}

func newConfigs(live client.Reader) *configs { return &configs{live: live} }

// of gives the rendered configs of these names; one that is gone is left out.
func (c *configs) of(ctx context.Context, names map[string]bool) (map[string]*mcfgv1.MachineConfig, error) {
	out := map[string]*mcfgv1.MachineConfig{}
	for name := range names {
		mc, err := c.one(ctx, name)
		if err != nil {
			return nil, err
		}
		if mc != nil {
			out[name] = mc
		}
	}
	return out, nil
}

func (c *configs) one(ctx context.Context, name string) (*mcfgv1.MachineConfig, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for i, mc := range c.known {
		if mc.Name == name {
			c.known = append(append(c.known[:i:i], c.known[i+1:]...), mc)
			return mc, nil
		}
	}
	mc := &mcfgv1.MachineConfig{}
	if err := c.live.Get(ctx, client.ObjectKey{Name: name}, mc); client.IgnoreNotFound(err) != nil {
		return nil, fmt.Errorf("read rendered config %s: %w", name, err)
	} else if err != nil {
		return nil, nil //nolint:nilerr // not found is an answer
	}
	mc.ManagedFields = nil
	c.known = append(c.known, mc)
	c.known = c.known[max(0, len(c.known)-maxConfigs):]
	return mc, nil
}
