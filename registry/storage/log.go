package storage

import (
	"context"
	"reflect"

	"github.com/sirupsen/logrus"

	"dayone.dev/dayone/registry/quiet"
)

// loggerKeyType is how distribution v3 names the context key under which it looks for its logger.
const loggerKeyType = "dcontext.loggerKey"

// loggerContext answers distribution's question for a logger with ours. Its own setter lives in an internal package,
// and the other way, a formatter on logrus.StandardLogger, would change the log of the whole process. The key is known
// by the name of its type; should a later version rename it, distribution falls back to the standard logger and
// TestDistributionLog fails.
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

// forDistribution returns an entry for distribution whose warnings and errors reach log at debug level: what it cannot
// do it returns as an error too, and a wrong digest of a client is none of ours. It never lets a library's fatal or
// panic end the process through our logger.
func forDistribution(log *logrus.Entry) *logrus.Entry {
	e := quiet.Log()
	e.Logger.SetLevel(logrus.WarnLevel)
	if log != nil {
		e.Logger.AddHook(forward{log})
	}
	return e
}

type forward struct{ to *logrus.Entry }

func (forward) Levels() []logrus.Level { return logrus.AllLevels }

func (f forward) Fire(e *logrus.Entry) error {
	f.to.WithFields(e.Data).WithFields(logrus.Fields{"source": "distribution", "detail": e.Message}).
		Debug("registry storage message")
	return nil
}
