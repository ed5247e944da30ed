package mirrors

import (
	"strings"
	"testing"

	"github.com/BurntSushi/toml"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"dayone.dev/dayone/manifests"
)

func TestMergeKeepsTheOrderOfEachList(t *testing.T) {
	for _, c := range []struct {
		name  string
		lists [][]string
		want  []string
	}{
		{"one list", [][]string{{"a", "b"}}, []string{"a", "b"}},
		{"lists that agree", [][]string{{"b", "c"}, {"a", "b"}}, []string{"a", "b", "c"}},
		{"lists that contradict", [][]string{{"a", "b"}, {"b", "a"}}, []string{"a", "b"}},
		{"the source ends a list", [][]string{{"a", "source", "b"}}, []string{"a"}},
		{"nothing in common", [][]string{{"x"}, {"a"}}, []string{"x", "a"}},
		{"one mirror twice in one list", [][]string{{"a", "a", "b"}}, []string{"a", "b"}},
	} {
		assert.Equal(t, c.want, merge("source", c.lists), c.name)
	}
}

func objects(t *testing.T, text string) *manifests.Set {
	t.Helper()
	set, err := manifests.Read([]byte(text), "m.yaml", manifests.ReadOptions{})
	require.NoError(t, err)
	return set
}

const idms = "apiVersion: config.openshift.io/v1\nkind: ImageDigestMirrorSet\nmetadata: {name: a}\n" +
	"spec: {imageDigestMirrors: ["
const image = "apiVersion: config.openshift.io/v1\nkind: Image\nmetadata: {name: cluster}\nspec: {registrySources: {"

func TestContradictionsAreRefusedByRule(t *testing.T) {
	for _, c := range []struct {
		name       string
		text, rule string
	}{
		{"a source with a tag", idms + `{source: "a.example.com/b:1x", mirrors: [m.example.com]}]}`,
			"mirror-scope"},
		{"a mirror with a scheme", idms + `{source: a.example.com, mirrors: ["https://m.example.com"]}]}`,
			"mirror-scope"},
		{"a wildcard as mirror", idms + `{source: a.example.com, mirrors: ["*.example.com"]}]}`, "mirror-scope"},
		{"two policies for a source", idms +
			`{source: a.example.com, mirrors: [m.example.com]},
				{source: a.example.com, mirrors: [m.example.com], mirrorSourcePolicy: NeverContactSource}]}`,
			"mirror-source-policy"},
		{"never contacted, but its mirror", idms +
			`{source: a.example.com, mirrors: [a.example.com], mirrorSourcePolicy: NeverContactSource}]}`,
			"mirror-source-policy"},
		{"allowed and blocked", image +
			"allowedRegistries: [a.example.com], blockedRegistries: [b.example.com]}}", "allowed-and-blocked"},
		{"two policies over digests and tags", idms + "{source: a.example.com, mirrors: [b.example.com]}]}\n---\n" +
			"apiVersion: config.openshift.io/v1\nkind: ImageTagMirrorSet\nmetadata: {name: t}\nspec: {imageTagMirrors: [" +
			"{source: a.example.com, mirrors: [b.example.com], mirrorSourcePolicy: NeverContactSource}]}",
			"mirror-source-policy"},
		{"a bad wildcard", image + `blockedRegistries: ["a.*.example.com"]}}`, "registry-scope"},
		{"a search registry with a path", image + `containerRuntimeSearchRegistries: [a.example.com/b]}}`,
			"registry-scope"},
	} {
		t.Run(c.name, func(t *testing.T) {
			files, findings, err := Files(objects(t, c.text), nil)
			require.NoError(t, err)
			assert.Empty(t, files)
			require.NotEmpty(t, findings)
			assert.Equal(t, c.rule, findings[0].Rule)
			assert.NotEmpty(t, findings[0].Next)
		})
	}
}

func TestTrustedCAOfAClusterWithoutMCO(t *testing.T) {
	const controller = "\n---\napiVersion: machineconfiguration.openshift.io/v1\nkind: ControllerConfig\n" +
		"metadata: {name: machine-config-controller}\nspec: {"
	for _, c := range []struct {
		name, more string
		want       int
	}{
		{"dayone's ControllerConfig", controller + "baseOSContainerImage: a.example.com/b}", 1},
		{"MCO's", controller + "infra: {metadata: {name: cluster}}}", 0},
		{"none yet: MCO makes it", "", 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			trusting := strings.Replace(image, "registrySources: {", "additionalTrustedCA: {name: ours}, registrySources: {", 1)
			_, findings, err := Files(objects(t, trusting+"}}"+c.more), nil)
			require.NoError(t, err)
			require.Len(t, findings, c.want)
			if c.want > 0 {
				assert.Equal(t, "trusted-ca-without-mco", findings[0].Rule)
			}
		})
	}
}

