package authority_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"dayone.dev/dayone/registry/authority"
	"dayone.dev/dayone/registry/certs"
)

// world is a cluster whose nodes and registries follow when they are told to.
type world struct {
	*testing.T
	now   time.Time
	state authority.State
	view  authority.View
	waits string
}

func newCA(t *testing.T, name string, now time.Time, valid time.Duration) string {
	t.Helper()
	ca, err := certs.NewCA(certs.CAOptions{CommonName: name, Validity: valid, Now: func() time.Time { return now }})
	require.NoError(t, err)
	pem, err := ca.PEM()
	require.NoError(t, err)
	return string(pem)
}

func newWorld(t *testing.T) *world {
	now := time.Date(2026, 11, 27, 0, 0, 0, 0, time.UTC)
	w := &world{T: t, now: now}
	w.view = authority.View{CA: newCA(t, "CA", now, 0),
		Registries: []authority.Registry{{Node: "m0", Ready: true}, {Node: "m1", Ready: true}},
		Nodes: []authority.Node{{Name: "m0", Ready: true, Agent: true}, {Name: "m1", Ready: true, Agent: true},
			{Name: "w0", Ready: true, Agent: true}}}
	w.view.Bundle = certs.EncodeBundle(certs.Bundle([]byte(w.view.CA))...)
	return w
}

// next takes a step from what was kept, as after a kill, and writes what follows from it.
func (w *world) next() {
	w.Helper()
	raw, err := w.state.Encode()
	require.NoError(w, err)
	kept, err := authority.Decode(raw)
	require.NoError(w, err)
	next, waits, err := kept.Next(w.now, w.view)
	require.NoError(w, err)
	if again, _, err := kept.Next(w.now, w.view); kept.Step != "" {
		require.NoError(w, err)
		assert.Equal(w, next, again, "a step depends on nothing else")
	}
	w.state, w.waits = next, authority.Rotation{Waits: waits}.Text()
	if changed := next.CA(w.view.CA); changed != w.view.CA {
		w.view.CA = changed
		for i := range w.view.Registries {
			w.view.Registries[i].Works = false
		}
	}
	w.view.Bundle = next.Bundle(w.view.Bundle)
}

// follow lets nodes and registries that are on do what they have been given.
func (w *world) follow(but ...string) {
	var trusts []string
	for _, cert := range certs.Bundle(w.view.Bundle) {
		trusts = append(trusts, certs.Fingerprint(cert))
	}
	for i := range w.view.Nodes {
		if n := &w.view.Nodes[i]; n.Ready && !slices.Contains(but, n.Name) {
			n.Trusts = trusts
		}
	}
	for i := range w.view.Registries {
		if r := &w.view.Registries[i]; r.Ready && !slices.Contains(but, r.Node) {
			r.Works = true
		}
	}
}

func (w *world) ask(text string) { w.view.Request = authority.Request{Asked: text} }

// until takes steps until one waits or the rotation is in a step.
func (w *world) until(step authority.Step) {
	w.Helper()
	for range 10 {
		if w.next(); w.state.Step == step {
			return
		}
		w.follow()
		w.now = w.now.Add(5 * time.Minute)
	}
	require.Fail(w, "it does not come", "%q: %s", step, w.waits)
}

// signer is the name of the CA that signs.
func (w *world) signer() string {
	ca, err := certs.ParseCA([]byte(w.view.CA), []byte(w.view.CA))
	require.NoError(w, err)
	return ca.Certificate().Subject.CommonName
}

func names(pem []byte) string {
	var out []string
	for _, cert := range certs.Bundle(pem) {
		out = append(out, cert.Subject.CommonName)
	}
	return strings.Join(out, " ")
}

