package manager

import (
	"fmt"
	"io"

	"github.com/bombsimon/logrusr/v4"
	"github.com/go-logr/logr"
	"github.com/sirupsen/logrus"
	"k8s.io/klog/v2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	ctrllog "sigs.k8s.io/controller-runtime/pkg/log"
)

// NewLog is the log of a program with o's level and format; every line bears the program's name.
func NewLog(w io.Writer, name string, o Options) (*logrus.Entry, error) {
	o = o.withDefaults()
	level, err := logrus.ParseLevel(o.LogLevel)
	if err != nil {
		return nil, fmt.Errorf("--log-level: %w", err)
	}
	l := logrus.New()
	l.SetOutput(w)
	l.SetLevel(level)
	l.SetFormatter(&logrus.JSONFormatter{})
	if o.LogFormat == "text" {
		l.SetFormatter(&logrus.TextFormatter{FullTimestamp: true, DisableColors: true})
	}
	return l.WithField("program", name), nil
}

// logrOf lets the Kubernetes libraries, which speak logr, write to log. Their V(0) is info, V(1) debug, V(2) and above
// trace.
func logrOf(log *logrus.Entry) logr.Logger {
	return logrusr.New(log, logrusr.WithFormatter(field))
}

// UseLog lets the Kubernetes libraries of this process write to log.
func UseLog(log *logrus.Entry) {
	logger := logrOf(log)
	klog.SetLogger(logger)
	ctrllog.SetLogger(logger)
}

// field never prints an object's content, which may be a secret.
func field(v any) any {
	switch v := v.(type) {
	case client.Object:
		return client.ObjectKeyFromObject(v).String()
	case error:
		return v.Error()
	case fmt.Stringer:
		return v.String()
	}
	return fmt.Sprintf("%T", v)
}
