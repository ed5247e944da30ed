package serve

import (
	"errors"
	"net/http"
	"os"
	"testing"

	"github.com/sirupsen/logrus"
	logtest "github.com/sirupsen/logrus/hooks/test"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// overtaken is a source that changes while it is read, whose writer reloads at once.
type overtaken struct {
	s       *Server
	reason  string
	changed chan struct{} // closed when the writer's reload is over; nil before
}

func (o *overtaken) Rendered() Rendered {
	now := Rendered{Err: errors.New(o.reason)}
	if o.s == nil || o.changed != nil {
		return now
	}
	o.changed = make(chan struct{})
	o.reason = "new"
	go func() {
		defer close(o.changed)
		o.s.Reload()
	}()
	if o.s.reloading.TryLock() { // nothing keeps the other reload from overtaking this one, so it does
		o.s.reloading.Unlock()
		<-o.changed
	}
	return now
}

func TestOvertakenReload(t *testing.T) {
	o := &overtaken{reason: "old"}
	s, err := New(Options{Source: o})
	require.NoError(t, err)
	o.s = s
	s.Reload()
	<-o.changed
	w := get(t, s, "/config/master")
	assert.Equal(t, http.StatusServiceUnavailable, w.Code)
	assert.Equal(t, "new", w.Header().Get(reasonHeader))
}

func TestBadCertificateLoggedOnce(t *testing.T) {
	cert, key, _ := pair(t)
	good, err := os.ReadFile(cert)
	require.NoError(t, err)
	logger, said := logtest.NewNullLogger()
	s := newServer(t, aFile, func(o *Options) {
		o.SecureListen, o.CertFile, o.KeyFile, o.Log = "127.0.0.1:0", cert, key, logrus.NewEntry(logger)
	})
	t.Cleanup(s.close)
	said.Reset()
	look := func(content string) {
		if content == "" {
			require.NoError(t, os.Remove(cert))
		} else {
			require.NoError(t, os.WriteFile(cert, []byte(content), 0o600))
		}
		s.reloadCertificate()
		s.reloadCertificate()
	}
	look("no certificate")
	require.Len(t, said.AllEntries(), 1)
	look("")
	require.Len(t, said.AllEntries(), 2, "another reason")
	look(string(good))
	require.Len(t, said.AllEntries(), 2)
	look("no certificate")
	require.Len(t, said.AllEntries(), 3, "the same one again, after it was well")
}
