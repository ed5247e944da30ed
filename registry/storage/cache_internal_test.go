package storage

import (
	"bytes"
	"testing"

	"github.com/stretchr/testify/assert"
)

// What was read before a repository changed is not remembered after it, and what is remembered is bounded.
func TestManifestCache(t *testing.T) {
	var c manifestCache
	c.reset()
	m := &Manifest{Body: []byte("manifest")}
	gen := c.generation()
	c.put("a", "v1", m, gen)
	assert.Same(t, m, c.get("a", "v1"))
	assert.Nil(t, c.get("b", "v1"))
	c.put("a", "v1", m, gen)
	assert.Equal(t, len(m.Body), c.bytes, "one entry counts once")
	c.drop("a")
	assert.Nil(t, c.get("a", "v1"))
	assert.Zero(t, c.bytes)
	c.put("a", "v1", m, gen)
	assert.Nil(t, c.get("a", "v1"), "it was read before the change")

	large := &Manifest{Body: bytes.Repeat([]byte("x"), manifestCacheBytes/4+1)}
	c.put("a", "large", large, c.generation())
	assert.Nil(t, c.get("a", "large"))
	quarter := &Manifest{Body: large.Body[1:]}
	for _, ref := range []string{"1", "2", "3", "4", "5"} {
		c.put("a", ref, quarter, c.generation())
		assert.LessOrEqual(t, c.bytes, manifestCacheBytes)
		assert.Same(t, quarter, c.get("a", ref))
	}
	assert.Nil(t, c.get("a", "1"), "the older ones went")
}
