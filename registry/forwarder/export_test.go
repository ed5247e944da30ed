package forwarder

import (
	"net/http"
	"time"
)

// Shorten lets tests of peers that hang end soon.
func (f *Forwarder) Shorten(connect, answer, patience time.Duration) {
	f.sources.limits = limits{connect, answer, patience}
}

// Handler lets tests ask without a listener.
func (f *Forwarder) Handler() http.Handler { return f.handler() }
