package standalone_test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"dayone.dev/dayone/bootstrap/journal"
	"dayone.dev/dayone/build/buildtest"
	"dayone.dev/dayone/installconfig"
	"dayone.dev/dayone/registry/credentials"
	"dayone.dev/dayone/registry/registrytest"
)

// trusting writes CAs and credentials of registries, and more, into install-config.yaml's part of the installer.
func (b *bench) trusting(more string, registries ...*registrytest.Registry) {
	b.t.Helper()
	var bundle string
	var auths []byte
	for _, r := range registries {
		ca, err := os.ReadFile(r.CAFile)
		require.NoError(b.t, err)
		bundle += "  " + strings.ReplaceAll(strings.TrimSpace(string(ca)), "\n", "\n  ") + "\n"
		auth, err := os.ReadFile(r.PullAuthFile)
		require.NoError(b.t, err)
		auths, err = credentials.Merge(auths, auth)
		require.NoError(b.t, err)
	}
	secret, err := json.Marshal(string(auths)) // a JSON string is a YAML string
	require.NoError(b.t, err)
	file := filepath.Join(b.order.Dir, installconfig.FileName)
	raw, err := os.ReadFile(file)
	require.NoError(b.t, err)
	before, _, _ := strings.Cut(string(raw), "pullSecret:")
	require.NoError(b.t, os.WriteFile(file, []byte(before+"pullSecret: "+string(secret)+
		"\nadditionalTrustBundlePolicy: Always\nadditionalTrustBundle: |\n"+bundle+more), 0o600))
}

// TestContainerfileNamesAMirroredImage: a Containerfile copies from an image of a private registry that only its mirror
// still has, as in the cluster.
func TestContainerfileNamesAMirroredImage(t *testing.T) {
	source, mirror := registrytest.Start(t), registrytest.Start(t)
	tools := buildtest.Push(t, mirror, buildtest.Base{Fixed: true, NotBootable: true, Repository: "copies/tools",
		Files: map[string]string{"/usr/share/tool.txt": "a tool"}}).Reference
	_, digest, _ := strings.Cut(tools, "@")
	b := newBench(t)
	b.trusting(fmt.Sprintf("imageDigestSources:\n- source: %s/os\n  mirrors: [%s/copies]\n", source.Addr, mirror.Addr),
		source, mirror)
	file := filepath.Join(b.order.Dir, "layering/master.yaml")
	raw, err := os.ReadFile(file)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(file, []byte(strings.Replace(string(raw), "RUN GREETING", "COPY --from="+source.Addr+
		"/os/tools@"+digest+" /usr/share/tool.txt /usr/share/tool.txt\n      RUN grep -q tool /usr/share/tool.txt\n      "+
		"RUN GREETING", 1)), 0o600))
	events, output, err := b.run("build-master", string(journal.EventRecorded))
	require.ErrorContains(t, err, "killed", output)
	assert.Contains(t, events, "build-master "+string(journal.EventRecorded), output)
}

// TestBaseImageAtItsMirrors reads the base image where imageDigestSources says: at the mirror first, then at the
// source, each a registry with a CA and accounts of its own.
func TestBaseImageAtItsMirrors(t *testing.T) {
	source, mirror := registrytest.Start(t), registrytest.Start(t)
	at := func(r *registrytest.Registry, repository string) string {
		return buildtest.Push(t, r, buildtest.Base{Fixed: true, Repository: repository}).Reference
	}
	both, onlySource := at(source, "os/both"), at(source, "os/source")
	at(mirror, "copies/both")
	_, digest, _ := strings.Cut(at(mirror, "copies/mirror"), "@")
	onlyMirror := source.Addr + "/os/mirror@" + digest
	for _, c := range []struct {
		name, image, policy, says string
		stopped                   *registrytest.Registry
	}{
		{name: "only the mirror has it", image: onlyMirror},
		{name: "only the source has it", image: onlySource},
		{name: "the mirror is down", image: both, stopped: mirror},
		{name: "the source is down", image: both, stopped: source},
		{name: "the source must not be asked", image: onlySource, policy: "NeverContactSource",
			says: "is blocked"},
		{name: "the source need not be asked", image: onlyMirror, policy: "NeverContactSource"},
		{name: "by tag", image: source.Addr + "/os/mirror:v1", says: "count for a name with a digest only"},
	} {
		t.Run(c.name, func(t *testing.T) {
			b := newBench(t)
			policy := c.policy
			if policy == "" {
				policy = "AllowContactingSource"
			}
			b.trusting(fmt.Sprintf("imageDigestSources:\n- source: %s/os\n  mirrors: [%s/copies]\n  sourcePolicy: %s\n",
				source.Addr, mirror.Addr, policy), source, mirror)
			b.order.Source = c.image
			if c.stopped != nil {
				c.stopped.Stop(t)
				defer c.stopped.Restart(t)
			}
			events, output, err := b.run("base", string(journal.EventRecorded))
			require.Error(t, err)
			if c.says != "" {
				assert.Contains(t, output, c.says)
				return
			}
			assert.Contains(t, events, "base "+string(journal.EventRecorded), output)
		})
	}
}
