package connect

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// Administrator is the hint for commands that change what belongs to the whole cluster.
const Administrator = "an installation needs the rights of a cluster administrator"

const anotherUser = "the kubeconfig's user has no permission: use another user, with --kubeconfig or --context"

// WithHints adds to a command's errors what to do when an API server refuses or is not reached. forbidden is for users
// without the rights; empty: use another user. The commands below it have the same.
func WithHints(cmd *cobra.Command, forbidden string) *cobra.Command {
	if forbidden == "" {
		forbidden = anotherUser
	}
	for _, sub := range cmd.Commands() {
		WithHints(sub, forbidden)
	}
	run := cmd.RunE
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		err := run(cmd, args)
		var dial dialError
		switch {
		case apierrors.IsUnauthorized(err):
			return hint(err, "the API server refuses the kubeconfig's credentials: log in again")
		case apierrors.IsForbidden(err):
			return hint(err, forbidden)
		case errors.As(err, &dial):
			return hint(err, "is the API server running, and is it the right one? --kubeconfig and --context select another")
		}
		return err
	}
	return cmd
}

func hint(err error, what string) error { return fmt.Errorf("%w (%s)", err, what) }

// dialError says that the API server itself was not reached or did not answer: a registry needs another hint.
type dialError struct{ error }

// Unwrap gives the cause.
func (e dialError) Unwrap() error { return e.error }

// dialer marks connections to the API server that could not be made or broke off; all other errors stay what client-go
// looks for.
type dialer struct{ next http.RoundTripper }

// WrappedRoundTripper lets client-go close what is idle.
func (d dialer) WrappedRoundTripper() http.RoundTripper { return d.next }

// RoundTrip is http.RoundTripper's.
func (d dialer) RoundTrip(r *http.Request) (*http.Response, error) {
	answer, err := d.next.RoundTrip(r)
	if r.Context().Err() == nil && unreached(err) {
		return answer, dialError{err}
	}
	return answer, err
}

// unreached tells that there was no connection, that it broke off before an answer, or that none came in time.
func unreached(err error) bool {
	var op *net.OpError
	var timed net.Error
	return errors.As(err, &op) || errors.As(err, &timed) && timed.Timeout() || errors.Is(err, io.EOF)
}
