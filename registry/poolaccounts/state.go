package poolaccounts

import (
	"cmp"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"golang.org/x/crypto/bcrypt"

	"dayone.dev/dayone/registry/wanted"
)

const (
	// maxAge is when an account is replaced although nobody asked: a password that nobody has seen for a quarter of a
	// year is no better after a day.
	maxAge = 90 * 24 * time.Hour
	// maxStateBytes of an encoded state: what a Secret takes (Kubernetes: 1 MiB).
	maxStateBytes = 1 << 20
	// nameLength is how many random letters tell a pool's accounts apart: a number could come again, with another
	// password, after a backup of the state was restored.
	nameLength = 8
	// poolPrefix, or one of the others, begins the name of an account.
	poolPrefix     = "pool-"
	builders       = "builders"
	newNodesPrefix = "new-nodes"

	// NewNodes is the owner whose account nodes begin with, before their agent has their pool's. No pool has such a name.
	NewNodes = "new nodes"
	// newNodesTime is how long an account of new nodes is given to nodes, and then goes on being accepted: whom it was
	// given to says so only when the agent runs. First boots take minutes.
	newNodesTime = 24 * time.Hour
)

// step is how far a rotation is.
type step string

const (
	// added: registries learn Beside; Current is used.
	added step = "added"
	// switched: Current has changed places with Beside, whose users change over.
	switched step = "switched"
)

// State is the accounts of a cluster. Its maker keeps it in a Secret, written before anything that follows from it.
type State struct {
	Owners []Owner `json:"owners"`
}

// Owner is a pool, NewNodes or, with an empty name, the builders.
type Owner struct {
	Pool string `json:"pool,omitempty"`
	// Current is what is to be used; it has no name before registries accept the first one.
	Current Account `json:"current,omitzero"`
	// Beside is the next one in step added, and the one before in step switched.
	Beside Account `json:"beside,omitzero"`
	Step   step    `json:"step,omitempty"`
	// Asked is what the request said that was followed last.
	Asked string `json:"asked,omitempty"`
	// Switched is when Current came into use: what began before may have Beside.
	Switched time.Time `json:"switched,omitzero"`
}

// Account is one at the registries.
type Account struct {
	Name     string `json:"name,omitempty"`
	Password string `json:"password,omitempty"`
	// Hash is the password's, as registries have it (bcrypt).
	Hash   string    `json:"hash,omitempty"`
	Issued time.Time `json:"issued,omitzero"`
}

// Want is who is to have an account.
type Want struct {
	// Pool is its name; "" are the builders, and NewNodes those that have no agent yet.
	Pool string
	// Asked is an administrator's request: another text than the last one asks for another account.
	Asked string
	// Users are to use it.
	Users []User
	// Late: where users that begin now find their account, the newest one is not yet.
	Late bool
}

// User is a registry, a node or a build.
type User struct {
	Name string
	// Ready: it counts. What is off takes over what is valid when it is back.
	Ready bool
	// Has is the name of the account that it uses; of a registry the hash of the users that it accepts.
	Has string
}

// View is what the steps depend on.
type View struct {
	Wants []Want
	// Registries are those of the control plane.
	Registries []User
	// Others may still use an account of which they are no users, such as nodes that went to another pool.
	Others []User
}

// Decode reads a state; no bytes are an empty one.
func Decode(raw []byte) (State, error) {
	var s State
	if len(raw) == 0 {
		return s, nil
	}
	if len(raw) > maxStateBytes {
		return s, fmt.Errorf("read registry accounts: %d bytes are more than %d", len(raw), maxStateBytes)
	}
	if json.Unmarshal(raw, &s) != nil { // its text might have a password
		return State{}, errors.New("read registry accounts: it is no JSON of theirs")
	}
	return s, nil
}

// Encode is what Decode reads.
func (s State) Encode() ([]byte, error) {
	raw, err := json.Marshal(s)
	if err != nil {
		return nil, fmt.Errorf("encode registry accounts: %w", err)
	}
	return raw, nil
}

// Of is the owner of that name, without accounts where there is none.
func (s State) Of(pool string) Owner {
	for _, o := range s.Owners {
		if o.Pool == pool {
			return o
		}
	}
	return Owner{Pool: pool}
}

// Users are the lines of a registry's users file, NAME:BCRYPT:ROLE.
func (s State) Users() string {
	var out strings.Builder
	for _, o := range s.Owners {
		role := "pull"
		if o.Pool == "" {
			role = "push"
		}
		for _, a := range []Account{o.Current, o.Beside} {
			if a.Name != "" {
				fmt.Fprintf(&out, "%s:%s:%s\n", a.Name, a.Hash, role)
			}
		}
	}
	return out.String()
}