// TestTheWholeWay: at no point does a registry show a certificate that a node may not trust.
func TestTheWholeWay(t *testing.T) {
	w := newWorld(t)
	first := w.view.CA
	w.next()
	assert.Equal(t, authority.State{}, w.state, "nobody asks, and the CA is new")
	assert.Equal(t, first, w.view.CA)
	w.ask("one")
	var seen []string
	for range 9 {
		w.next()
		seen = append(seen, fmt.Sprintf("%s: %s signs, registries trust %s, nodes %s", w.state.Step, w.signer(),
			names([]byte(w.view.CA)), names(w.view.Bundle)))
		w.follow()
		w.now = w.now.Add(5 * time.Minute)
	}
	assert.Equal(t, []string{
		"Trusting: CA signs, registries trust CA CA-2, nodes CA CA-2",
		"Serving: CA-2 signs, registries trust CA-2 CA, nodes CA CA-2",
		"Dropping: CA-2 signs, registries trust CA-2, nodes CA-2",
		": CA-2 signs, registries trust CA-2, nodes CA-2",
	}, slices.Compact(seen))
	assert.Len(t, w.state.Replaced, 1)
	w.ask("two")
	w.until(authority.Trusting)
	w.until("")
	assert.Equal(t, "CA-3", w.signer())
}

// TestWaits: a step waits for each who could be left behind, and says for whom; who is off is waited for a day.
func TestWaits(t *testing.T) {
	for _, tc := range []struct {
		name string
		step authority.Step
		// set changes the cluster before the step.
		set  func(w *world)
		want string
	}{
		{"a node lags", authority.Trusting, func(w *world) { w.follow("w0") },
			"node w0: it has not said that it trusts the next CA: see dayone-daemon's log"},
		{"a node without an agent", authority.Trusting, func(w *world) {
			w.view.Nodes = append(w.view.Nodes, authority.Node{Name: "x", Ready: true})
			w.follow("x")
		}, "node x: no agent of dayone"},
		{"a node is off", authority.Trusting, func(w *world) {
			w.view.Nodes[2].Ready = false
			w.follow()
		}, "node w0: it has not said that it trusts the next CA; the node is off, and is waited for until 2026-11-28T00:00"},
		{"a registry lags", authority.Trusting, func(w *world) {
			w.follow()
			w.view.Registries[1].Works = false
		}, "node m1: its registry has not taken the next CA over"},
		{"a build that began before", authority.Trusting, func(w *world) {
			w.follow()
			w.view.Builds = []authority.Build{{Name: "b", Began: w.now.Add(-time.Hour)}}
		}, "build b began before"},
		{"a node may boot for the first time", authority.Trusting, func(w *world) { w.follow() },
			"nodes that boot for the first time may not trust the next CA until 2026-11-27T00:15:00Z"},
		{"nobody writes the ControllerConfig", authority.Trusting, func(w *world) {
			w.follow()
			w.view.Bundle = nil
		}, "on its way to the ControllerConfig"},
		{"a node claims a CA that nobody has made", authority.Trusting, func(w *world) {
			w.follow("w0")
			w.view.Nodes[2].Trusts = []string{"0123456789abcdef0123456789abcdef", ""}
		}, "node w0: it has not said that it trusts the next CA"},
		{"no control plane", authority.Serving, func(w *world) {
			w.view.Registries = nil
		}, "no control-plane node is ready"},
		{"a registry shows the CA before", authority.Serving, func(w *world) { w.follow("m0") },
			"node m0: its registry does not show a certificate of the new CA yet: see journalctl"},
		{"a registry is off", authority.Serving, func(w *world) {
			w.view.Registries[0].Ready = false
			w.follow()
		}, "node m0: its registry does not show a certificate of the new CA yet; the node is off"},
		{"a node keeps the CA before", authority.Dropping, func(w *world) { w.follow("w0") },
			"node w0: it still trusts the CA before"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			w := newWorld(t)
			w.ask("one")
			w.until(tc.step)
			tc.set(w)
			for range 3 {
				held := w.view.Bundle
				w.next()
				if strings.Contains(tc.want, "ControllerConfig") {
					w.view.Bundle = held
				}
				require.Equal(t, tc.step, w.state.Step)
				assert.Contains(t, w.waits, tc.want)
			}
		})
	}
}

