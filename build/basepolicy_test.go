package build_test

import (
	"cmp"
	"encoding/base64"
	"fmt"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"dayone.dev/dayone/build"
	"dayone.dev/dayone/build/buildtest"
	"dayone.dev/dayone/build/sign"
	"dayone.dev/dayone/registry/registrytest"
	"dayone.dev/dayone/registry/transfer"
)

// baseRepository is the base image's own; the registry of the test has a copy.
const baseRepository = "registry.example.com/ocp/base-os"

// signedBy is a policy.json that takes anything but images of a scope without a signature by the key.
func signedBy(key sign.PublicKey, scope string) string {
	return fmt.Sprintf(`{"default":[{"type":"insecureAcceptAnything"}],"transports":{"docker":{%q:[{
		"type":"sigstoreSigned","keyData":%q,"signedIdentity":{"type":"matchRepository"}}]}}}`, scope, base64.StdEncoding.EncodeToString(key))
}

// TestBasePolicy: nothing is built from a base that a policy does not allow, and provenance says when none was asked.
func TestBasePolicy(t *testing.T) {
	reg := registrytest.Start(t)
	key, err := sign.LoadOrCreate(t.TempDir())
	require.NoError(t, err)
	other, err := sign.LoadOrCreate(t.TempDir())
	require.NoError(t, err)
	image := func(content string, signed bool) build.Image {
		i := buildtest.Push(t, reg, buildtest.Base{Files: map[string]string{"/usr/share/which": content}})
		if signed {
			_, err := key.Sign(t.Context(), sign.Image{Repository: baseRepository, Endpoint: transfer.Endpoint{
				Reference: i.Reference, CAFile: reg.CAFile, AuthFile: reg.PushAuthFile}})
			require.NoError(t, err)
		}
		return i
	}
	signed, unsigned := image("signed", true), image("unsigned", false)
	const nodes, reject = "/etc/containers/policy.json", `{"default":[{"type":"reject"}]}`
	const pods = "/etc/crio/policies/openshift-machine-config-operator.json"
	const anything = `[{"type":"insecureAcceptAnything"},{`
	for _, c := range []struct {
		name string
		base build.Image
		// policy is the explicit one, rendered that of the nodes, in file.
		policy, rendered, file string
		refused, by            string
	}{
		{name: "no policy", base: unsigned},
		{name: "signed", base: signed, policy: signedBy(key.Public, baseRepository), by: "baseImagePolicy"},
		{name: "unsigned", base: unsigned, policy: signedBy(key.Public, baseRepository), refused: "no signature exists"},
		{name: "signed by another", base: signed, policy: signedBy(other.Public, baseRepository), refused: baseRepository},
		{name: "rejected by default", base: signed, policy: reject, refused: "default of baseImagePolicy"},
		{name: "no policy at all", base: signed, policy: "{", refused: "baseImagePolicy"},
		{name: "the nodes' policy, signed", base: signed, rendered: signedBy(key.Public, "registry.example.com"), by: nodes},
		{name: "the nodes' policy, unsigned", base: unsigned, rendered: signedBy(key.Public, baseRepository),
			refused: "of " + nodes},
		{name: "the nodes' policy, signed by another", base: signed, rendered: signedBy(other.Public, baseRepository),
			refused: "kubectl get clusterimagepolicies"},
		{name: "the nodes' policy, merged into one that takes anything", base: unsigned, rendered: strings.Replace(
			signedBy(key.Public, baseRepository), "[{\n", anything, 1), refused: "no signature exists"},
		{name: "the pods' policy, signed", base: signed, rendered: signedBy(key.Public, baseRepository), file: pods,
			by: pods},
		{name: "the pods' policy, unsigned", base: unsigned, rendered: signedBy(key.Public, baseRepository), file: pods,
			refused: "kubectl get imagepolicies -n openshift-machine-config-operator"},
		{name: "another namespace's policy", base: unsigned, rendered: signedBy(key.Public, baseRepository),
			file: "/etc/crio/policies/default.json"},
		{name: "the nodes' policy of other images", base: unsigned, rendered: signedBy(key.Public, final)},
		{name: "the nodes' policy rejects by default", base: unsigned, rendered: reject},
		{name: "the nodes' keys are in files there", base: unsigned, rendered: strings.Replace(signedBy(key.Public,
			baseRepository), "keyData", "keyPath", 1)},
		{name: "both", base: signed, policy: signedBy(key.Public, baseRepository),
			rendered: signedBy(key.Public, baseRepository), by: "baseImagePolicy, " + nodes},
	} {
		t.Run(c.name, func(t *testing.T) {
			for _, engine := range []build.Engine{build.EngineAppend, build.EngineBuildah} {
				r := buildtest.Request(t, reg, c.base, inline)
				_, digest, _ := strings.Cut(c.base.Reference, "@")
				r.BaseName, r.Final = baseRepository+"@"+digest, final
				r.Options.BasePolicy, r.Options.Rebuild, r.Options.Engine = []byte(c.policy), true, engine
				if c.rendered != "" {
					r.Config = buildtest.Config(t, map[string]string{cmp.Or(c.file, nodes): url.PathEscape(c.rendered)})
				}
				result, err := build.NewBuilder(build.BuilderOptions{RetryDelay: time.Millisecond,
					Keys: &sign.Keys{Key: key}}).Build(t.Context(), r)
				if c.refused == "" && engine == build.EngineBuildah {
					continue // there is none here; its own tests build
				}
				if c.refused != "" {
					f := build.AsFailure(err)
					require.NotNil(t, f, "%v", err)
					assert.Equal(t, "base", f.Step)
					assert.Contains(t, f.Error(), c.refused)
					assert.Equal(t, c.policy != "{", build.BaseRefused(err), "signatures may help")
					continue
				}
				require.NoError(t, err)
				p, err := sign.ReadProvenance(t.Context(), sign.Image{Repository: final, Endpoint: transfer.Endpoint{
					Reference: result.Reference, CAFile: reg.CAFile, AuthFile: reg.PullAuthFile}}, key.Public)
				require.NoError(t, err)
				base := p.BuildDefinition.ResolvedDependencies[0]
				assert.Equal(t, "docker://"+r.BaseName, base.URI)
				assert.Equal(t, fmt.Sprint(c.by != ""), base.Annotations[sign.AnnotationVerified])
				assert.Equal(t, c.by, base.Annotations[sign.AnnotationPolicy])
			}
		})
	}
}

// TestBaseRegistryAway: a registry that cannot be asked for signatures is no refusal.
func TestBaseRegistryAway(t *testing.T) {
	reg := registrytest.Start(t)
	key, err := sign.LoadOrCreate(t.TempDir())
	require.NoError(t, err)
	r := buildtest.Request(t, reg, buildtest.Push(t, reg, buildtest.Base{}), inline)
	_, digest, _ := strings.Cut(r.Base.Reference, "@")
	r.Base.Reference = "127.0.0.1:1/os/base@" + digest
	r.Options.BasePolicy, r.Options.Attempts = []byte(signedBy(key.Public, "127.0.0.1:1/os/base")), 1
	_, err = build.NewBuilder(build.BuilderOptions{RetryDelay: time.Millisecond}).Build(t.Context(), r)
	f := build.AsFailure(err)
	require.NotNil(t, f, "%v", err)
	assert.Equal(t, build.ClassTransient, f.Class)
}
