package proposal

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"dayone.dev/dayone/installconfig/report"
	"dayone.dev/dayone/rebase/fleet/snapshot"
)

// removal is one object to delete.
type removal struct {
	kind            schema.GroupVersionKind
	namespace, name string
}

func (r removal) String() string { return r.kind.Kind + " " + r.name }

// remove reads KIND/NAME as kubectl does: the kind in any case, its plural, a short name, with or without the group.
func (p *Proposal) remove(k *kinds, words []string) error {
	for _, word := range words {
		kind, name, ok := strings.Cut(word, "/")
		if !ok || kind == "" || name == "" {
			return fmt.Errorf("delete %s: write KIND/NAME, such as machineconfig/50-app", word)
		}
		short, group, hasGroup := strings.Cut(strings.ToLower(kind), ".")
		gvk, found := k.words[short]
		if !found || hasGroup && group != gvk.Group {
			return fmt.Errorf("delete %s: no such kind is read here: %s", word,
				report.DidYouMean(short, slices.Collect(maps.Keys(k.words)), "the kinds are "+k.names()))
		}
		r := removal{kind: gvk, name: name}
		if space, rest, namespaced := strings.Cut(name, "/"); namespaced {
			r.namespace, r.name = space, rest
		}
		for i := range p.objects {
			if o := &p.objects[i]; o.kind.GroupKind() == gvk.GroupKind() && o.name == r.name && o.namespace == r.namespace {
				return fmt.Errorf("delete %s: %s applies it, too: leave out one of them", word, o.at("", "").Place())
			}
		}
		p.removed = append(p.removed, r)
		p.Remove(gvk.GroupKind(), r.namespace, r.name)
	}
	return nil
}

// twice refuses an object that the files have twice: the later one would win in silence.
func (p *Proposal) twice(bad *report.Report) {
	first := map[removal]*object{}
	for i := range p.objects {
		o := &p.objects[i]
		id := removal{o.kind, o.namespace, o.name}
		if have := first[id]; have != nil {
			place := o.at("metadata.name", "twice")
			place.Next = "keep one of them"
			bad.Errorf(place, "%s %s is in %s already", o.kind.Kind, o.name, have.at("", "").Place())
			continue
		}
		first[id] = o
	}
}

// Missing refuses removals of objects that are not there.
func (p *Proposal) Missing(ctx context.Context, s *snapshot.Source) error {
	for _, r := range p.removed {
		list, err := p.Scheme().New(r.kind.GroupVersion().WithKind(r.kind.Kind + "List"))
		if err != nil {
			return fmt.Errorf("delete %s: %w", r, err)
		}
		objects, isList := list.(client.ObjectList)
		if !isList {
			return fmt.Errorf("delete %s: %T is no list", r, list)
		}
		if err := s.List(ctx, objects); err != nil && !meta.IsNoMatchError(err) {
			return fmt.Errorf("delete %s: %w", r, err)
		}
		var names []string
		found := false
		err = meta.EachListItem(objects, func(o runtime.Object) error {
			a, err := meta.Accessor(o)
			if err != nil {
				return err
			}
			names = append(names, a.GetName())
			found = found || a.GetName() == r.name && a.GetNamespace() == r.namespace
			return nil
		})
		if err != nil {
			return fmt.Errorf("delete %s: %w", r, err)
		}
		if !found {
			return fmt.Errorf("delete %s: there is none of this name: %s", r, report.DidYouMean(r.name, names, some(names)))
		}
	}
	return nil
}

// some names a few objects for a user who mistyped one.
func some(names []string) string {
	const most = 10
	slices.Sort(names)
	switch {
	case len(names) == 0:
		return "there are no objects of this kind"
	case len(names) > most:
		return fmt.Sprintf("there are %s and %d more", strings.Join(names[:most], ", "), len(names)-most)
	}
	return "there are " + strings.Join(names, ", ")
}