// TestWhoIsNotWaitedFor: a node that is off for long, or that an administrator leaves out, at once or in the middle.
func TestWhoIsNotWaitedFor(t *testing.T) {
	for _, tc := range []struct {
		name string
		let  func(w *world)
	}{
		{"a day has passed", func(w *world) { w.now = w.now.Add(24 * time.Hour) }},
		{"in a hurry", func(w *world) { w.view.Request.Now = true }},
		{"left out", func(w *world) { w.view.Request.Without = []string{"w0", "m1", "nobody"} }},
	} {
		t.Run(tc.name, func(t *testing.T) {
			w := newWorld(t)
			w.view.Nodes[2].Ready, w.view.Registries[1].Ready, w.view.Nodes[1].Ready = false, false, false
			w.ask("one")
			w.next()
			w.follow()
			w.next()
			require.Equal(t, authority.Trusting, w.state.Step)
			require.Contains(t, w.waits, "node w0: ")
			tc.let(w)
			if tc.name == "left out" {
				w.now = w.now.Add(15 * time.Minute)
			}
			w.next()
			w.follow()
			require.Equal(t, authority.Serving, w.state.Step, w.waits)
			if tc.name == "a day has passed" {
				w.next()
				require.Equal(t, authority.Serving, w.state.Step, "each step waits for itself")
				w.now = w.now.Add(24 * time.Hour)
			}
			for w.state.Step != "" {
				before := w.state.Step
				w.now = w.now.Add(24 * time.Hour)
				w.next()
				w.follow()
				require.NotEqual(t, before, w.state.Step, w.waits)
			}
			assert.Equal(t, []string{"m1", "w0"}, w.state.Status(w.view.CA, w.view.Nodes, nil).Behind)
			w.view.Nodes[1].Ready, w.view.Nodes[2].Ready = true, true
			w.follow()
			assert.Empty(t, w.state.Status(w.view.CA, w.view.Nodes, nil).Behind, "they are back")
		})
	}
}

// TestAnotherRotationOrCA: what comes in the middle neither begins a second rotation nor brings back a CA that was
// replaced.
func TestAnotherRotationOrCA(t *testing.T) {
	w := newWorld(t)
	old := w.view.CA
	w.ask("one")
	w.until(authority.Trusting)
	successor := w.state.Successor
	w.ask("two")
	w.next()
	assert.Equal(t, successor, w.state.Successor, "one at a time")
	w.view.Request.Without = []string{"w0"}
	w.follow("w0")
	w.next()
	assert.Equal(t, authority.Trusting, w.state.Step, "a request that began nothing leaves nobody out")
	w.until("")
	w.follow()
	w.next()
	assert.Equal(t, authority.Step(""), w.state.Step, "the second request has what it asked for")
	assert.Equal(t, "CA-2", w.signer())

	w.view.CA = old // shared-secret.yaml of a directory that has not followed
	w.next()
	assert.Equal(t, "CA-2", w.signer())
	assert.NotContains(t, names([]byte(w.view.CA)), "CA ")
	w.view.CA = "no CA"
	w.next()
	assert.Equal(t, "CA-2", w.signer(), "the state has it")

	w.ask("three")
	w.until(authority.Serving)
	further := newCA(t, "of the administrator", w.now, 0)
	w.view.CA += string(certs.EncodeBundle(certs.Bundle([]byte(further))...))
	w.next()
	assert.Equal(t, "CA-3 CA-2 of the administrator", names([]byte(w.view.CA)), "further CAs stay")
}

// TestACAOfTheAdministrator: one that is brought where the controller has replaced the CA before goes the same way. So
// does one that comes in the middle.
func TestACAOfTheAdministrator(t *testing.T) {
	for _, during := range []authority.Step{"", authority.Trusting, authority.Serving, authority.Dropping} {
		t.Run("in step "+string(during), func(t *testing.T) {
			w := newWorld(t)
			w.ask("one")
			w.until(authority.Trusting)
			w.until("")
			if during != "" {
				w.ask("two")
				w.until(during)
			}
			before := w.signer()
			w.view.CA = newCA(t, "expired", w.now.AddDate(-2, 0, 0), time.Hour)
			kept := w.state
			_, _, err := kept.Next(w.now, w.view)
			require.ErrorContains(t, err, `"expired" is valid from 2024`)

			w.view.CA = newCA(t, "by hand", w.now, 0)
			w.next()
			assert.Equal(t, before, w.signer(), "nodes do not trust it yet")
			for range 16 {
				w.follow()
				w.next()
				w.now = w.now.Add(5 * time.Minute)
			}
			assert.Equal(t, "by hand", w.signer())
			assert.Equal(t, "by hand", names(w.view.Bundle))
			assert.Equal(t, authority.Step(""), w.state.Step)
		})
	}
}