func TestNothingAskedForIsNoFile(t *testing.T) {
	for _, text := range []string{idms + `{source: a.example.com, mirrors: [a.example.com]}]}`, image + "}}"} {
		files, findings, err := Files(objects(t, text), nil)
		require.NoError(t, err)
		assert.Empty(t, files)
		assert.Empty(t, findings)
	}
}

// conf reads registries.conf back.
func conf(t *testing.T, text string) map[string]registry {
	t.Helper()
	files, findings, err := Files(objects(t, text), nil)
	require.NoError(t, err)
	require.Empty(t, findings)
	require.Equal(t, RegistriesPath, files[0].Path)
	var c registriesConf
	_, err = toml.Decode(string(files[0].Data), &c)
	require.NoError(t, err)
	out := map[string]registry{}
	for _, r := range c.Registries {
		out[r.Prefix+r.Location] = r
	}
	return out
}

func TestNestedScopesInheritMirrorsAndMarks(t *testing.T) {
	got := conf(t, idms+"{source: a.example.com/org, mirrors: [m.example.com/org]}]}\n---\n"+
		image+`insecureRegistries: [a.example.com/org/lab, m.example.com],
			blockedRegistries: ["*.bad.example.com", a.example.com/org/lab/x]}}`)
	assert.Equal(t, []mirror{{Location: "m.example.com/org", Insecure: true, Pull: "digest-only"}},
		got["a.example.com/org"].Mirrors)
	lab := got["a.example.com/org/lab"]
	assert.True(t, lab.Insecure)
	assert.Equal(t, "m.example.com/org/lab", lab.Mirrors[0].Location)
	deep := got["a.example.com/org/lab/x"]
	assert.True(t, deep.Blocked)
	assert.True(t, deep.Insecure)
	assert.Equal(t, "m.example.com/org/lab/x", deep.Mirrors[0].Location)
	assert.True(t, got["*.bad.example.com"].Blocked)
	assert.False(t, got["a.example.com/org"].Insecure)
}

func TestTheReleaseImageStaysReachable(t *testing.T) {
	const digest = "sha256:0000000000000000000000000000000000000000000000000000000000000000"
	const release = "apiVersion: machineconfiguration.openshift.io/v1\nkind: ControllerConfig\nmetadata: {name: c}\n" +
		"spec: {releaseImage: \"quay.example.com/release/images@" + digest + "\"}\n---\n"
	const block = image + "blockedRegistries: [quay.example.com]}}"
	files, findings, err := Files(objects(t, release+block), nil)
	require.NoError(t, err)
	require.Len(t, findings, 1)
	assert.Equal(t, "release-image-blocked", findings[0].Rule)
	assert.Empty(t, files)
	mirrored := release + block + "\n---\n" + idms +
		"{source: quay.example.com/release, mirrors: [m.example.com/release]}]}"
	assert.True(t, conf(t, mirrored)["quay.example.com"].Blocked)
	files, _, err = Files(objects(t, mirrored), nil)
	require.NoError(t, err)
	require.Len(t, files, 2)
	assert.JSONEq(t, `{"default":[{"type":"insecureAcceptAnything"}],"transports":{
		"atomic":{"quay.example.com":[{"type":"reject"}],"quay.example.com/release/images":[{"type":"insecureAcceptAnything"}]},
		"docker":{"quay.example.com":[{"type":"reject"}],"quay.example.com/release/images":[{"type":"insecureAcceptAnything"}]},
		"docker-daemon":{"":[{"type":"insecureAcceptAnything"}]}}}`, string(files[1].Data),
		"the mirror serves the release under its own name, which the policy must accept, as MCO's does")
}

func TestTagMirrorsFollowDigestMirrors(t *testing.T) {
	got := conf(
		t, "apiVersion: config.openshift.io/v1\nkind: ImageTagMirrorSet\nmetadata: {name: a}\n"+
			"spec: {imageTagMirrors: [{source: a.example.com, mirrors: [t.example.com]}]}\n---\n"+
			idms+"{source: a.example.com, mirrors: [d.example.com]}]}")
	assert.Equal(t, []mirror{{Location: "d.example.com", Pull: "digest-only"},
		{Location: "t.example.com", Pull: "tag-only"}}, got["a.example.com"].Mirrors)
}

func TestAllowedRegistries(t *testing.T) {
	files, _, err := Files(objects(t, image+"allowedRegistries: [a.example.com]}}"), nil)
	require.NoError(t, err)
	require.Len(t, files, 1)
	assert.Equal(t, PolicyPath, files[0].Path)
	assert.True(t, strings.HasPrefix(string(files[0].Data), `{"default":[{"type":"reject"}]`))
}

func TestDeepScopesAreNoneOfTheAtomicTransport(t *testing.T) {
	files, _, err := Files(objects(t, image+"allowedRegistries: [a.example.com/b/c/d]}}"), nil)
	require.NoError(t, err)
	require.Len(t, files, 1)
	assert.Contains(t, string(files[0].Data), `"atomic":{},"docker":{"a.example.com/b/c/d":`)
}
