package mirrors

import (
	"bytes"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/BurntSushi/toml"
)

// registriesConf is the file /etc/containers/registries.conf, version 2 (containers-registries.conf(5)).
type registriesConf struct {
	Search     []string   `toml:"unqualified-search-registries"`
	ShortNames string     `toml:"short-name-mode"`
	Registries []registry `toml:"registry"`
}

type registry struct {
	Prefix   string   `toml:"prefix"`
	Location string   `toml:"location"`
	Insecure bool     `toml:"insecure,omitempty"`
	Blocked  bool     `toml:"blocked,omitempty"`
	Mirrors  []mirror `toml:"mirror,omitempty"`
}

type mirror struct {
	Location string `toml:"location"`
	Insecure bool   `toml:"insecure,omitempty"`
	Pull     string `toml:"pull-from-mirror,omitempty"`
}

// defaultSearch is what unqualified names are looked up in on the systems that this file is for.
func defaultSearch() []string { return []string{"registry.access.redhat.com", "docker.io"} }

// builder fills registries.conf scope by scope.
type builder struct{ scopes map[string]*registry }

func (b *builder) scope(name string) *registry {
	if r, ok := b.scopes[name]; ok {
		return r
	}
	r := &registry{Location: name}
	if strings.HasPrefix(name, "*.") {
		r.Prefix, r.Location = name, ""
	}
	b.scopes[name] = r
	return r
}

// registriesFile is nil when nothing asks for the file.
func registriesFile(c *collected) ([]byte, error) {
	b := &builder{scopes: map[string]*registry{}}
	b.mirrors(c.digest, "digest-only")
	b.mirrors(c.tag, "tag-only")
	var insecure, blocked []string
	if c.image != nil {
		insecure, blocked = c.image.Object.Spec.RegistrySources.InsecureRegistries, c.blocked
	}
	if len(b.scopes)+len(insecure)+len(blocked) == 0 {
		return nil, nil
	}
	for _, s := range blocked {
		b.scope(s).Blocked = true
	}
	for _, s := range insecure {
		b.scope(s).Insecure = true
	}
	b.inherit()
	b.spread(insecure, blocked)
	conf := registriesConf{Search: defaultSearch()}
	for _, name := range slices.Sorted(maps.Keys(b.scopes)) {
		conf.Registries = append(conf.Registries, *b.scopes[name])
	}
	var out bytes.Buffer
	if err := toml.NewEncoder(&out).Encode(conf); err != nil {
		return nil, fmt.Errorf("write registries.conf: %w", err)
	}
	return out.Bytes(), nil
}

func (b *builder) mirrors(lists []list, pull string) {
	sources, groups := bySource(lists)
	for _, source := range sources {
		r := b.scope(source)
		var orders [][]string
		for _, l := range groups[source] {
			orders = append(orders, l.mirrors)
			r.Blocked = r.Blocked || l.never
		}
		for _, m := range merge(source, orders) {
			r.Mirrors = append(r.Mirrors, mirror{Location: m, Pull: pull})
		}
	}
}

// inherit gives a scope without mirrors those of the narrowest scope around it, each with the rest of the path: the
// tools take the longest match only, and would try no mirror at all otherwise.
func (b *builder) inherit() {
	for name, r := range b.scopes {
		if len(r.Mirrors) > 0 || strings.HasPrefix(name, "*.") {
			continue
		}
		around := ""
		for outer, o := range b.scopes {
			if len(o.Mirrors) > 0 && outer != name && within(name, outer) && !strings.HasPrefix(outer, "*.") &&
				len(outer) > len(around) {
				around = outer
			}
		}
		if around == "" {
			continue
		}
		for _, m := range b.scopes[around].Mirrors {
			m.Location += strings.TrimPrefix(name, around)
			r.Mirrors = append(r.Mirrors, m)
		}
	}
}

// spread marks nested scopes and the mirrors that lie in insecure ones.
func (b *builder) spread(insecure, blocked []string) {
	for name, r := range b.scopes {
		for _, s := range blocked {
			r.Blocked = r.Blocked || within(name, s)
		}
		for _, s := range insecure {
			r.Insecure = r.Insecure || within(name, s)
			for i := range r.Mirrors {
				r.Mirrors[i].Insecure = r.Mirrors[i].Insecure || within(r.Mirrors[i].Location, s)
			}
		}
	}
}

// within says whether name is scope or lies in it.
func within(name, scope string) bool {
	if domain, ok := strings.CutPrefix(scope, "*."); ok {
		host, _, _ := strings.Cut(name, "/")
		host, _, _ = strings.Cut(host, ":")
		return strings.HasSuffix(host, "."+domain)
	}
	rest, ok := strings.CutPrefix(name, scope)
	return ok && (rest == "" || rest[0] == '/' || rest[0] == ':' && !strings.Contains(scope, "/"))
}
