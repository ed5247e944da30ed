package report

import (
	"io"

	"github.com/sirupsen/logrus"
)

// NoLog returns a log that discards every message. It is the default where the Log field of an Options struct is nil.
func NoLog() *logrus.Entry {
	discard := logrus.New()
	discard.SetOutput(io.Discard)
	return logrus.NewEntry(discard)
}
