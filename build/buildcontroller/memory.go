package buildcontroller

import (
	"slices"
	"sync"
	"time"

	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	"k8s.io/apimachinery/pkg/types"

	"dayone.dev/dayone/build/decide"
	"dayone.dev/dayone/build/machineosbuild"
)

// memory is what this process knows beside the API. Losing it loses no build.
type memory struct {
	slots *slots
	// desired has a remembered value for the UID of each MachineOSConfig.
	desired sync.Map
	// queued are the names of MachineOSConfigs to which the end of other builds matters.
	queued sync.Map
	// refused is when a registry first refused to delete the image of a build, by the build's UID. It is measured here
	// and not read from the deletion's timestamp, which has the API server's clock.
	refused sync.Map
	// rendered is the rendered config of each pool, by the pool's name.
	rendered sync.Map
	layered  layeredNodes
	// signing is the key of the Secret cluster.SigningKey in a version: to decrypt it takes a while on purpose.
	signing signingMemory
	// images keeps an image from being reused by one MachineOSConfig while the build of another one deletes it.
	images sync.Mutex
}

func newMemory(parallel int) *memory { return &memory{slots: newSlots(parallel)} }

// setQueued notes whether the end of other builds matters to a MachineOSConfig.
func (m *memory) setQueued(name string, queued bool) {
	if queued {
		m.queued.Store(name, true)
	} else {
		m.queued.Delete(name)
	}
}

// refusedFor is how long ago a registry first refused to delete the image of a build. This call is a refusal.
func (m *memory) refusedFor(build types.UID, now time.Time) time.Duration {
	value, _ := m.refused.LoadOrStore(build, now)
	first, _ := value.(time.Time)
	return now.Sub(first)
}

// known gives the computed result of a MachineOSConfig, when it was computed of the same inputs.
func (m *memory) known(config types.UID, key desiredKey) (desired, bool) {
	value, _ := m.desired.Load(config)
	r, ok := value.(remembered)
	return r.desired, ok && r.key == key
}

// content is what two builds have in common when one of them is enough.
type content struct{ repository, address string }

// index is the content as a key of the cache.
func (c content) index() string { return c.repository + "@" + c.address }

// slots bound how many builds run at once and keep two MachineOSConfigs from building the same content. They hold what
// this process has begun until the cache shows how it ended: the cache alone is behind.
type slots struct {
	mu    sync.Mutex
	limit int
	taken map[string]claim
}

// claim is a build that was begun here.
type claim struct {
	owner   string
	content content
}

func newSlots(limit int) *slots { return &slots{limit: limit, taken: map[string]claim{}} }

// view is how many builds may begin and what others build of the claim's content. active and ended are builds that the
// cache knows.
func (s *slots) view(c claim, active, ended map[string]bool) (free int, others []decide.Known) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.viewLocked(c, active, ended)
}

func (s *slots) viewLocked(c claim, active, ended map[string]bool) (free int, others []decide.Known) {
	free = s.limit - len(active)
	for name, taken := range s.taken {
		if ended[name] {
			delete(s.taken, name)
			continue
		}
		if !active[name] {
			free--
		}
		if taken.owner != c.owner && taken.content == c.content {
			others = append(others, decide.Known{Name: name, Owner: taken.owner, State: machineosbuild.Initial})
		}
	}
	return free, others
}

// take takes a slot for a build. It is false when there is none, or when another one builds the same content. replaces
// is how many running builds give their slot.
func (s *slots) take(name string, c claim, active map[string]bool, replaces int) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	free, others := s.viewLocked(c, active, nil)
	if _, mine := s.taken[name]; !mine && (len(others) > 0 || free+replaces <= 0) {
		return false
	}
	s.taken[name] = c
	return true
}

// release drops the owner's claims that are of none of its running builds. builds must come from the API server.
func (s *slots) release(owner string, builds []*mcfgv1.MachineOSBuild) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for name, c := range s.taken {
		running := func(b *mcfgv1.MachineOSBuild) bool { return b.Name == name && !terminal(b) }
		if c.owner == owner && !slices.ContainsFunc(builds, running) {
			delete(s.taken, name)
		}
	}
}

// unknown reports whether the owner has a claim that is of none of its builds.
func (s *slots) unknown(owner string, builds []*mcfgv1.MachineOSBuild) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	for name, c := range s.taken {
		named := func(b *mcfgv1.MachineOSBuild) bool { return b.Name == name }
		if c.owner == owner && !slices.ContainsFunc(builds, named) {
			return true
		}
	}
	return false
}

// names lists the builds that were begun here and whose end is not known yet.
func (s *slots) names() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	names := make([]string, 0, len(s.taken))
	for name := range s.taken {
		names = append(names, name)
	}
	return names
}
