package main

import (
	"reflect"
	"testing"

	"github.com/stretchr/testify/assert"

	"dayone.dev/dayone/manifests/assets/cluster"
)

// TestPartsNarrowNoKindTwice: one cache serves all parts of a mode, and of two that narrow the same kind one would be
// forgotten.
func TestPartsNarrowNoKindTwice(t *testing.T) {
	for _, mode := range cluster.Modes() {
		t.Run(string(mode), func(t *testing.T) {
			s := &settings{mode: string(mode), nodeAgent: mode == cluster.Full}
			parts, seen := s.parts(), map[reflect.Type]bool{}
			assert.NotEmpty(t, parts)
			for _, p := range parts {
				if p.watch == nil {
					continue
				}
				for o := range p.watch("dayone") {
					of := reflect.TypeOf(o)
					assert.False(t, seen[of], "%s", of)
					seen[of] = true
				}
			}
		})
	}
}
