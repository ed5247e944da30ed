package forwarder

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"time"
)

// asked is what one peer answered; clients get the list of them.
type asked struct {
	Peer    string `json:"peer"`
	Address string `json:"address"`
	Answer  string `json:"answer"`
}

// errLost says that a peer does not have what was asked for.
var errLost = errors.New("404 Not Found")

// busyError says that a peer asks for a pause.
type busyError struct {
	status string
	after  time.Duration
}

func (e busyError) Error() string { return fmt.Sprintf("%s, retry after %s", e.status, e.after) }

// lieError says that a peer sent what nobody asked for: it is worse than silence.
type lieError struct{ error }

func (e lieError) Unwrap() error { return e.error }

// noAnswer says that no peer had an answer.
type noAnswer struct {
	asked []asked
	// lost: one said that it does not have it. busy is the pause that peers asked for.
	lost bool
	busy time.Duration
	last error
}

func (e *noAnswer) Error() string {
	if e.last == nil {
		return "no registry of a control-plane node is known"
	}
	return "no registry of a control-plane node has an answer, the last one: " + e.last.Error()
}

func (e *noAnswer) Unwrap() error { return e.last }

// write tells a client that there is no answer. Not found is what a peer said, although others may not have been
// reached: a client then looks in the image's final registry, as with 503. unknown is the code of what was asked for.
func (e *noAnswer) write(w http.ResponseWriter, unknown string) {
	switch {
	case e.lost:
		refuse(w, http.StatusNotFound, unknown, "no control-plane node's registry that answers has it", e.asked)
	default:
		if e.busy > 0 {
			w.Header().Set("Retry-After", strconv.Itoa(int(e.busy/time.Second)+1))
		}
		refuse(w, http.StatusServiceUnavailable, "UNAVAILABLE",
			"no control-plane node's registry answers: dayone-daemon status on this node shows why", e.asked)
	}
}

// refuse answers in the form of the OCI distribution specification, §Error Codes. UNAVAILABLE is none of its codes:
// clients go by the status.
func refuse(w http.ResponseWriter, status int, code, message string, detail any) {
	body, err := json.Marshal(map[string]any{"errors": []any{
		map[string]any{"code": code, "message": message, "detail": detail}}})
	if err != nil {
		body = []byte(`{"errors":[{"code":` + strconv.Quote(code) + `}]}`)
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Content-Length", strconv.Itoa(len(body)))
	w.WriteHeader(status)
	_, _ = w.Write(body) // this fails when the client is gone
}

// plain leaves the URL out of an error: a peer's name is beside it.
func plain(err error) error {
	if sent, ok := errors.AsType[*url.Error](err); ok {
		return sent.Err
	}
	return err
}

// retryAfter reads the header of that name; 0: there is none that says anything.
func retryAfter(h http.Header, now time.Time) time.Duration {
	value := h.Get("Retry-After")
	if seconds, err := strconv.ParseUint(value, 10, 16); err == nil {
		return time.Duration(seconds) * time.Second
	}
	if at, err := http.ParseTime(value); err == nil {
		return max(0, at.Sub(now))
	}
	return 0
}
