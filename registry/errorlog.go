package registry

import (
	"log"
	"strings"

	"github.com/sirupsen/logrus"
)

// newErrorLog brings what net/http reports (failed TLS handshakes, mostly) into our log at debug level: any port scan
// causes it.
func newErrorLog(entry *logrus.Entry) *log.Logger { return log.New(lineWriter{entry}, "", 0) }

type lineWriter struct{ entry *logrus.Entry }

func (l lineWriter) Write(p []byte) (int, error) {
	l.entry.WithField("detail", strings.TrimSpace(string(p))).Debug("registry connection message")
	return len(p), nil
}
