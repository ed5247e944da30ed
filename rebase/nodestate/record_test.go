package nodestate

import (
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"dayone.dev/dayone/manifests"
)

const (
	imageA = "registry.example.com/ocp/master-os@sha256:aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"
	imageB = "registry.example.com/ocp/master-os@sha256:bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb"
)

func TestParseReadsTheDesiredImageUnderEitherKey(t *testing.T) {
	for _, c := range []struct {
		name string
		in   map[string]string
		want string
	}{
		{"neither", map[string]string{}, ""},
		{"only desiredImage", map[string]string{manifests.AnnotationDesiredImage: imageA}, imageA},
		{"only its alias", map[string]string{manifests.AnnotationDesiredOSImage: imageA}, imageA},
		{"both, the alias is out of date", map[string]string{manifests.AnnotationDesiredImage: imageB,
			manifests.AnnotationDesiredOSImage: imageA}, imageB},
	} {
		t.Run(c.name, func(t *testing.T) {
			r, err := Parse(c.in)
			require.NoError(t, err)
			assert.Equal(t, c.want, r.DesiredImage)
			patch, err := r.Patch(c.in)
			require.NoError(t, err)
			after := Apply(c.in, patch)
			assert.Equal(t, after[manifests.AnnotationDesiredImage], after[manifests.AnnotationDesiredOSImage])
			assert.Equal(t, c.want, after[manifests.AnnotationDesiredImage])
		})
	}
}

func TestPatchTouchesOnlyTheRecord(t *testing.T) {
	before := map[string]string{"other.example.com/key": "kept", manifests.MCOPrefix + "unknown": "kept",
		manifests.AnnotationCurrentConfig: "rendered-master-1", manifests.AnnotationDesiredImage: imageA,
		manifests.AnnotationDesiredOSImage: imageA}
	r, err := Parse(before)
	require.NoError(t, err)
	r.State, r.DesiredImage = StateDone, ""
	patch, err := r.Patch(before)
	require.NoError(t, err)
	assert.Equal(t, map[string]string{"other.example.com/key": "kept", manifests.MCOPrefix + "unknown": "kept",
		manifests.AnnotationCurrentConfig: "rendered-master-1", manifests.AnnotationState: "Done"}, Apply(before, patch))
	again, err := r.Patch(Apply(before, patch))
	require.NoError(t, err)
	assert.Empty(t, again, "nothing to write when nothing changes")
}

func TestBrokenNamesTheAgentsOwn(t *testing.T) {
	assert.Equal(t, []string{manifests.AnnotationCurrentConfig, manifests.AnnotationState}, Broken(map[string]string{
		manifests.AnnotationCurrentConfig: "no name", manifests.AnnotationState: "Garbage",
		manifests.AnnotationDesiredConfig: "no name", manifests.AnnotationDesiredImage: "no image", keyLastAppliedDrain: "x",
		manifests.AnnotationCurrentImage: imageA, "other.example.com/key": "\xff"}))
	assert.Empty(t, Broken(nil))
}

func TestValidateRefuses(t *testing.T) {
	for _, c := range []struct {
		name string
		r    Record
	}{
		{"an unknown state", Record{State: "Sleeping"}},
		{"an image by tag", Record{DesiredImage: "registry.example.com/ocp/master-os:latest"}},
		{"an image by tag and digest", Record{CurrentImage: strings.Replace(imageA, "@", ":v1@", 1)}},
		{"an image without a registry", Record{DesiredImage: "master-os@sha256:" + strings.Repeat("a", 64)}},
		{"a config with blanks", Record{DesiredConfig: "rendered master"}},
		{"a long config", Record{CurrentConfig: strings.Repeat("a", maxValue+1)}},
		{"a long reason", Record{Reason: strings.Repeat("a", maxReason+1)}},
		{"a reason that is not UTF-8", Record{Reason: "\xff"}},
		{"another drain verb", Record{DesiredDrain: "evict-rendered-master-1"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			require.ErrorContains(t, c.r.Validate(), "node annotation ")
			_, err := c.r.Patch(nil)
			require.Error(t, err)
		})
	}
	_, err := Record{State: StateDone}.Patch(map[string]string{"big": strings.Repeat("a", maxTotal)})
	require.ErrorContains(t, err, "bytes in all")
}

// TestNamesOfConfigs compares with the pattern that Kubernetes documents, on every text of up to six of the characters
// that matter.
func TestNamesOfConfigs(t *testing.T) {
	const name = `[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*`
	config, drain := regexp.MustCompile("^"+name+"$"), regexp.MustCompile("^(drain|uncordon)-"+name+"$")
	texts := []string{""}
	for range 6 {
		for _, s := range texts {
			for _, c := range "a9-.A\n" {
				texts = append(texts, s+string(c))
			}
		}
		slices.Sort(texts)
		texts = slices.Compact(texts)
	}
	for _, s := range texts {
		require.Equal(t, config.MatchString(s), isConfig(s), "%q", s)
		for _, verb := range []string{"drain-", "uncordon-", "drain", "evict-"} {
			require.Equal(t, drain.MatchString(verb+s), isDrain(verb+s), "%q", verb+s)
		}
	}
}

func TestSetReasonCutsBetweenCharacters(t *testing.T) {
	var r Record
	r.SetReason("x" + strings.Repeat("ä", maxReason))
	require.NoError(t, r.Validate())
	assert.True(t, strings.HasSuffix(r.Reason, "ä…"))
	r.SetReason("short \xff")
	assert.Equal(t, "short �", r.Reason)
}

func TestConvergedAndDrained(t *testing.T) {
	r := Record{State: StateDone, CurrentConfig: "a", DesiredConfig: "a", CurrentImage: imageA, DesiredImage: imageA}
	assert.True(t, r.Converged())
	r.DesiredImage = imageB
	assert.False(t, r.Converged())
	assert.False(t, r.Drained())
	r.DesiredDrain = DrainRequest(Drain, "a")
	assert.False(t, r.Drained())
	r.LastAppliedDrain = r.DesiredDrain
	assert.True(t, r.Drained())
}

func FuzzParse(f *testing.F) {
	f.Add("rendered-master-1", imageA, "Done", "why", "drain-rendered-master-1")
	f.Add("", "x", "", "\xff", "drain-")
	f.Fuzz(func(t *testing.T, config, image, state, reason, drain string) {
		in := map[string]string{manifests.AnnotationDesiredConfig: config, manifests.AnnotationDesiredOSImage: image,
			manifests.AnnotationState:  state,
			manifests.AnnotationReason: reason, keyDesiredDrain: drain, "other": "kept"}
		r, err := Parse(in)
		if err != nil {
			return
		}
		patch, err := r.Patch(in)
		require.NoError(t, err)
		after := Apply(in, patch)
		assert.Equal(t, "kept", after["other"])
		again, err := Parse(after)
		require.NoError(t, err)
		assert.Equal(t, r, again)
	})
}
