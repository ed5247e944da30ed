package registry

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"reflect"
	"strings"

	"github.com/distribution/distribution/v3/configuration"
	"github.com/distribution/distribution/v3/registry/handlers"
	_ "github.com/distribution/distribution/v3/registry/storage/driver/filesystem" // the driver that newUpstream names
	"github.com/sirupsen/logrus"
)

const (
	// maxCatalogEntries is the page size of /v2/_catalog that distribution's own configuration defaults to.
	maxCatalogEntries = 1000
	// loggerKeyType is how distribution v3 names the context key under which it looks for its logger.
	loggerKeyType = "dcontext.loggerKey"
)

// upstream is distribution's application on our root, without its listener, access control, logging and upload purger.
type upstream struct {
	app *handlers.App
	log *logrus.Entry
}

// newUpstream turns the panics with which distribution answers a configuration error into errors.
func newUpstream(c *configuration.Configuration, log *logrus.Entry) (u *upstream, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("start distribution: %v", p)
		}
	}()
	u = &upstream{log: quiet(log)}
	u.app = handlers.NewApp(loggerContext{context.Background(), u.log}, c)
	return u, nil
}

// upstreamConfig is built by hand: configuration.Parse would let REGISTRY_* variables of the environment override it.
func upstreamConfig(root, secret string) *configuration.Configuration {
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
	c.HTTP.Secret = secret
	c.HTTP.RelativeURLs = true
	c.Validation.Manifests.Indexes.Platforms = "all"
	return c
}

func (u *upstream) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	u.app.ServeHTTP(w, r.WithContext(loggerContext{r.Context(), u.log}))
}

func (u *upstream) close() error {
	if err := u.app.Shutdown(); err != nil {
		return fmt.Errorf("stop distribution: %w", err)
	}
	return nil
}

// loggerContext answers distribution's question for a logger with ours. Its own setter lives in an internal package,
// and the other way, a formatter on logrus.StandardLogger, would change the log of the whole process. The key is known
// by the name of its type; should a later version rename it, distribution falls back to the standard logger and
// TestDistributionLogsToOurEntry fails.
type loggerContext struct {
	context.Context
	log *logrus.Entry
}

func (c loggerContext) Value(key any) any {
	if t := reflect.TypeOf(key); t != nil && t.Kind() == reflect.Struct && t.String() == loggerKeyType {
		return c.log
	}
	return c.Context.Value(key)
}

// quiet returns an entry for distribution whose lines reach log: ordinary answers (a HEAD that finds nothing is an
// "error" there) as debug, and none of the informational two to three lines per request.
func quiet(log *logrus.Entry) *logrus.Entry {
	l := logrus.New()
	l.SetOutput(io.Discard)
	l.SetLevel(logrus.WarnLevel)
	l.AddHook(forward{log})
	return logrus.NewEntry(l)
}

type forward struct{ to *logrus.Entry }

func (forward) Levels() []logrus.Level { return logrus.AllLevels }

func (f forward) Fire(e *logrus.Entry) error {
	level := e.Level
	if _, ok := e.Data["err.code"]; ok { // an answer to a client, already in the answer's body
		level = logrus.DebugLevel
		if c := fmt.Sprint(e.Data["err.code"]); strings.Contains(c, "unknown error") || strings.Contains(c, "internal") {
			level = logrus.ErrorLevel
		}
	}
	if level < logrus.ErrorLevel {
		level = logrus.ErrorLevel // never let a library's fatal or panic end our process through our logger
	}
	fields := logrus.Fields{"source": "distribution", "detail": e.Message}
	for _, k := range []string{"err.code", "err.message", "vars.name", "vars.reference", "vars.digest"} {
		if v, ok := e.Data[k]; ok {
			fields[strings.ReplaceAll(k, ".", "_")] = fmt.Sprint(v)
		}
	}
	f.to.WithFields(fields).Log(level, "registry storage message")
	return nil
}

func discard() *logrus.Entry {
	l := logrus.New()
	l.SetOutput(io.Discard)
	return logrus.NewEntry(l)
}
