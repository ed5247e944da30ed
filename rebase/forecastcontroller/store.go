package forecastcontroller

import (
	"context"
	"fmt"
	"maps"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"dayone.dev/dayone/manifests/assets/cluster"
	"dayone.dev/dayone/rebase/forecast"
)

// store publishes ConfigMaps of one namespace. They are not watched: it remembers what it wrote, and looks again when
// that is long ago.
type store struct {
	live      client.Client
	namespace string
	mu        sync.Mutex
	known     map[string]remembered
}

type remembered struct {
	data map[string]string
	at   time.Time
}

func newStore(live client.Client, namespace string) *store {
	return &store{live: live, namespace: namespace, known: map[string]remembered{}}
}

// read gives what a ConfigMap has, from memory if that is not old; nil: there is none.
func (s *store) read(ctx context.Context, name string, now time.Time) (map[string]string, error) {
	s.mu.Lock()
	have, found := s.known[name]
	s.mu.Unlock()
	if found && now.Sub(have.at) < mend {
		return have.data, nil
	}
	m := &corev1.ConfigMap{}
	err := s.live.Get(ctx, client.ObjectKey{Namespace: s.namespace, Name: name}, m)
	if client.IgnoreNotFound(err) != nil {
		return nil, fmt.Errorf("read ConfigMap %s: %w", name, err)
	}
	if err != nil {
		return nil, nil //nolint:nilerr // not found is an answer
	}
	s.remember(name, m.Data, now)
	return m.Data, nil
}

func (s *store) remember(name string, data map[string]string, now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if data == nil {
		delete(s.known, name)
		return
	}
	s.known[name] = remembered{data: data, at: now}
}

// write gives a ConfigMap this content, if it has another. Keys of other writers stay.
func (s *store) write(ctx context.Context, at string, data map[string]string, now time.Time) (changed bool, err error) {
	have, err := s.read(ctx, at, now)
	if err != nil || contains(have, data) {
		return false, err
	}
	values := map[string]any{}
	for k, v := range data {
		values[k] = v
	}
	o := &unstructured.Unstructured{Object: map[string]any{"data": values}}
	o.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("ConfigMap"))
	o.SetNamespace(s.namespace)
	o.SetName(at)
	o.SetLabels(map[string]string{cluster.LabelManagedBy: cluster.ManagedBy})
	if err := s.live.Apply(ctx, client.ApplyConfigurationFromUnstructured(o), client.FieldOwner(name),
		client.ForceOwnership); err != nil {
		return false, fmt.Errorf("write ConfigMap %s: %w", at, err)
	}
	s.remember(at, data, now)
	return true, nil
}

// contains tells that a ConfigMap has all of this content.
func contains(have, data map[string]string) bool {
	if have == nil {
		return false
	}
	both := maps.Clone(have)
	maps.Copy(both, data)
	return maps.Equal(both, have)
}

// remove deletes a ConfigMap.
func (s *store) remove(ctx context.Context, name string) error {
	m := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: s.namespace, Name: name}}
	if err := s.live.Delete(ctx, m); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("delete ConfigMap %s: %w", name, err)
	}
	s.remember(name, nil, time.Time{})
	return nil
}

// keep deletes the ConfigMaps of pools but these.
func (s *store) keep(ctx context.Context, names map[string]bool) error {
	var list metav1.PartialObjectMetadataList
	list.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("ConfigMapList"))
	if err := s.live.List(ctx, &list, client.InNamespace(s.namespace),
		client.MatchingLabels{cluster.LabelManagedBy: cluster.ManagedBy}); err != nil {
		return fmt.Errorf("list ConfigMaps: %w", err)
	}
	for i := range list.Items {
		at := list.Items[i].Name
		if strings.HasPrefix(at, forecast.ConfigMapPrefix) && !names[at] {
			if err := s.remove(ctx, at); err != nil {
				return err
			}
		}
	}
	return nil
}
