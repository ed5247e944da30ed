package manager

import (
	"fmt"
	"io"

	"github.com/bombsimon/logrusr/v4"
	"github.com/go-logr/logr"
	opv1 "github.com/openshift/api/operator/v1"
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

// Verbosity gives a function that lets log say as much as the level of an operator's object wants; Normal is what log
// says when Verbosity is called, and nothing makes it say less.
func Verbosity(log *logrus.Entry) func(opv1.LogLevel) {
	normal := log.Logger.GetLevel()
	return func(wanted opv1.LogLevel) {
		level := normal
		switch wanted {
		case opv1.Debug:
			level = max(level, logrus.DebugLevel)
		case opv1.Trace, opv1.TraceAll:
			level = max(level, logrus.TraceLevel)
		}
		log.Logger.SetLevel(level)
	}
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
