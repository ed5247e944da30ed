package transfer

import (
	"crypto/x509"
	"errors"
	"fmt"
	"net/http"
	"syscall"

	"github.com/containers/image/v5/docker"
	"github.com/docker/distribution/registry/api/errcode"
)

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
