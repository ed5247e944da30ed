package verbosity_test

import (
	"testing"

	opv1 "github.com/openshift/api/operator/v1"
	"github.com/sirupsen/logrus"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"dayone.dev/dayone/cmd/internal/verbosity"
)

func TestLevelOfAnOperatorsObject(t *testing.T) {
	for _, c := range []struct {
		name, flag string
		wanted     opv1.LogLevel
		level      logrus.Level
	}{
		{"nothing wanted", "info", "", logrus.InfoLevel},
		{"more than the flag", "info", opv1.Debug, logrus.DebugLevel},
		{"all", "warning", opv1.TraceAll, logrus.TraceLevel},
		{"less than the flag", "trace", opv1.Debug, logrus.TraceLevel},
		{"normal is what the flag says", "error", opv1.Normal, logrus.ErrorLevel},
	} {
		t.Run(c.name, func(t *testing.T) {
			flag, err := logrus.ParseLevel(c.flag)
			require.NoError(t, err)
			log := logrus.New()
			log.SetLevel(flag)
			set := verbosity.Of(logrus.NewEntry(log))
			set(opv1.TraceAll)
			set(c.wanted)
			assert.Equal(t, c.level, log.GetLevel())
		})
	}
}
