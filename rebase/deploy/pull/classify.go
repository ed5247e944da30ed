package pull

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"net/http"
	"regexp"
	"strconv"
	"syscall"

	"github.com/containers/image/v5/docker"
	"github.com/docker/distribution/registry/api/errcode"

	"dayone.dev/dayone/rebase/deploy"
	"dayone.dev/dayone/rebase/deploy/layertar"
	"dayone.dev/dayone/rebase/deploy/ostreerepo"
)

// classify wraps what the registry client, the TLS stack or ostree said in a Fault. A Fault stays as it is.
func classify(op string, err error) error {
	var known *deploy.Fault
	if err == nil || errors.As(err, &known) {
		return err
	}
	f := &deploy.Fault{Op: op, Err: err}
	switch {
	case isExpired(err):
		f.Class, f.Next = deploy.ClassExpired, "set this node's clock, or renew the registry's certificate"
	case isUntrusted(err):
		f.Class, f.Next = deploy.ClassUntrusted, "put the registry's CA into /etc/containers/certs.d/HOST:PORT/ca.crt"
	case errors.Is(err, layertar.ErrEncapsulated):
		f.Class, f.Next = deploy.ClassHostile, "build the image again and keep the label "+labelFinalDiffID+" of its base"
	case isDiskFull(err):
		f.Class, f.Next = deploy.ClassDiskFull, "free space on the file system of /sysroot"
	case errors.Is(err, layertar.ErrHostile), errors.Is(err, ostreerepo.ErrEntry):
		f.Class, f.Next = deploy.ClassHostile, "rebuild the image without that entry"
	default:
		f.Class, f.Next = classifyHTTP(err)
	}
	return f
}

func isDiskFull(err error) bool {
	return errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT)
}

func isExpired(err error) bool {
	var invalid x509.CertificateInvalidError
	return errors.As(err, &invalid) && invalid.Reason == x509.Expired
}

func isUntrusted(err error) bool {
	var (
		unknown  x509.UnknownAuthorityError
		invalid  x509.CertificateInvalidError
		hostname x509.HostnameError
		verify   *tls.CertificateVerificationError
	)
	return errors.As(err, &unknown) || errors.As(err, &invalid) || errors.As(err, &hostname) || errors.As(err, &verify)
}

func classifyHTTP(err error) (deploy.Class, string) {
	status := httpStatus(err)
	switch {
	case status == http.StatusUnauthorized:
		return deploy.ClassUnauthorized, "check the pull credential in /etc/ostree/auth.json"
	case status == http.StatusForbidden:
		return deploy.ClassForbidden, "allow this node's registry user to pull from that repository"
	case status == http.StatusNotFound:
		return deploy.ClassNotFound, "check that the image was pushed to that repository, and that its digest is right"
	case status >= http.StatusInternalServerError, status == http.StatusTooManyRequests:
		return deploy.ClassRegistry, "look at the registry's log"
	case errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, errBroken):
		return deploy.ClassUnreachable, "check the network between this node and the registry"
	case isNetwork(err):
		return deploy.ClassUnreachable, "check that the registry runs and that this node reaches it (address, DNS, firewall)"
	}
	return deploy.ClassInternal, ""
}

// isNetwork tells errors of dialling, resolving, timing out and broken connections.
func isNetwork(err error) bool {
	var n interface{ Timeout() bool } // net.Error, net.OpError, net.DNSError, url.Error, syscall.Errno
	return errors.As(err, &n) || errors.Is(err, errStalled) || errors.Is(err, errBroken)
}

// httpStatus finds the status behind an error of the registry client, 0 when there is none.
func httpStatus(err error) int {
	var (
		unexpected   docker.UnexpectedHTTPStatusError
		unauthorized docker.ErrUnauthorizedForCredentials
		code         errcode.ErrorCoder // an Error, or a bare ErrorCode when the registry sent no text of its own
		codes        errcode.Errors
	)
	switch {
	case errors.As(err, &unauthorized):
		return http.StatusUnauthorized
	case errors.Is(err, docker.ErrTooManyRequests):
		return http.StatusTooManyRequests
	case errors.As(err, &unexpected):
		return unexpected.StatusCode
	case errors.As(err, &code):
		return code.ErrorCode().Descriptor().HTTPStatusCode
	case errors.As(err, &codes) && len(codes) > 0:
		return httpStatus(codes[0])
	}
	// The client keeps the type of its error for an answer that is not the registry's JSON to itself: only its text tells
	// the status.
	if m := regexp.MustCompile(`StatusCode: ([0-9]{3})|HTTP ([0-9]{3}) response`).
		FindStringSubmatch(err.Error()); m != nil {
		status, convErr := strconv.Atoi(m[1] + m[2])
		if convErr == nil {
			return status
		}
	}
	return 0
}
