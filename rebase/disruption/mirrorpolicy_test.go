package disruption_test

import (
	"testing"

	opv1 "github.com/openshift/api/operator/v1"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"dayone.dev/dayone/manifests"
	"dayone.dev/dayone/rebase/disruption"
)

// mirrors is a MachineConfiguration with rules for kinds, as "kind action", and the annotation of earlier versions.
func mirrors(annotation string, rules ...[2]string) *opv1.MachineConfiguration {
	out := &opv1.MachineConfiguration{ObjectMeta: metav1.ObjectMeta{Name: "cluster"}}
	if annotation != "" {
		out.Annotations = map[string]string{manifests.AnnotationMirrorPolicy: annotation}
	}
	for _, r := range rules {
		out.Spec.NodeDisruptionPolicy.Files = append(out.Spec.NodeDisruptionPolicy.Files,
			opv1.NodeDisruptionPolicySpecFile{Path: registries + "#" + r[0],
				Actions: []opv1.NodeDisruptionPolicySpecAction{{Type: opv1.NodeDisruptionPolicySpecActionType(r[1])}}})
	}
	return out
}

func TestMirrorRules(t *testing.T) {
	const digest, tag, image = disruption.DigestMirrors, disruption.TagMirrors, disruption.ImageSettings
	for _, c := range []struct {
		name    string
		object  *opv1.MachineConfiguration
		want    disruption.MirrorPolicy
		refused string
	}{
		{"none", mirrors(""), nil, ""},
		{"a rule for each kind", mirrors("", [2]string{"ImageDigestMirrorSet", "None"}, [2]string{"ImageTagMirrorSet",
			"Drain"}, [2]string{"Image", "None"}), disruption.MirrorPolicy{digest: true, tag: false, image: true}, ""},
		{"the older kind", mirrors("", [2]string{"ImageContentSourcePolicy", "None"}),
			disruption.MirrorPolicy{digest: true}, ""},
		{"both words for one kind", mirrors("", [2]string{"ImageContentSourcePolicy", "None"},
			[2]string{"ImageDigestMirrorSet", "Drain"}), disruption.MirrorPolicy{digest: false}, ""},
		{"the annotation of earlier versions", mirrors("Image=None"), disruption.MirrorPolicy{image: true}, ""},
		{"a rule counts more than the annotation", mirrors("Image=None, ImageTagMirrorSet=None",
			[2]string{"Image", "Drain"}), disruption.MirrorPolicy{image: false, tag: true}, ""},
		{"an unknown kind", mirrors("", [2]string{"ImageMirrors", "None"}), nil, `there is no kind "ImageMirrors"`},
		{"another action", mirrors("", [2]string{"Image", "Reboot"}), nil, "is None or Drain"},
	} {
		t.Run(c.name, func(t *testing.T) {
			s, err := disruption.Read(c.object)
			require.NoError(t, err)
			assert.Equal(t, c.want, s.Mirrors)
			if c.refused == "" {
				assert.Empty(t, s.Refused)
				return
			}
			require.Len(t, s.Refused, 1)
			assert.Contains(t, s.Refused[0], c.refused)
		})
	}
}

func TestAMirrorRuleDecidesOverTheDrain(t *testing.T) {
	was := "[[registry]]\nlocation='a.io/b'\n[[registry.mirror]]\nlocation='m.io/b'\npull-from-mirror='digest-only'\n"
	levels := map[string]disruption.Level{"None": disruption.LevelReload, "Drain": disruption.LevelDrain}
	for action, level := range levels {
		s, err := disruption.Read(mirrors("", [2]string{"ImageDigestMirrorSet", action}))
		require.NoError(t, err)
		p, err := disruption.Effect(disruption.Input{Old: mc(file(registries, was)), New: mc(), Policies: s.Policies,
			Mirrors: s.Mirrors})
		require.NoError(t, err)
		assert.Equal(t, level, p.Level, "%s: %+v", action, p)
		assert.Equal(t, disruption.OriginDefault, p.Changes[0].Rule.Origin, "the analysis is the cluster's own")
	}
}
