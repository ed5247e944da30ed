package registry

import (
	"context"
	"net/http"
	"testing"

	"github.com/distribution/distribution/v3/configuration"
	"github.com/distribution/distribution/v3/registry/handlers"
	_ "github.com/distribution/distribution/v3/registry/storage/driver/filesystem" // the driver that is named below
	"github.com/sirupsen/logrus"
	"github.com/stretchr/testify/require"
)

// newDistribution is distribution's own application on a root, as others run it, without accounts and log.
func newDistribution(t testing.TB, root string) http.Handler {
	t.Helper()
	// configuration.Parse would let REGISTRY_* variables of the environment override it
	c := &configuration.Configuration{Version: configuration.CurrentVersion}
	c.Log.AccessLog.Disabled = true
	c.Storage = configuration.Storage{
		"filesystem": configuration.Parameters{"rootdirectory": root},
		"delete":     configuration.Parameters{"enabled": true},
		"redirect":   configuration.Parameters{"disable": true},
		// The value types must be those that YAML decoding yields: anything else panics.
		"maintenance": configuration.Parameters{"uploadpurging": map[any]any{"enabled": false}},
	}
	c.Catalog.MaxEntries = maxCatalogEntries
	c.HTTP.Secret = "secret"
	c.HTTP.RelativeURLs = true
	c.Validation.Manifests.Indexes.Platforms = "all"
	silence(t)
	app := handlers.NewApp(context.Background(), c)
	t.Cleanup(func() { require.NoError(t, app.Shutdown()) })
	return app
}

// silence keeps distribution's lines, which it writes to the process's logger, out of the test's output.
func silence(t testing.TB) {
	std := logrus.StandardLogger()
	old := std.GetLevel()
	std.SetLevel(logrus.PanicLevel)
	t.Cleanup(func() { std.SetLevel(old) })
}
