package kubetest

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

const (
	// registry begins the keys of all objects in etcd.
	registry = "/registry/"
	// served begin the keys of what decides which kinds are served. A server follows them late, so one whose kinds were
	// changed is not used again.
	servedCRDs, servedAPIs = registry + "apiextensions.k8s.io/customresourcedefinitions/",
		registry + "apiregistration.k8s.io/apiservices/"
	// ownLease begins the key of the lease that an API server renews for itself.
	ownLease = registry + "leases/kube-system/apiserver-"
	// quiet is how long a started server must have written nothing until its state is that of a new one.
	quiet = 500 * time.Millisecond
	// renewLimit bounds each wait for a server that begins or is made new again: less than a second on an idle machine.
	renewLimit = 2 * time.Minute
	// writeCount and writeBytes are less than etcd takes in one transaction by default (128 and 1.5 MiB).
	writeCount, writeBytes = 100, 1 << 20
)

// errUsed says that a server cannot be made new again.
var errUsed = errors.New("the kinds that it serves were changed")

// content is what etcd has of objects, by key.
type content map[string][]byte

// renewable is an environment that can be made new again.
type renewable struct {
	*Env

	store store
	// first is what etcd had when the server had started.
	first content
}

// startRenewable starts an environment and waits until it has written all that it writes by itself.
func startRenewable(ctx context.Context, o Options) (*renewable, error) {
	e, err := start(ctx, o)
	if err != nil {
		return nil, err
	}
	r := &renewable{Env: e, store: store{url: e.plane.EtcdURL()}}
	if err := r.remember(ctx); err != nil {
		return nil, errors.Join(err, e.Close())
	}
	return r, nil
}

func (r *renewable) remember(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, renewLimit)
	defer cancel()
	for {
		before, err := r.store.objects(ctx)
		if err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("wait until the API server is at rest: %w", ctx.Err())
		case <-time.After(quiet):
		}
		if r.first, err = r.store.objects(ctx); err != nil {
			return err
		}
		if maps.EqualFunc(before, r.first, bytes.Equal) {
			return nil
		}
	}
}

// renew makes the cluster what it was when the server had started. It shuts out whoever still has clients of the Env.
// The server hears of it as of all that others write into etcd: no finalizer and no controller has a say.
func (r *renewable) renew(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, renewLimit)
	defer cancel()
	r.fence.closed.Store(true)
	if err := r.open(); err != nil {
		return err
	}
	mark := &rbacv1.ClusterRoleBinding{ObjectMeta: metav1.ObjectMeta{Name: "zz-kubetest"},
		RoleRef:  rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "cluster-admin"},
		Subjects: []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: "kubetest-mark"}}}
	if err := r.Client.Create(ctx, mark); err != nil {
		return fmt.Errorf("mark what is to go: %w", err)
	}
	if err := r.awaitMark(ctx, mark, true); err != nil {
		return err
	}
	for {
		now, err := r.store.objects(ctx)
		if err != nil {
			return err
		}
		keys := differences(r.first, now)
		if len(keys) == 0 {
			break
		}
		if slices.ContainsFunc(keys, func(k string) bool {
			return strings.HasPrefix(k, servedCRDs) || strings.HasPrefix(k, servedAPIs)
		}) {
			return errUsed
		}
		if err := r.store.restore(ctx, r.first, keys); err != nil {
			return err
		}
	}
	r.installed = false
	return r.awaitMark(ctx, mark, false) // the authorizer has heard of it, which went last
}

// awaitMark waits until the mark's user may do everything, or nothing.
func (r *renewable) awaitMark(ctx context.Context, mark *rbacv1.ClusterRoleBinding, may bool) error {
	for {
		review := &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
			User:                  mark.Subjects[0].Name,
			NonResourceAttributes: &authorizationv1.NonResourceAttributes{Path: "/any", Verb: "get"}}}
		if err := r.Client.Create(ctx, review); err != nil {
			return fmt.Errorf("ask for the mark's rights: %w", err)
		}
		if review.Status.Allowed == may {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("wait for the authorizer: %w", ctx.Err())
		case <-time.After(rightsPoll):
		}
	}
}

// differences are the keys of two contents that do not have the same value. Those of rights come last.
func differences(first, now content) (keys []string) {
	for k, v := range now {
		if was, ok := first[k]; !ok || !bytes.Equal(was, v) {
			keys = append(keys, k)
		}
	}
	for k := range first {
		if _, ok := now[k]; !ok {
			keys = append(keys, k)
		}
	}
	late := func(k string) int { return strings.Count(k, registry+"clusterrolebindings/") }
	slices.SortFunc(keys, func(a, b string) int {
		if order := late(a) - late(b); order != 0 {
			return order
		}
		return strings.Compare(a, b)
	})
	return keys
}

// ended says whether one of the servers does not run.
func (r *renewable) ended() bool { return errors.Join(r.server.Ended(), r.etcd.Ended()) != nil }

// store is an etcd, by the address of its gateway.
type store struct{ url string }

// objects reads all of them but those that servers keep writing.
func (s store) objects(ctx context.Context) (content, error) {
	var answer struct{ Kvs []struct{ Key, Value []byte } }
	end := []byte(registry)
	end[len(end)-1]++
	err := s.ask(ctx, "range", map[string]any{"key": []byte(registry), "range_end": end}, &answer)
	if err != nil {
		return nil, err
	}
	all := content{}
	for _, kv := range answer.Kvs {
		if !strings.HasPrefix(string(kv.Key), ownLease) {
			all[string(kv.Key)] = kv.Value
		}
	}
	return all, nil
}

// restore gives keys the value that they had first, or none.
func (s store) restore(ctx context.Context, first content, keys []string) error {
	for len(keys) > 0 {
		var operations []map[string]any
		size := 0
		for _, k := range keys[:min(len(keys), writeCount)] {
			value, was := first[k]
			if size += len(k) + len(value); size > writeBytes && len(operations) > 0 {
				break
			}
			if was {
				operations = append(operations, map[string]any{"requestPut": map[string]any{"key": []byte(k), "value": value}})
			} else {
				operations = append(operations, map[string]any{"requestDeleteRange": map[string]any{"key": []byte(k)}})
			}
		}
		if err := s.ask(ctx, "txn", map[string]any{"success": operations}, &struct{}{}); err != nil {
			return err
		}
		keys = keys[len(operations):]
	}
	return nil
}

// ask calls a method of etcd's key-value service through its gateway (etcd's rpc.proto, KV).
func (s store) ask(ctx context.Context, method string, question, answer any) error {
	raw, err := json.Marshal(question)
	if err != nil {
		return err
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, s.url+"/v3/kv/"+method,
		bytes.NewReader(raw))
	if err != nil {
		return err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return fmt.Errorf("ask etcd: %w", err)
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("ask etcd for %s: %s", method, response.Status)
	}
	if err := json.NewDecoder(response.Body).Decode(answer); err != nil {
		return fmt.Errorf("read etcd's answer: %w", err)
	}
	return nil
}

// fence stops the requests of clients when it is closed: those of a test that has ended.
type fence struct{ closed atomic.Bool }

var errFenced = errors.New("the test that this client belongs to has ended")

type fenced struct {
	*fence
	next http.RoundTripper
}

// RoundTrip sends the request on.
func (f fenced) RoundTrip(r *http.Request) (*http.Response, error) {
	if f.closed.Load() {
		return nil, errFenced
	}
	return f.next.RoundTrip(r)
}

func (f *fence) wrap(next http.RoundTripper) http.RoundTripper { return fenced{fence: f, next: next} }
