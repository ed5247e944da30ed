package plan_test

import (
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"dayone.dev/dayone/cmd/internal/cli"
	"dayone.dev/dayone/hack/codeblocks"
)

// TestPlanOfTheReadme types the README's line and gets what it shows, up to the tables that it leaves out.
func TestPlanOfTheReadme(t *testing.T) {
	t.Setenv("KUBECONFIG", "/nowhere")
	blocks, err := codeblocks.Of("../../../README.md")
	require.NoError(t, err)
	dump := writeDump(t, effectWorld(t))
	t.Chdir(t.TempDir())
	require.NoError(t, os.CopyFS("dump", os.DirFS(dump)))
	changed := strings.Replace(strings.ReplaceAll(appConfig, "old", "new"), "{name: 50-app,",
		"{name: 50-app, annotations: {dayone.dev/post-config-action: Restart app.service},", 1)
	require.NoError(t, os.WriteFile("50-app.yaml", []byte(changed), 0o600))
	typed := 0
	for _, b := range blocks {
		for _, line := range b.Commands() {
			if words := strings.Fields(line); strings.HasPrefix(line, "dayone cluster plan ") {
				typed++
				code, out, errs := dayone(t, words[1:]...)
				require.Equal(t, cli.ExitOK, code, errs)
				assert.Equal(t, b.Output(), out[:min(len(b.Output()), len(out))])
			}
		}
	}
	assert.Equal(t, 1, typed)
}
