package registry

import (
	"io"
	"net/http"
	"time"
)

const (
	// sinkSilence and sinkLimit bound how long a refused body is read and thrown away; nginx lingers for as long.
	sinkSilence = 5 * time.Second
	sinkLimit   = 30 * time.Second
)

// sink reads to its end the body of a request that was answered without it. A client that is still sending when its
// connection ends gets a reset, and one that sends all before it reads would never see the answer.
func sink(w http.ResponseWriter, r *http.Request) {
	control := http.NewResponseController(w)
	if control.Flush() != nil {
		return // the client is gone
	}
	end := time.Now().Add(sinkLimit)
	more := func(buffer []byte) bool {
		_ = control.SetReadDeadline(time.Now().Add(sinkSilence)) // without it the request's own limit holds
		_, err := io.ReadAtLeast(r.Body, buffer, 1)
		return err == nil
	}
	var first [1]byte // most bodies were read
	if !more(first[:]) {
		return
	}
	for buffer := make([]byte, 32<<10); time.Now().Before(end) && more(buffer); {
		continue
	}
}