// Accepted are the names of the accounts in what Users gives, by pool; those of "" are the builders'. Others are left
// out.
func Accepted(users string) map[string][]string {
	out := map[string][]string{}
	for line := range strings.Lines(users) {
		name, _, _ := strings.Cut(line, ":")
		i := strings.LastIndex(name, "-")
		if i < 0 {
			continue
		}
		pool, isPool := strings.CutPrefix(name[:i], poolPrefix)
		if !isPool && name[:i] != builders {
			continue
		}
		if !isPool {
			pool = ""
		}
		out[pool] = append(out[pool], name)
	}
	return out
}

// issue makes an account with a random password of 256 bits.
func (o Owner) issue(now time.Time) (Account, error) {
	prefix := poolPrefix + o.Pool
	switch o.Pool {
	case "":
		prefix = builders
	case NewNodes:
		prefix = newNodesPrefix
	}
	a := Account{Name: prefix + "-" + strings.ToLower(rand.Text()[:nameLength]), Password: rand.Text() + rand.Text(),
		Issued: now.UTC().Truncate(time.Second)}
	hash, err := bcrypt.GenerateFromPassword([]byte(a.Password), bcrypt.DefaultCost)
	if err != nil {
		return a, fmt.Errorf("hash password of %s: %w", a.Name, err)
	}
	a.Hash = string(hash)
	return a, nil
}

// Next takes each owner one step on, where who has to follow the last one has. It gives what it waits for, in words.
// The state is to be kept before anything that follows from it is done.
func (s State) Next(now time.Time, v View) (State, []string, error) {
	var out State
	var waits []string
	unaware := s.unaware(v.Registries)
	for _, w := range v.Wants {
		o, wait, err := s.Of(w.Pool).next(now, w, v, unaware)
		if err != nil {
			return s, nil, err
		}
		out.Owners = append(out.Owners, o)
		waits = append(waits, wait...)
	}
	for _, o := range s.Owners {
		if slices.ContainsFunc(v.Wants, func(w Want) bool { return w.Pool == o.Pool }) {
			continue
		}
		if using := o.using(v, nil, o.Current.Name, o.Beside.Name); len(using) > 0 {
			out.Owners = append(out.Owners, o)
			waits = append(waits, fmt.Sprintf("%s is gone, and its account goes when %s use another one", o.name(),
				list(using)))
		}
	}
	slices.SortFunc(out.Owners, func(a, b Owner) int { return cmp.Compare(a.Pool, b.Pool) })
	return out, waits, nil
}

// unaware says which ready registries do not know the state's accounts yet; "" is none of them.
func (s State) unaware(registries []User) string {
	hash := wanted.AccountsHash([]byte(s.Users()))
	ready := false
	var missing []string
	for _, r := range registries {
		ready = ready || r.Ready
		if r.Ready && r.Has != hash {
			missing = append(missing, r.Name)
		}
	}
	switch {
	case !ready:
		return "no control-plane node is ready"
	case len(missing) > 0:
		return "the registries of " + list(missing) + " have not taken the new account over: see journalctl -u " +
			"dayone-registry there, and whether its version is that of dayone"
	}
	return ""
}

func (o Owner) next(now time.Time, w Want, v View, unaware string) (Owner, []string, error) {
	switch o.Step {
	case added:
		if unaware != "" {
			return o, []string{o.name() + ": " + unaware}, nil
		}
		o.Current, o.Beside, o.Step, o.Switched = o.Beside, o.Current, switched, now.UTC()
		return o, nil, nil
	case switched:
		if w.Late {
			o.Switched = now.UTC()
		}
		if o.Pool == NewNodes && now.Sub(o.Switched) < newNodesTime {
			return o, nil, nil
		}
		if using := o.using(v, w.Users, o.Beside.Name); len(using) > 0 {
			return o, []string{fmt.Sprintf("%s: %s use the account before, which goes when they have the new one",
				o.name(), list(using))}, nil
		}
		o.Beside, o.Step = Account{}, ""
		return o, nil, nil
	}
	oldest := maxAge
	if o.Pool == NewNodes {
		oldest = newNodesTime
	}
	if o.Current.Name == "" || w.Asked != "" && w.Asked != o.Asked || now.Sub(o.Current.Issued) > oldest {
		next, err := o.issue(now)
		if err != nil {
			return o, nil, err
		}
		o.Beside, o.Step, o.Asked = next, added, w.Asked
	}
	return o, nil, nil
}

// using are the ready ones that have one of some accounts.
func (o Owner) using(v View, users []User, names ...string) (out []string) {
	for _, u := range slices.Concat(users, v.Others) {
		if u.Ready && u.Has != "" && slices.Contains(names, u.Has) && !slices.Contains(out, u.Name) {
			out = append(out, u.Name)
		}
	}
	return out
}

func (o Owner) name() string {
	switch o.Pool {
	case "":
		return builders
	case NewNodes:
		return o.Pool
	}
	return "pool " + o.Pool
}

// maxNamed is how many a text names.
const maxNamed = 5

func list(names []string) string {
	if len(names) > maxNamed {
		return fmt.Sprintf("%s and %d more", strings.Join(names[:maxNamed], ", "), len(names)-maxNamed)
	}
	return strings.Join(names, ", ")
}
