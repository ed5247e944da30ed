package quiet

import (
	"io"

	"github.com/sirupsen/logrus"
)

// Log returns a log of its own that drops every message.
func Log() *logrus.Entry {
	l := logrus.New()
	l.SetOutput(io.Discard)
	return logrus.NewEntry(l)
}
