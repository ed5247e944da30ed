package poolaccounts_test

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/crypto/bcrypt"

	"dayone.dev/dayone/registry/poolaccounts"
	"dayone.dev/dayone/registry/wanted"
)

// world is a cluster whose registries and nodes follow when they are told to.
type world struct {
	*testing.T
	now        time.Time
	state      poolaccounts.State
	registries []poolaccounts.User
	wants      []poolaccounts.Want
	others     []poolaccounts.User
	waits      string
}

// next takes a step from what was kept, as after a kill.
func (w *world) next() {
	w.Helper()
	raw, err := w.state.Encode()
	require.NoError(w, err)
	kept, err := poolaccounts.Decode(raw)
	require.NoError(w, err)
	next, waits, err := kept.Next(w.now, poolaccounts.View{Wants: w.wants, Registries: w.registries, Others: w.others})
	require.NoError(w, err)
	w.state, w.waits = next, strings.Join(waits, "; ")
}

// accept lets all registries follow.
func (w *world) accept() {
	for i := range w.registries {
		w.registries[i].Has = wanted.AccountsHash([]byte(w.state.Users()))
	}
}

func (w *world) use(pool string) string { return w.state.Of(pool).Current.Name }

func newWorld(t *testing.T) *world {
	return &world{T: t, now: time.Date(2026, 11, 27, 0, 0, 0, 0, time.UTC),
		registries: []poolaccounts.User{{Name: "m0", Ready: true}, {Name: "m1", Ready: true}, {Name: "m2"}},
		wants:      []poolaccounts.Want{{Pool: "worker", Users: []poolaccounts.User{{Name: "w0", Ready: true}}}}}
}

// first brings the first account into use.
func (w *world) first() {
	w.next()
	w.accept()
	w.next()
	w.next()
	require.NotEmpty(w, w.use("worker"))
	w.wants[0].Users[0].Has = w.use("worker")
}

func TestTheFirstAccountWaitsForRegistries(t *testing.T) {
	w := newWorld(t)
	w.next()
	assert.Empty(t, w.use("worker"), "no registry accepts it")
	assert.Regexp(t, `^pool-worker-[a-z2-7]{8}:\$2a\$10\$\S+:pull\n$`, w.state.Users())
	made := w.state
	w.registries[0].Has = wanted.AccountsHash([]byte(w.state.Users()))
	w.next()
	assert.Equal(t, made, w.state, "a kill makes no other account")
	assert.Contains(t, w.waits, "pool worker: the registries of m1 have not")
	w.accept()
	w.registries[2].Has = "" // it is off, and takes them over when it is back
	w.next()
	assert.NotEmpty(t, w.use("worker"))
	for i := range w.registries {
		w.registries[i].Ready = false
	}
	w.wants[0].Pool = "infra"
	w.next()
	w.next()
	assert.Contains(t, w.waits, "no control-plane node is ready")
}

// TestARotation: old and new are accepted, then used, and then the old one goes; one pool's alone.
func TestARotation(t *testing.T) {
	w := newWorld(t)
	w.wants = append(w.wants, poolaccounts.Want{Pool: "infra", Users: []poolaccounts.User{{Name: "i0", Ready: true}}})
	w.first()
	old, infra := w.use("worker"), w.state.Of("infra")
	w.next()
	require.Equal(t, old, w.use("worker"), "nothing happens unless somebody asks")
	w.wants[0].Asked = "2026-11-27"
	w.next()
	assert.Equal(t, old, w.use("worker"))
	assert.Equal(t, 3, strings.Count(w.state.Users(), "\n"))
	w.accept()
	w.next()
	fresh := w.use("worker")
	assert.NotEqual(t, old, fresh)
	assert.Contains(t, w.state.Users(), old)
	w.next()
	assert.Contains(t, w.waits, "w0 use the account before")
	assert.Contains(t, w.state.Users(), old)
	w.wants[0].Users[0].Has = fresh
	w.others = []poolaccounts.User{{Name: "moved", Ready: true, Has: old}}
	w.next()
	assert.Contains(t, w.waits, "moved use", "a node that went to another pool may still have it")
	w.others[0].Ready = false
	w.next()
	assert.NotContains(t, w.state.Users(), old)
	assert.Equal(t, infra, w.state.Of("infra"))
	w.next()
	assert.Equal(t, fresh, w.use("worker"), "a request is followed once")
	assert.Empty(t, w.waits)
	a := w.state.Of("worker").Current
	assert.NoError(t, bcrypt.CompareHashAndPassword([]byte(a.Hash), []byte(a.Password)))
	w.now = w.now.Add(91 * 24 * time.Hour)
	w.next()
	assert.Equal(t, 4, strings.Count(w.state.Users(), "\n"), "both are old")
}

