package installconfig

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"dayone.dev/dayone/installconfig/report"
)

// registryOf is the sample's with other words for its pools and its registry.
func registryOf(t *testing.T, pools, rest string) (*Sidecar, error) {
	t.Helper()
	text := strings.Replace(sample, "  pools:\n  - name: master\n  - name: worker # later\n", "  pools:\n"+pools+rest, 1)
	require.NotEqual(t, sample, text)
	doc, err := parse([]byte(text))
	if err != nil {
		return nil, err
	}
	return doc.Resolve(t.TempDir())
}

const generated = "  - {name: master, containerfile: FROM configs}\n"

// TestRegistryType: what worked before goes where it went, and what had nowhere to go goes to the cluster's own.
func TestRegistryType(t *testing.T) {
	for _, c := range []struct {
		name, pools, registry string
		want                  RegistryType
		named                 string
	}{
		{"nothing is said", generated, "", RegistryCluster, "api-int.demo.example.com:22626"},
		{"MachineOSConfigs of the user's", "  - name: master\n", "", RegistryExternal, ""},
		{"it is asked for", "  - name: master\n", "  registry: {type: cluster}\n", RegistryCluster,
			"api-int.demo.example.com:22626"},
		{"another name", generated, "  registry: {type: cluster, name: 'images.example.com:5000'}\n", RegistryCluster,
			"images.example.com:5000"},
		{"a repository", generated, "  registry: {repository: registry.example.com/ocp, pushSecret: a}\n",
			RegistryExternal, ""},
		{"a push spec", "  - {name: master, containerfile: FROM configs, pushSpec: 'registry.example.com/a/b:1'}\n",
			"  registry: {pushSecret: a}\n", RegistryExternal, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			s, err := registryOf(t, c.pools, c.registry)
			require.NoError(t, err)
			assert.Equal(t, c.want, s.Config.Registry.Type)
			assert.Equal(t, c.named, s.Config.Registry.Name)
		})
	}
}

func TestRegistryTypeRefuses(t *testing.T) {
	for _, c := range []struct{ name, pools, registry, rule, path string }{
		{"unknown", "  - name: master\n", "  registry: {type: mine}\n", "registry-type", "registry.type"},
		{"a name without the cluster", "  - name: master\n", "  registry: {name: 'a.example.com:5000'}\n", "registry-type",
			"registry.name"},
		{"a repository", generated, "  registry: {type: cluster, repository: registry.example.com/ocp}\n", "registry-type",
			"registry.repository"},
		{"a push Secret", generated, "  registry: {type: cluster, pushSecret: a}\n", "registry-type", "registry.pushSecret"},
		{"a base's Secret", generated, "  registry: {type: cluster, baseImagePullSecret: a}\n", "registry-type",
			"registry.baseImagePullSecret"},
		{"a name without a port", generated, "  registry: {type: cluster, name: a.example.com}\n", "registry-name",
			"registry.name"},
		{"a name without a dot", generated, "  registry: {type: cluster, name: 'a:5000'}\n", "registry-name",
			"registry.name"},
		{"a port that images cannot have", generated, "  registry: {type: cluster, name: 'a.example.com:5'}\n",
			"registry-name", "registry.name"},
		{"each node itself", generated, "  registry: {type: cluster, name: '127.0.0.1:5000'}\n", "unreachable",
			"registry.name"},
		{"the bootstrap host", generated, "  registry: {type: cluster, name: '192.0.2.1:9500'}\n", "registry-name",
			"registry.name"},
		{"another registry's push spec", "  - {name: master, containerfile: a, pushSpec: 'registry.example.com/a/b:1'}\n",
			"  registry: {type: cluster}\n", "registry-type", "pools[0].pushSpec"},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := registryOf(t, c.pools, c.registry)
			found := report.Of(err)
			require.NotEmpty(t, found, "%v", err)
			assert.Equal(t, c.rule, found[0].Rule)
			assert.Equal(t, Field+"."+c.path, found[0].Path)
		})
	}
}

// TestRegistryTypeOfTheOpenShiftFlow: it is the same there, asked for or the default.
func TestRegistryTypeOfTheOpenShiftFlow(t *testing.T) {
	for _, c := range []struct {
		name, registry string
		want           RegistryType
	}{
		{"asked for", "  registry: {type: cluster}\n", RegistryCluster},
		{"nothing is said", "", RegistryCluster},
		{"a registry of the user's", "  registry: {repository: registry.example.com/ocp, pushSecret: a}\n",
			RegistryExternal},
	} {
		t.Run(c.name, func(t *testing.T) {
			text := strings.Replace(sample, "flow: standalone", "flow: openshift", 1)
			text = strings.Replace(text, "  pools:\n  - name: master\n", c.registry+"  pools:\n"+generated, 1)
			text = strings.Replace(text, "  baseImage: registry.example.com/ocp/base-os:1\n", "", 1)
			doc, err := parse([]byte(text))
			require.NoError(t, err)
			s, err := doc.Resolve(t.TempDir())
			require.NoError(t, err)
			assert.Equal(t, c.want, s.Config.Registry.Type)
		})
	}
}

// TestInPlace checks that a node that bootstraps itself must use the cluster's own registry.
func TestInPlace(t *testing.T) {
	const disk = "bootstrapInPlace: {installationDisk: /dev/sda}\n"
	for _, c := range []struct{ name, top, field, rule string }{
		{"as it must be", disk, "  registry: {type: cluster}\n", ""},
		{"no disk", "bootstrapInPlace: {other: a}\n", "  registry: {type: cluster}\n", "in-place"},
		{"three masters", strings.Replace(disk, "boot", "controlPlane: {name: master, replicas: 3}\nboot", 1),
			"  registry: {type: cluster}\n", "in-place"},
		{"another registry", disk, "  registry: {repository: registry.example.com/a, pushSecret: a}\n", "in-place"},
		{"a bootstrap registry", disk, "  registry: {type: cluster}\n  bootstrapRegistry: {port: 9501}\n", "in-place"},
		{"a hand-over", disk, "  registry: {type: cluster}\n  handOver: {policy: skip}\n", "in-place"},
		{"a fallback", disk, "  registry: {type: cluster}\n  onFailure: fallback\n", "in-place"},
	} {
		t.Run(c.name, func(t *testing.T) {
			top := c.top
			if !strings.Contains(top, "controlPlane") {
				top = "controlPlane: {name: master, replicas: 1}\n" + top
			}
			doc, err := parse([]byte("metadata: {name: demo}\nbaseDomain: example.com\n" + top + Field +
				":\n  flow: openshift\n" + c.field + "  pools:\n" + generated))
			var side *Sidecar
			if err == nil {
				var rep report.Report
				rep.Add(doc.Check(doc.Config)...)
				require.NoError(t, rep.Err())
				side, err = doc.Resolve(t.TempDir())
			}
			if c.rule == "" {
				require.NoError(t, err)
				assert.True(t, side.Cluster.InPlace())
				assert.Equal(t, InPlaceIgnition, side.Cluster.IgnitionFile())
				assert.Equal(t, "api-int.demo.example.com:22626", side.Config.Registry.Name)
				return
			}
			found := report.Of(err)
			require.NotEmpty(t, found, "%v", err)
			assert.Equal(t, c.rule, found[0].Rule, "%v", err)
			assert.NotEmpty(t, found[0].Next)
		})
	}
}
