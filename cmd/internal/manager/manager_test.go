package manager

import (
	"bytes"
	"encoding/json"
	"errors"
	"testing"
	"time"

	"github.com/sirupsen/logrus"
	"github.com/spf13/pflag"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestOptionsValidate(t *testing.T) {
	require.NoError(t, Options{}.Validate(), "the zero value is usable")
	for _, c := range []struct {
		name string
		o    Options
		want string
	}{
		{"a namespace with capitals", Options{Namespace: "Upper"}, "--namespace"},
		{"a lease too short to keep", Options{LeaseDuration: time.Millisecond}, "--lease-duration"},
		{"a metrics address, no port", Options{MetricsAddress: "localhost"}, "--metrics-address"},
		{"a probe address, no port", Options{ProbeAddress: "localhost"}, "--probe-address"},
		{"a level that does not exist", Options{LogLevel: "loud"}, "--log-level"},
		{"a format that does not exist", Options{LogFormat: "xml"}, "--log-format"},
	} {
		t.Run(c.name, func(t *testing.T) { require.ErrorContains(t, c.o.Validate(), c.want) })
	}
}

func TestFlagsHaveTheZeroValuesDefaults(t *testing.T) {
	var o Options
	flags := pflag.NewFlagSet("", pflag.ContinueOnError)
	o.AddFlags(flags)
	require.NoError(t, flags.Parse(nil))
	assert.Equal(t, Options{}.withDefaults(), o)
}

func TestLibraryLogsHideObjects(t *testing.T) {
	var out bytes.Buffer
	log, err := NewLog(&out, "dayone-test", Options{})
	require.NoError(t, err)
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "s"},
		Data: map[string][]byte{"key": []byte("canary")}}
	logrOf(log).WithName("cache").WithValues("object", secret, "data", secret.Data).
		Error(errors.New("cause"), "failed", "count", 3)
	logrOf(log).V(1).Info("not at this level")
	var line map[string]any
	require.NoError(t, json.Unmarshal(out.Bytes(), &line), out.String())
	assert.Equal(t, "error", line["level"])
	assert.Equal(t, "failed", line["msg"])
	assert.Equal(t, "cause", line["error"])
	assert.Equal(t, "ns/s", line["object"])
	assert.Equal(t, "dayone-test", line["program"])
	assert.InDelta(t, 3, line["count"], 0)
	assert.NotContains(t, out.String(), "Y2FuYXJ5")
	assert.NotContains(t, out.String(), "canary")
}

func TestDebugLevelShowsTheLibrariesDetails(t *testing.T) {
	var out bytes.Buffer
	log, err := NewLog(&out, "dayone-test", Options{LogLevel: logrus.DebugLevel.String(), LogFormat: "text"})
	require.NoError(t, err)
	logrOf(log).V(1).Info("a detail")
	assert.Contains(t, out.String(), "level=debug msg=\"a detail\"")
}