func TestAPoolThatIsGone(t *testing.T) {
	w := newWorld(t)
	w.first()
	w.others, w.wants = w.wants[0].Users, nil
	w.next()
	assert.Contains(t, w.waits, "pool worker is gone, and its account goes when w0 use another one")
	w.others[0].Has = "pool-infra-aaaaaaaa"
	w.next()
	assert.Empty(t, w.state.Users())
}

// TestBuilders: a build that began with the account before keeps it, also when the Secret came late.
func TestBuilders(t *testing.T) {
	w := newWorld(t)
	w.wants = []poolaccounts.Want{{Users: []poolaccounts.User{{Name: "Secret", Ready: true, Has: "push"}}, Late: true}}
	w.next()
	assert.Regexp(t, `^builders-[a-z2-7]{8}:\S+:push\n$`, w.state.Users())
	w.accept()
	w.next()
	w.now = w.now.Add(time.Hour)
	w.next()
	assert.Equal(t, w.now, w.state.Of("").Switched)
}

func TestDecode(t *testing.T) {
	for _, tc := range []struct{ name, raw, want string }{
		{"no JSON", `{"owners": canary`, "no JSON"},
		{"too long", strings.Repeat(" ", 1<<20+1), "more than"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			_, err := poolaccounts.Decode([]byte(tc.raw))
			require.ErrorContains(t, err, tc.want)
			assert.NotContains(t, err.Error(), "canary")
		})
	}
}

// TestNewNodes: nodes that began with an account cannot say so, and have a day.
func TestNewNodes(t *testing.T) {
	w := newWorld(t)
	w.wants = []poolaccounts.Want{{Pool: poolaccounts.NewNodes}}
	w.next()
	assert.Regexp(t, `^new-nodes-[a-z2-7]{8}:\S+:pull\n$`, w.state.Users())
	w.accept()
	w.next()
	first := w.use(poolaccounts.NewNodes)
	require.NotEmpty(t, first)
	w.now = w.now.Add(23 * time.Hour)
	w.next()
	w.next()
	assert.Equal(t, first, w.use(poolaccounts.NewNodes))
	w.now = w.now.Add(2 * time.Hour)
	w.next()
	w.next()
	w.accept()
	w.next()
	second := w.use(poolaccounts.NewNodes)
	assert.NotEqual(t, first, second)
	w.now = w.now.Add(23 * time.Hour)
	w.next()
	assert.Contains(t, w.state.Users(), first, "who was given it in the last moment boots")
	assert.Empty(t, w.waits, "nothing is wrong")
	w.now = w.now.Add(2 * time.Hour)
	w.others = []poolaccounts.User{{Name: "slow", Ready: true, Has: first}}
	w.next()
	assert.Contains(t, w.waits, "new nodes: slow use the account before")
	w.others = nil
	w.next()
	assert.NotContains(t, w.state.Users(), first)
	assert.Contains(t, w.state.Users(), second)
}

func TestAccepted(t *testing.T) {
	w := newWorld(t)
	w.wants = append(w.wants, poolaccounts.Want{Pool: "pool-a"}, poolaccounts.Want{Pool: poolaccounts.NewNodes},
		poolaccounts.Want{Users: []poolaccounts.User{{Name: "Secret", Ready: true, Has: "push"}}})
	w.first()
	w.wants[0].Asked = "now"
	w.next()
	got := poolaccounts.Accepted(w.state.Users() + "pull:$2a$:pull\nmine-x:$2a$:pull\n\n")
	assert.Len(t, got["worker"], 2)
	assert.Equal(t, []string{w.use("pool-a")}, got["pool-a"])
	assert.Equal(t, []string{w.use("")}, got[""])
	assert.Len(t, got, 3)
}
