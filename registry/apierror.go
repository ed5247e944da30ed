package registry

import (
	"encoding/json"
	"net/http"
	"strconv"
)

// apiError is an answer in the form of the OCI distribution specification, §Error Codes.
type apiError struct {
	status  int
	Code    string `json:"code"`
	Message string `json:"message"`
	Detail  any    `json:"detail,omitempty"`
}

func (e *apiError) Error() string { return e.Code + ": " + e.Message }

func newError(status int, code, message string) *apiError {
	return &apiError{status: status, Code: code, Message: message}
}

func (e *apiError) with(detail any) *apiError {
	c := *e
	c.Detail = detail
	return &c
}

// write sends the error; a HEAD request gets only the header, as net/http drops the body.
func (e *apiError) write(w http.ResponseWriter) {
	body, err := json.Marshal(map[string]any{"errors": []*apiError{e}})
	if err != nil { // a detail that cannot be marshalled: the code still says enough
		body = []byte(`{"errors":[{"code":` + strconv.Quote(e.Code) + `}]}`)
	}
	h := w.Header()
	h.Set("Content-Type", "application/json")
	h.Set("Content-Length", strconv.Itoa(len(body)))
	w.WriteHeader(e.status)
	_, _ = w.Write(body) // the client is gone when this fails; nothing is left to tell it
}
