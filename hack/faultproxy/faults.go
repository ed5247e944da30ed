package faultproxy

import (
	"bytes"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"time"
)

// Status answers with a bare status.
func Status(code int) Fault {
	return func(w http.ResponseWriter, _ *http.Request) bool {
		w.WriteHeader(code)
		return true
	}
}

// Text answers with a status of success and something that is not what was asked for, as a captive portal does.
func Text(body string) Fault {
	return func(w http.ResponseWriter, _ *http.Request) bool {
		_, _ = w.Write([]byte(body)) // the client may have had enough
		return true
	}
}

// Silent takes the request and never answers: it waits until the client gives up.
func Silent(_ http.ResponseWriter, r *http.Request) bool {
	<-r.Context().Done()
	return true
}

// Cut ends the connection without an answer.
func Cut(http.ResponseWriter, *http.Request) bool { panic(http.ErrAbortHandler) }

// Elsewhere sends the client back to the same place, for ever.
func Elsewhere(w http.ResponseWriter, r *http.Request) bool {
	http.Redirect(w, r, r.URL.String(), http.StatusTemporaryRedirect)
	return true
}

// Endless answers with success and bytes without an end, until the client has had enough.
func Endless(w http.ResponseWriter, r *http.Request) bool {
	zeros := make([]byte, 1<<20)
	for r.Context().Err() == nil {
		if _, err := w.Write(zeros); err != nil {
			break
		}
	}
	return true
}

// Changed sends the registry's answers with other bytes in place of their bodies: a registry that lies. It leaves
// answers without a body, and requests that write, alone.
func (p *Proxy) Changed(change func(body []byte) []byte) Fault {
	return p.spoiled(func(w http.ResponseWriter, _ *http.Request, status int, body []byte) {
		body = change(bytes.Clone(body))
		w.Header().Set("Content-Length", strconv.Itoa(len(body)))
		w.WriteHeader(status)
		_, _ = w.Write(body) // the client may have had enough
	})
}

// Dying promises the whole answer and ends the connection after a part of it, which is how many of a thousand bytes.
func (p *Proxy) Dying(part int) Fault {
	return p.spoiled(func(w http.ResponseWriter, _ *http.Request, status int, body []byte) {
		w.Header().Set("Content-Length", strconv.Itoa(len(body)))
		w.WriteHeader(status)
		_, _ = w.Write(body[:len(body)*part/1000]) // the connection ends in any case
		w.(http.Flusher).Flush()
		panic(http.ErrAbortHandler)
	})
}

// Stopping promises the whole answer, sends a part of it, which is how many of a thousand bytes, and then nothing more.
func (p *Proxy) Stopping(part int) Fault {
	return p.spoiled(func(w http.ResponseWriter, r *http.Request, status int, body []byte) {
		w.Header().Set("Content-Length", strconv.Itoa(len(body)))
		w.WriteHeader(status)
		_, _ = w.Write(body[:len(body)*part/1000]) // the client may have had enough
		w.(http.Flusher).Flush()
		<-r.Context().Done()
	})
}

// Slow sends the answers in parts with a pause before each.
func (p *Proxy) Slow(parts int, pause time.Duration) Fault {
	return p.spoiled(func(w http.ResponseWriter, r *http.Request, status int, body []byte) {
		w.Header().Set("Content-Length", strconv.Itoa(len(body)))
		w.WriteHeader(status)
		tick := time.NewTicker(pause)
		defer tick.Stop()
		for part := range slices.Chunk(body, len(body)/parts+1) {
			select {
			case <-r.Context().Done():
				return
			case <-tick.C:
			}
			if _, err := w.Write(part); err != nil {
				return // the client has had enough
			}
			w.(http.Flusher).Flush()
		}
	})
}

// spoiled asks the registry, copies the headers of its answer and leaves the rest to send.
func (p *Proxy) spoiled(send func(w http.ResponseWriter, r *http.Request, status int, body []byte)) Fault {
	return func(w http.ResponseWriter, r *http.Request) bool {
		if r.Method != http.MethodGet {
			return false
		}
		answer := p.answer(r)
		maps.Copy(w.Header(), answer.Header())
		send(w, r, answer.Code, answer.Body.Bytes())
		return true
	}
}
