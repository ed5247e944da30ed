package transfer

import (
	"context"
	"crypto/x509"
	"errors"
	"io"
	"net"
	"net/http"
	"syscall"

	"github.com/containers/image/v5/docker"
)

// Temporary tells whether a failure may go away by itself: a connection that fails, or an answer of 500 to 599 except
// those that say "never" (501, 505) or "no room" (507). Wrong credentials, unknown images, certificates and digests are
// not temporary.
func Temporary(err error) bool {
	if err == nil || errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) ||
		certificateError(err) {
		return false
	}
	var status docker.UnexpectedHTTPStatusError
	if errors.As(err, &status) {
		return temporaryStatus(status.StatusCode)
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
