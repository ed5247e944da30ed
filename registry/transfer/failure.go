package transfer

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"reflect"
	"strings"
	"syscall"

	"github.com/containers/image/v5/docker"
	ocilayout "github.com/containers/image/v5/oci/layout"
	"github.com/docker/distribution/registry/api/errcode"
	"oras.land/oras-go/v2/errdef"
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
	case errors.As(err, &layout), errors.Is(err, errdef.ErrNotFound):
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
// TestFailureKinds fails.
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

// Temporary reports whether a failure may go away by itself: a connection that fails, or an answer of 500 to 599 except
// those that say "never" (501, 505) or "no room" (507). Wrong credentials, unknown images, certificates and digests are
// not temporary.
func Temporary(err error) bool {
	if err == nil || errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) ||
		certificateError(err) {
		return false
	}
	if status, ok := errors.AsType[docker.UnexpectedHTTPStatusError](err); ok {
		return temporaryStatus(status.StatusCode)
	}
	if code := hiddenStatus(err); code != 0 {
		return temporaryStatus(code)
	}
	for _, e := range []error{io.ErrUnexpectedEOF, io.EOF, syscall.ECONNREFUSED, syscall.ECONNRESET, syscall.EPIPE,
		syscall.ETIMEDOUT,
		syscall.EHOSTUNREACH, syscall.ENETUNREACH, syscall.ECONNABORTED} {
		if errors.Is(err, e) {
			return true
		}
	}
	var ne net.Error
	if errors.As(err, &ne) && ne.Timeout() {
		return true
	}
	var dns *net.DNSError
	return errors.As(err, &dns) && dns.IsTemporary
}

func temporaryStatus(code int) bool {
	switch code {
	case http.StatusNotImplemented, http.StatusHTTPVersionNotSupported, http.StatusInsufficientStorage:
		return false
	}
	return code >= 500 && code <= 599
}

func certificateError(err error) bool {
	var unknown x509.UnknownAuthorityError
	var host x509.HostnameError
	var invalid x509.CertificateInvalidError
	return errors.As(err, &unknown) || errors.As(err, &host) || errors.As(err, &invalid)
}

// advise adds what to do next and the kind of the failure, where the cause is known.
func advise(err error) error {
	err = classify(err)
	if hint := hintFor(err); hint != "" {
		return fmt.Errorf("%w: %s", err, hint)
	}
	return err
}

func hintFor(err error) string {
	var unknown x509.UnknownAuthorityError
	var host x509.HostnameError
	var invalid x509.CertificateInvalidError
	var status docker.UnexpectedHTTPStatusError
	var login docker.ErrUnauthorizedForCredentials
	var coded errcode.ErrorCoder
	switch {
	case errors.As(err, &unknown):
		return "give the CA that signed the registry's certificate"
	case errors.As(err, &host):
		return "use a name or address that the registry's certificate has, or make a certificate that has this one"
	case errors.As(err, &invalid):
		return "compare the clocks of this host and the registry, then the dates of its certificate"
	case errors.Is(err, syscall.ECONNREFUSED):
		return "nothing listens there: start the registry or correct the port"
	case errors.As(err, &status) && status.StatusCode == http.StatusInsufficientStorage:
		return "free space on the registry's disk, or raise its budget"
	case errors.As(err, &login):
		return "check the account for this registry in the pull secret"
	case errors.As(err, &coded) && coded.ErrorCode() == errcode.ErrorCodeUnauthorized:
		return "check the account for this registry in the pull secret"
	case errors.As(err, &coded) && coded.ErrorCode() == errcode.ErrorCodeDenied:
		return "this account may not do that: use one that may push"
	case errors.Is(err, ErrNotFound):
		return "check the repository and the tag or digest"
	}
	return ""
}
