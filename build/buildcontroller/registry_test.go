package buildcontroller

import (
	"context"
	"errors"
	"sync"
)

// standInRegistry is no registry: it keeps in memory which digests and tags there are, and can be made to refuse.
type standInRegistry struct {
	mu     sync.Mutex
	images map[string]bool
	tags   map[string]string
	fault  error
	// sizes are those of images, by reference.
	sizes   map[string]int64
	deleted map[string]bool
}

func newStandInRegistry() *standInRegistry {
	return &standInRegistry{images: map[string]bool{}, tags: map[string]string{}, deleted: map[string]bool{},
		sizes: map[string]int64{}}
}

func (s *standInRegistry) push(reference, tag string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.images[reference] = true
	s.tags[repositoryOf(reference)+":"+tag] = digestOf(reference)
}

// refuse makes every request fail; nil ends it.
func (s *standInRegistry) refuse(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.fault = err
}

func (s *standInRegistry) lose(reference string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.images, reference)
}

func (s *standInRegistry) has(reference string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.images[reference]
}

func (s *standInRegistry) wasDeleted(reference string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.deleted[reference]
}

func (s *standInRegistry) digest(tag string) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.tags[tag]
}

func (s *standInRegistry) Exists(_ context.Context, reference string, _ Access) (bool, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.images[reference], s.fault
}

func (s *standInRegistry) Tag(_ context.Context, reference, tag string, _ Access) (bool, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.fault != nil {
		return false, s.fault
	}
	if !s.images[reference] {
		return false, nil
	}
	s.tags[repositoryOf(reference)+":"+tag] = digestOf(reference)
	return true, nil
}

func (s *standInRegistry) Delete(_ context.Context, reference string, _ Access) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.fault != nil {
		return s.fault
	}
	delete(s.images, reference)
	s.deleted[reference] = true
	return nil
}

func (s *standInRegistry) Size(_ context.Context, reference, _ string, _ Access) (int64, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.sizes[reference], s.fault
}

// size makes an image have a size, in bytes.
func (s *standInRegistry) size(reference string, n int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.sizes[reference] = n
}

var errRefused = errors.New("401 Unauthorized")
