package proposal

import (
	"go/ast"
	"go/parser"
	"go/token"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestAllKeysAreKnown looks for constants of manifests/keys.go that knownKeys lacks: they would be taken for slips.
func TestAllKeysAreKnown(t *testing.T) {
	read := func(name string, visit func(name string)) {
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, 0)
		require.NoError(t, err)
		ast.Inspect(file, func(n ast.Node) bool {
			if id, ok := n.(*ast.Ident); ok {
				visit(id.Name)
			}
			return true
		})
	}
	known := map[string]bool{}
	read("keys.go", func(name string) { known[name] = true })
	found := 0
	read("../../../manifests/keys.go", func(name string) {
		if strings.HasPrefix(name, "Annotation") || strings.HasPrefix(name, "Label") {
			found++
			assert.True(t, known[name], "%s is missing in knownKeys", name)
		}
	})
	assert.Greater(t, found, 40)
}
