package installconfig

import (
	"net"
	"strconv"
	"strings"

	"dayone.dev/dayone/installconfig/report"
)

// clusterRegistryPort is where a control-plane node's registry listens (registry/peers, Port).
const clusterRegistryPort = "22626"

// registryType is the user's, or the default: the cluster's own registries where the file would have nowhere else to
// put a generated MachineOSConfig's image.
func (c Config) registryType() RegistryType {
	r := c.Registry
	if r.Type != "" {
		return r.Type
	}
	if r.Repository != "" || r.PushSecret != "" || r.PushAuthFile != "" {
		return RegistryExternal
	}
	for _, p := range c.Pools {
		if p.PushSpec != "" {
			return RegistryExternal
		}
	}
	for _, p := range c.Pools {
		if p.Generated() {
			return RegistryCluster
		}
	}
	return RegistryExternal
}

// validateRegistryType refuses what the cluster's own registries leave no room for.
func validateRegistryType(c *Config, at locator, rep *report.Report) {
	r := c.Registry
	switch r.Type {
	case "", RegistryExternal, RegistryCluster:
	default:
		rep.Errorf(at.at("registry-type", "write cluster or external", "registry", "type"), "unknown registry %q", r.Type)
	}
	if c.registryType() != RegistryCluster {
		if r.Name != "" {
			rep.Errorf(at.at("registry-type", "write type: cluster, or remove the name", "registry", "name"),
				"the name is for the cluster's own registries only")
		}
		return
	}
	for _, k := range []struct{ key, value, next string }{
		{"repository", r.Repository, "remove it; name gives the cluster's registries another name"},
		{"pushSecret", r.PushSecret, "remove it: dayone makes the account"},
		{"pushAuthFile", r.PushAuthFile, "remove it: dayone makes the account"},
		{"baseImagePullSecret", r.BaseImagePullSecret,
			"write the account for the base image's source into pullSecret or baseImagePullAuthFile"},
	} {
		if k.value != "" {
			rep.Errorf(at.at("registry-type", k.next+", or write type: external", "registry", k.key),
				"%s is for a registry of yours, and with type cluster the images go to the cluster's own", k.key)
		}
	}
	if r.Name == "" {
		return
	}
	host, port, err := net.SplitHostPort(r.Name)
	number, portErr := strconv.ParseUint(port, 10, 16)
	if err != nil || portErr != nil || number < minImagePort || !validHost(host) {
		rep.Errorf(at.at("registry-name", "write HOST:PORT, such as registry.lab.example.com:"+clusterRegistryPort,
			"registry", "name"), "%q is not a host with a dot and a port from %d to 65535", r.Name, minImagePort)
	} else if why := Unreachable(r.Name); why != "" {
		rep.Errorf(at.at("unreachable", "name the control plane as every node reaches it", "registry", "name"),
			"no node reaches %s: %s", r.Name, why)
	}
}

// settleRegistry names the cluster's own registries.
func settleRegistry(c *Config, cluster Cluster, at locator, rep *report.Report) {
	if !c.InCluster() {
		if c.Flow == FlowOpenShift && cluster.InPlace() {
			rep.Errorf(at.at("in-place", "write registry: {type: cluster}, and the images go onto the node's own disk",
				"registry", "type"), "with bootstrapInPlace the bootstrap's registry is gone when the node boots its disk, and "+
				"only a registry of the node itself goes on")
		}
		return
	}
	if c.Registry.Name == "" {
		if cluster.Name == "" || cluster.BaseDomain == "" {
			rep.Errorf(at.at("registry-name", "write metadata.name and baseDomain, or registry.name", "registry", "name"),
				"nothing gives the cluster's own registries a name")
			return
		}
		c.Registry.Name = "api-int." + cluster.FullName() + ":" + clusterRegistryPort
	}
	b := c.BootstrapRegistry
	if c.Registry.Name == net.JoinHostPort(b.Host, strconv.Itoa(b.Port)) {
		rep.Errorf(at.at("registry-name", "give the cluster's registries another name or port", "registry", "name"),
			"%s is the bootstrap registry, which goes", c.Registry.Name)
	}
	for i, p := range c.Pools {
		if p.PushSpec != "" && !strings.HasPrefix(p.PushSpec, c.Registry.Name+"/") {
			rep.Errorf(at.at("registry-type", "remove it, or write type: external", "pools", i, "pushSpec"),
				"the image of pool %q would not be in the cluster's own registries, %s", p.Name, c.Registry.Name)
		}
	}
}
