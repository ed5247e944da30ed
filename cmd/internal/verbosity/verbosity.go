package verbosity

import (
	opv1 "github.com/openshift/api/operator/v1"
	"github.com/sirupsen/logrus"
)

// Of gives a function that lets log say as much as the level of an operator's object wants; Normal is what log says
// when Of is called, and nothing makes it say less.
func Of(log *logrus.Entry) func(opv1.LogLevel) {
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
