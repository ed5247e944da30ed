package main

import (
	"errors"
	"fmt"
	"net"
	"net/http"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// administrator is the hint for who may not install or uninstall.
const administrator = "an installation needs the rights of a cluster administrator"

// hintedError has what to do in its text already; a second hint would be too much.
type hintedError struct{ error }

// Unwrap lets the cause be asked for.
func (e hintedError) Unwrap() error { return e.error }

func hinted(err error, hint string) error { return hintedError{fmt.Errorf("%w (%s)", err, hint)} }

// withHints adds to a command's errors what to do when an API server refuses or is not reached.
func withHints(cmd *cobra.Command) *cobra.Command {
	run := cmd.RunE
	cmd.RunE = func(cmd *cobra.Command, args []string) error { return hintOf(run(cmd, args)) }
	return cmd
}

func hintOf(err error) error {
	var told hintedError
	var dial dialError
	switch {
	case errors.As(err, &told):
	case apierrors.IsUnauthorized(err):
		return hinted(err, "the kubeconfig's credentials are refused: log in anew")
	case apierrors.IsForbidden(err):
		return hinted(err, "the kubeconfig's user may not do that: use another one's, with --kubeconfig or --context")
	case errors.As(err, &dial):
		return hinted(err, "does the API server run, and is it the right one? --kubeconfig and --context name another")
	}
	return err
}

// dialError says that the API server itself was not reached: a registry that is not reached needs another hint.
type dialError struct{ error }

// Unwrap lets the cause be asked for.
func (e dialError) Unwrap() error { return e.error }

type dialTeller struct{ next http.RoundTripper }

// tellDials marks connections to the API server that could not be made; all other errors stay what client-go looks for.
func tellDials(next http.RoundTripper) http.RoundTripper { return dialTeller{next} }

// WrappedRoundTripper lets client-go close what is idle.
func (t dialTeller) WrappedRoundTripper() http.RoundTripper { return t.next }

// RoundTrip is http.RoundTripper's.
func (t dialTeller) RoundTrip(r *http.Request) (*http.Response, error) {
	answer, err := t.next.RoundTrip(r)
	var op *net.OpError
	if errors.As(err, &op) && op.Op == "dial" {
		return answer, dialError{err}
	}
	return answer, err
}
