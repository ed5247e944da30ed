package handover

import (
	"context"
	"errors"
	"fmt"
	"net"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"

	"dayone.dev/dayone/registry/transfer"
)

// fatal is a failure that waiting does not mend.
type fatal struct{ error }

func (f fatal) Unwrap() error { return f.error }

// waitsFor is what a stage waits for; it is no failure.
type waitsFor struct{ what string }

func (w waitsFor) Error() string { return w.what }

// errRefused marks an API server that does not take the credentials, which it may do while it starts.
var errRefused = errors.New(
	"the cluster refuses the hand-over's credentials: it needs those of a cluster administrator; correct " +
		"--kubeconfig and run it again")

// ofRegistry says what a registry's failure means for the hand-over.
func ofRegistry(err error, permanent string) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded):
		return err
	case transfer.Temporary(err) || errors.Is(err, transfer.ErrUnavailable):
		return err
	}
	return fatal{fmt.Errorf("%w: %s", err, permanent)}
}

// ofCluster says what an API server's failure means.
func ofCluster(err error) error {
	var network net.Error
	switch {
	case err == nil:
		return nil
	case apierrors.IsUnauthorized(err) || apierrors.IsForbidden(err):
		return fmt.Errorf("%w (%w)", err, errRefused)
	case meta.IsNoMatchError(err):
		return fmt.Errorf(
			"%w: the cluster does not know this kind yet: dayone cluster install brings it, or the release's operators do", err)
	case apierrors.IsInvalid(err) || apierrors.IsBadRequest(err) || apierrors.IsRequestEntityTooLargeError(err):
		return fatal{fmt.Errorf("%w: correct the object in the install directory and run dayone bootstrap again", err)}
	case errors.As(err, &network):
		return fmt.Errorf("the cluster does not answer: %w", err)
	}
	return err
}
