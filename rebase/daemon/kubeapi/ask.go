package kubeapi

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/client-go/rest"
)

// askMin and askMax bound the pauses before a request is repeated whose connection ended without an answer; they
// double from the one to the other. All of them together take less than a second: an agent that gets no answer goes on
// without, and asks at its next step.
const (
	askMin = 50 * time.Millisecond
	askMax = 400 * time.Millisecond
)

// ErrNoAnswer is in the error of a request to which the API gave no answer, or only that it cannot answer now. A
// refusal is an answer.
var ErrNoAnswer = errors.New("the API does not answer")

// ask makes a request and decodes its answer, unless into is nil. Every request of this client may be made twice.
func (c *Client) ask(ctx context.Context, into any, request func() *rest.Request) error {
	err := try(ctx, into, request)
	var status apierrors.APIStatus
	if err == nil || errors.As(err, &status) && !apierrors.IsServerTimeout(err) && !apierrors.IsServiceUnavailable(err) &&
		!apierrors.IsTooManyRequests(err) && !apierrors.IsInternalError(err) && !apierrors.IsTimeout(err) {
		return err
	}
	return fmt.Errorf("%w: %w", ErrNoAnswer, err)
}

// try repeats a request whose connection ended. client-go's own repetition is not used: it takes a second each time, as
// long as the request's whole limit lasts.
func try(ctx context.Context, into any, request func() *rest.Request) error {
	ctx, cancel := context.WithTimeout(ctx, requestLimit)
	defer cancel()
	for pause := askMin; ; pause *= 2 {
		result := request().MaxRetries(0).Do(ctx)
		err := result.Error() // Raw's own says less
		if err == nil {
			return decode(result, into)
		}
		again := pause/2 + rand.N(pause/2) //nolint:gosec // spreads load, keeps no secret
		switch seconds, suggested := apierrors.SuggestsClientDelay(err); {
		case suggested:
			again += time.Duration(seconds) * time.Second
		case !dropped(err) || pause > askMax:
			return err
		}
		if end, _ := ctx.Deadline(); time.Until(end) < again {
			return err
		}
		wait(ctx, again)
		if ctx.Err() != nil {
			return err
		}
	}
}

// dropped tells that a connection ended without an answer, as at a load balancer whose servers are away for a moment.
func dropped(err error) bool {
	return utilnet.IsProbableEOF(err) || utilnet.IsConnectionReset(err) || utilnet.IsHTTP2ConnectionLost(err)
}

func decode(result rest.Result, into any) error {
	if into == nil {
		return nil
	}
	raw, err := result.Raw()
	if err == nil {
		err = json.Unmarshal(raw, into)
	}
	if err != nil {
		return fmt.Errorf("decode: %w", err)
	}
	return nil
}
