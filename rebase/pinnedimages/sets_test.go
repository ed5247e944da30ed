package pinnedimages

import (
	"strings"
	"testing"

	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func pool(sets ...string) *mcfgv1.MachineConfigPool {
	p := &mcfgv1.MachineConfigPool{}
	for _, s := range sets {
		p.Spec.PinnedImageSets = append(p.Spec.PinnedImageSets, mcfgv1.PinnedImageSetRef{Name: s})
	}
	return p
}

func set(name string, images ...string) *mcfgv1.PinnedImageSet {
	s := &mcfgv1.PinnedImageSet{ObjectMeta: metav1.ObjectMeta{Name: name}}
	for _, i := range images {
		s.Spec.PinnedImages = append(s.Spec.PinnedImages, mcfgv1.PinnedImageRef{Name: mcfgv1.ImageDigestFormat(i)})
	}
	return s
}

func TestSetsOfANode(t *testing.T) {
	generation := func(name string) int64 { return int64(len(name)) }
	for _, c := range []struct {
		name  string
		pools []*mcfgv1.MachineConfigPool
		want  string
	}{
		{"none", []*mcfgv1.MachineConfigPool{pool()}, ""},
		{"in the pool's order", []*mcfgv1.MachineConfigPool{pool("bb", "a")}, "bb=2,a=1"},
		{"the worker's after the pool's, each once", []*mcfgv1.MachineConfigPool{pool("bb", "a"), pool("a", "ccc")},
			"bb=2,a=1,ccc=3"},
	} {
		t.Run(c.name, func(t *testing.T) {
			refs := Wanted(c.pools, generation)
			assert.Equal(t, c.want, Encode(refs))
			again, err := Parse(c.want)
			require.NoError(t, err)
			assert.Equal(t, refs, again)
		})
	}
	for _, bad := range []string{"a", "=1", "a=x", "a=-1", "a=1,"} {
		_, err := Parse(bad)
		assert.Error(t, err, bad)
	}
}

func TestImagesOfSets(t *testing.T) {
	one := "r.example.com/a@sha256:" + strings.Repeat("1", 64)
	two := "r.example.com/b@sha256:" + strings.Repeat("2", 64)
	images, err := Images([]*mcfgv1.PinnedImageSet{set("x", two, one), set("y", one)})
	require.NoError(t, err)
	assert.Equal(t, []string{two, one}, images)
	_, err = Images([]*mcfgv1.PinnedImageSet{set("x", one, "r.example.com/a:latest")})
	require.ErrorContains(t, err, "PinnedImageSet x")
}
