package buildcontroller

import (
	"slices"
	"sync"

	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"

	"dayone.dev/dayone/build/decide"
	"dayone.dev/dayone/build/machineosbuild"
)

// slots bound how many builds run at once and keep two MachineOSConfigs from building the same content. They remember
// what this process has begun until the cache shows how it ended: the cache alone is behind.
type slots struct {
	mu    sync.Mutex
	limit int
	taken map[string]claim
}

// claim is a build that was begun here.
type claim struct{ owner, content string }

// content is what two builds have in common when one of them is enough.
func content(address, repository string) string { return repository + "@" + address }

func newSlots(limit int) *slots { return &slots{limit: limit, taken: map[string]claim{}} }

// view is how many builds may begin and what others build, seen from one MachineOSConfig. active and ended are builds
// that the cache knows.
func (s *slots) view(owner, what string, active, ended map[string]bool) (free int, others []decide.Known) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.look(owner, what, active, ended)
}

func (s *slots) look(owner, what string, active, ended map[string]bool) (free int, others []decide.Known) {
	free = s.limit - len(active)
	for name, c := range s.taken {
		if ended[name] {
			delete(s.taken, name)
			continue
		}
		if !active[name] {
			free--
		}
		if c.owner != owner && c.content == what {
			others = append(others, decide.Known{Name: name, Owner: c.owner, State: machineosbuild.Initial})
		}
	}
	return free, others
}

// take claims a place. It is false when the view has changed meanwhile. replaces is how many running builds give their
// place.
func (s *slots) take(name string, c claim, active map[string]bool, replaces int) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	free, others := s.look(c.owner, c.content, active, nil)
	if _, mine := s.taken[name]; !mine && (len(others) > 0 || free+replaces <= 0) {
		return false
	}
	s.taken[name] = c
	return true
}

// keep drops the owner's claims but those named: the API has been asked and knows no others.
func (s *slots) keep(owner string, running map[string]bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for name, c := range s.taken {
		if c.owner == owner && !running[name] {
			delete(s.taken, name)
		}
	}
}

// unknown tells whether the owner has a claim that is of none of its builds.
func (s *slots) unknown(owner string, own []*mcfgv1.MachineOSBuild) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	for name, c := range s.taken {
		if c.owner == owner && !slices.ContainsFunc(own, func(b *mcfgv1.MachineOSBuild) bool { return b.Name == name }) {
			return true
		}
	}
	return false
}

// names are the builds that were begun here and of which no end has been seen.
func (s *slots) names() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	names := make([]string, 0, len(s.taken))
	for name := range s.taken {
		names = append(names, name)
	}
	return names
}
