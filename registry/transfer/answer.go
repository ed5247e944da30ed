package transfer

import (
	"errors"
	"net/http"
	"reflect"
	"strings"

	"github.com/containers/image/v5/docker"
	ocilayout "github.com/containers/image/v5/oci/layout"
	"github.com/docker/distribution/registry/api/errcode"
)

// What a failure says about the image, for errors.Is. Only ErrNotFound says that it is not there: who removes images
// must not take anything else for that.
var (
	// ErrNotFound: the registry or layout answered that it has no such repository, image or blob (404).
	ErrNotFound = errors.New("image is not there")
	// ErrUnauthorized: the account is missing or wrong (401).
	ErrUnauthorized = errors.New("account is not accepted")
	// ErrDenied: the account may not do that (403).
	ErrDenied = errors.New("account is not allowed")
	// ErrUnavailable: the registry did not answer, or with 429 or 5xx. Whether the image is there is not known.
	ErrUnavailable = errors.New("registry is not available")
)

// answered gives an error its kind without changing its text.
type answered struct {
	error
	kind error
}

func (a answered) Unwrap() []error { return []error{a.error, a.kind} }

// classify adds the kind where the cause is known.
func classify(err error) error {
	if kind := kindOf(err); kind != nil {
		return answered{err, kind}
	}
	return err
}

func kindOf(err error) error {
	var login docker.ErrUnauthorizedForCredentials
	var status docker.UnexpectedHTTPStatusError
	var layout ocilayout.ImageNotFoundError
	var coded errcode.ErrorCoder
	switch {
	case errors.As(err, &login):
		return ErrUnauthorized
	case errors.As(err, &layout):
		return ErrNotFound
	case errors.Is(err, docker.ErrTooManyRequests):
		return ErrUnavailable
	case errors.As(err, &status):
		return kindOfStatus(status.StatusCode)
	case errors.As(err, &coded):
		return kindOfCode(coded)
	}
	if code := hiddenStatus(err); code != 0 {
		return kindOfStatus(code)
	}
	if Temporary(err) {
		return ErrUnavailable
	}
	return nil
}

func kindOfStatus(code int) error {
	switch {
	case code == http.StatusNotFound:
		return ErrNotFound
	case code == http.StatusUnauthorized:
		return ErrUnauthorized
	case code == http.StatusForbidden:
		return ErrDenied
	case code == http.StatusTooManyRequests || code >= http.StatusInternalServerError:
		return ErrUnavailable
	}
	return nil
}

// kindOfCode goes by the status that a code of the specification stands for. Codes outside of it are all "unknown" to
// the library; of these, Harbor says NOT_FOUND in its own way.
func kindOfCode(coded errcode.ErrorCoder) error {
	if coded.ErrorCode() == errcode.ErrorCodeUnknown {
		if e, ok := coded.(errcode.Error); ok && strings.Contains(strings.ToLower(e.Message), "not found") {
			return ErrNotFound
		}
		return nil
	}
	return kindOfStatus(coded.ErrorCode().Descriptor().HTTPStatusCode)
}

// hiddenStatus is the status of an answer whose body is not of the specification: containers/image keeps it in a type
// of its own, in an exported field that is named as in the ones that it shows. Should that change,
// TestAnswersAreToldApart fails.
func hiddenStatus(err error) int {
	if err == nil {
		return 0
	}
	if v := reflect.Indirect(reflect.ValueOf(err)); v.Kind() == reflect.Struct {
		if f := v.FieldByName("StatusCode"); f.IsValid() && f.CanInt() {
			return int(f.Int())
		}
	}
	switch u := err.(type) { //nolint:errorlint // each step of the chain is looked at
	case interface{ Unwrap() error }:
		return hiddenStatus(u.Unwrap())
	case interface{ Unwrap() []error }:
		for _, e := range u.Unwrap() {
			if code := hiddenStatus(e); code != 0 {
				return code
			}
		}
	}
	return 0
}
