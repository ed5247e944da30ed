package kubetest

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/client-go/rest"
)

// Calls are what a program has asked of the API server, as the authorizer sees it.
type Calls struct {
	mu   sync.Mutex
	seen map[Call]int
	// refused are those that the account has no right to.
	refused map[Call]bool
}

// Call is one kind of request. Name is empty where the request is not about one object, as with most lists.
type Call struct{ Verb, Group, Resource, Namespace, Name string }

func (c Call) String() string {
	return fmt.Sprintf("%s %s.%s %s/%s", c.Verb, c.Resource, c.Group, c.Namespace, c.Name)
}

// Record gives credentials like config whose requests are counted, of all clients that are made with them.
func Record(config *rest.Config) (*rest.Config, *Calls) {
	calls := &Calls{seen: map[Call]int{}, refused: map[Call]bool{}}
	recorded := rest.CopyConfig(config)
	recorded.Wrap(func(next http.RoundTripper) http.RoundTripper { return &recorder{next: next, calls: calls} })
	return recorded, calls
}

type recorder struct {
	next  http.RoundTripper
	calls *Calls
}

// RoundTrip takes down the request and its answer.
func (r *recorder) RoundTrip(req *http.Request) (*http.Response, error) {
	answer, err := r.next.RoundTrip(req)
	factory := request.RequestInfoFactory{APIPrefixes: sets.NewString("api", "apis"),
		GrouplessAPIPrefixes: sets.NewString("api")}
	info, bad := factory.NewRequestInfo(req)
	if bad != nil || !info.IsResourceRequest {
		return answer, err // discovery is everybody's
	}
	resource := info.Resource
	if info.Subresource != "" {
		resource += "/" + info.Subresource
	}
	call := Call{Verb: info.Verb, Group: info.APIGroup, Resource: resource, Namespace: info.Namespace, Name: info.Name}
	r.calls.mu.Lock()
	defer r.calls.mu.Unlock()
	r.calls.seen[call]++
	if err == nil && call.Verb == "patch" && answer.StatusCode == http.StatusCreated {
		made := call
		made.Verb = "create" // a server-side apply of what was not there is authorized as both
		r.calls.seen[made]++
	}
	if err == nil && answer.StatusCode == http.StatusForbidden {
		r.calls.refused[call] = true
	}
	return answer, err
}

// Count is how many requests there were so far of those that is takes; nil takes all.
func (c *Calls) Count(is func(Call) bool) (n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for call, times := range c.seen {
		if is == nil || is(call) {
			n += times
		}
	}
	return n
}

// JustThese checks that the program needs exactly the rights that the bindings among objects give a service account by
// roles that are among them, too: no request was refused, and each verb on each resource was used. A watch uses the
// right to list, too: a server that streams what there is gets no list, and an older one does.
func (c *Calls) JustThese(t testing.TB, objects []*unstructured.Unstructured, namespace, account string) {
	t.Helper()
	for _, call := range c.unallowed() {
		assert.Fail(t, "a right is missing", call)
	}
	for _, g := range grants(t, objects, namespace, account) {
		watch := g
		watch.Verb = "watch"
		used := c.Count(g.allows)
		if g.Verb == "list" {
			used += c.Count(watch.allows)
		}
		assert.Positive(t, used, "a right is never used: %s", g)
	}
}

func (c *Calls) unallowed() (out []string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for call := range c.refused {
		out = append(out, call.String())
	}
	slices.Sort(out)
	return out
}

// grant is one right: a verb on a resource, in a namespace or everywhere, of one object or all.
type grant struct{ Call }

func (g grant) allows(c Call) bool {
	return g.Verb == c.Verb && g.Group == c.Group && g.Resource == c.Resource &&
		(g.Namespace == "" || g.Namespace == c.Namespace) && (g.Name == "" || g.Name == c.Name)
}

// grants are an account's rights, one by one.
func grants(t testing.TB, objects []*unstructured.Unstructured, namespace, account string) (out []grant) {
	t.Helper()
	for _, o := range objects {
		if !strings.HasSuffix(o.GetKind(), "RoleBinding") {
			continue
		}
		var binding rbacv1.RoleBinding // both kinds have the same fields
		require.NoError(t, runtime.DefaultUnstructuredConverter.FromUnstructured(o.Object, &binding))
		bound := slices.ContainsFunc(binding.Subjects, func(s rbacv1.Subject) bool {
			return s.Kind == rbacv1.ServiceAccountKind && s.Namespace == namespace && s.Name == account
		})
		role, found := boundRole(t, objects, &binding)
		if !bound || !found {
			continue
		}
		for _, rule := range role.Rules {
			out = append(out, single(rule, binding.Namespace)...)
		}
	}
	require.NotEmpty(t, out, "no role among the objects is bound to %s/%s", namespace, account)
	return out
}

// single takes a rule apart.
func single(rule rbacv1.PolicyRule, namespace string) (out []grant) {
	names := rule.ResourceNames
	if len(names) == 0 {
		names = []string{""}
	}
	for _, group := range rule.APIGroups {
		for _, resource := range rule.Resources {
			for _, verb := range rule.Verbs {
				for _, name := range names {
					out = append(out, grant{Call{Verb: verb, Group: group, Resource: resource, Namespace: namespace, Name: name}})
				}
			}
		}
	}
	return out
}
