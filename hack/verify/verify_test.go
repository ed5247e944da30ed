package main

import (
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestOutsidePackagesStayInTheirRooms(t *testing.T) {
	cases := map[string]struct {
		from, imported string
		fault          bool
	}{
		"the builder in its room":         {"build/buildahengine", "github.com/containers/buildah/define", false},
		"the builder elsewhere":           {"build", "github.com/containers/buildah", true},
		"the builder in a controller":     {"build/buildcontroller", "github.com/containers/buildah", true},
		"storage in the registry":         {"registry", "github.com/containers/storage", true},
		"distribution in its room":        {"registry/storage", "github.com/distribution/distribution/v3", false},
		"cluster access in a controller":  {"rebase/nodecontroller", "k8s.io/client-go/kubernetes", false},
		"cluster access in the rendering": {"manifests/render", "k8s.io/client-go/kubernetes", true},
		"a package that is not watched":   {"manifests/render", "k8s.io/api/core/v1", false},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) { assert.Equal(t, c.fault, kept(c.from, c.imported) != "") })
	}
}

func TestShellBlocksNameCommandsThatExist(t *testing.T) {
	verbs, targets := map[string]bool{"prepare": true}, map[string]bool{"demo": true}
	text := "```sh\nmake demo TINY=1\nsudo dayone prepare --dir x\nmake nothing\nbin/dayone nothing\n```\nmake of no block\n"
	assert.Equal(t, []string{"a.md:4: make nothing does not exist", "a.md:5: dayone nothing does not exist"},
		unknownCommands("a.md", text, verbs, targets))
}
