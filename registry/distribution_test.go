package registry

import (
	"context"
	"io"
	"net/http"
	"reflect"
	"testing"

	"github.com/distribution/distribution/v3/configuration"
	_ "github.com/distribution/distribution/v3/registry/auth/htpasswd" // accounts of a configuration
	"github.com/distribution/distribution/v3/registry/handlers"
	_ "github.com/distribution/distribution/v3/registry/storage/driver/filesystem" // the driver that is named below
	"github.com/sirupsen/logrus"
	"github.com/stretchr/testify/require"
)

// newDistribution is distribution's own application on a root, as others run it, without log. change may give it
// accounts.
func newDistribution(t testing.TB, root string, change ...func(*configuration.Configuration)) http.Handler {
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
	for _, by := range change {
		by(c)
	}
	quiet := logrus.New()
	quiet.SetOutput(io.Discard)
	quiet.SetLevel(logrus.PanicLevel)
	log := logrus.NewEntry(quiet)
	app := handlers.NewApp(quietContext{context.Background(), log}, c)
	t.Cleanup(func() { require.NoError(t, app.Shutdown()) })
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		app.ServeHTTP(w, r.WithContext(quietContext{r.Context(), log}))
	})
}

// quietContext answers distribution's question for a logger, see registry/storage: formatting lines would be measured.
type quietContext struct {
	context.Context
	log *logrus.Entry
}

func (c quietContext) Value(key any) any {
	if t := reflect.TypeOf(key); t != nil && t.String() == "dcontext.loggerKey" {
		return c.log
	}
	return c.Context.Value(key)
}