// TestTime: a CA is replaced when a fifth of its lifetime is left, and one that has expired at once.
func TestTime(t *testing.T) {
	for _, tc := range []struct {
		name  string
		after time.Duration
		want  authority.Step
	}{
		{"new", 0, ""},
		{"after seven years", 7 * 365 * 24 * time.Hour, ""},
		{"after eight years and a bit", (8*365 + 1) * 24 * time.Hour, authority.Trusting},
		{"expired", 11 * 365 * 24 * time.Hour, authority.Trusting},
	} {
		t.Run(tc.name, func(t *testing.T) {
			w := newWorld(t)
			w.now = w.now.Add(tc.after)
			w.next()
			require.Equal(t, tc.want, w.state.Step)
			if tc.want == "" {
				return
			}
			w.view.Registries[0].Works, w.view.Registries[1].Works = false, false
			w.follow("m0", "m1") // no registry starts with a CA that has expired
			w.view.Nodes[0].Trusts, w.view.Nodes[1].Trusts = w.view.Nodes[2].Trusts, w.view.Nodes[2].Trusts
			w.next()
			w.now = w.now.Add(15 * time.Minute)
			w.next()
			if tc.name == "expired" {
				require.Equal(t, authority.Serving, w.state.Step, w.waits)
			} else {
				require.Equal(t, authority.Trusting, w.state.Step)
			}
			w.until("")
			w.next()
			assert.Equal(t, authority.Step(""), w.state.Step, "the new one has its time")
		})
	}
}

func TestCannotBegin(t *testing.T) {
	for _, tc := range []struct {
		name string
		set  func(v *authority.View)
		want string
	}{
		{"no agent", func(v *authority.View) {
			for i := range v.Nodes {
				v.Nodes[i].Agent = false
			}
		}, "replace the CA by hand"},
		{"no ControllerConfig", func(v *authority.View) { v.Unavailable = "there is none" }, "there is none"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			w := newWorld(t)
			w.ask("one")
			tc.set(&w.view)
			w.next()
			assert.Contains(t, w.waits, tc.want)
			assert.Equal(t, authority.State{}, w.state)
		})
	}
}

// TestBadInput: nothing is replaced by what cannot be read, and no error has a key.
func TestBadInput(t *testing.T) {
	w := newWorld(t)
	ca := w.view.CA
	w.view.CA = "canary"
	_, _, err := w.state.Next(w.now, w.view)
	require.ErrorContains(t, err, "read CA of the registries")
	assert.NotContains(t, err.Error(), "canary")
	encode := func(s map[string]any) []byte {
		raw, err := json.Marshal(s)
		require.NoError(t, err)
		return raw
	}
	for _, tc := range []struct {
		name string
		raw  []byte
	}{
		{"no JSON", []byte("canary")},
		{"an unknown step", encode(map[string]any{"current": ca, "step": "Jumping"})},
		{"a step without a CA", encode(map[string]any{"step": "Trusting"})},
		{"half a CA", encode(map[string]any{"current": ca[:len(ca)/2]})},
		{"no next one", encode(map[string]any{"current": ca, "step": "Trusting"})},
		{"none before", encode(map[string]any{"current": ca, "step": "Serving"})},
		{"too large", []byte(`{"current":"` + strings.Repeat("x", 1<<20) + `"}`)},
	} {
		t.Run(tc.name, func(t *testing.T) {
			_, err := authority.Decode(tc.raw)
			require.ErrorContains(t, err, "read state of the CA's rotation")
			assert.NotContains(t, err.Error(), "canary")
			assert.NotContains(t, err.Error(), "PRIVATE")
		})
	}
	text, err := authority.Request{Asked: "a", Now: true, Without: []string{"n"}}.Encode()
	require.NoError(t, err)
	assert.Equal(t, authority.Request{Asked: "a", Now: true, Without: []string{"n"}}, authority.ParseRequest(text))
	assert.Equal(t, authority.Request{Asked: "any text"}, authority.ParseRequest("any text"))
	assert.Equal(t, authority.Request{}, authority.ParseRequest(""))
	assert.Len(t, authority.ParseRequest(strings.Repeat("x", 1<<20)).Asked, 64)
}
