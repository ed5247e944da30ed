package mirrors

import (
	"maps"
	"slices"
)

// merge joins the lists of one source into one that keeps each list's own order as far as they agree; where they leave
// a choice, the earlier list decides. The source itself, if a list has it, comes last and is then left out: it is what
// is tried anyway.
func merge(source string, lists [][]string) []string {
	after := map[string]map[string]bool{} // after[a][b]: b must come after a
	var names []string
	for _, l := range lists {
		for i, m := range l {
			if m == source {
				break // what a list has behind the source is never reached
			}
			if after[m] == nil {
				after[m] = map[string]bool{}
				names = append(names, m)
			}
			if i > 0 && l[i-1] != m {
				after[l[i-1]][m] = true
			}
		}
	}
	var out []string
	for len(names) > 0 {
		next := free(names, after)
		out = append(out, names[next])
		delete(after, names[next])
		names = slices.Delete(names, next, next+1)
	}
	return out
}

// free is the index of the first name that nothing left must precede; where lists contradict each other, of the first
// name.
func free(names []string, after map[string]map[string]bool) int {
	for i, name := range names {
		preceded := false
		for _, other := range names {
			preceded = preceded || other != name && after[other][name]
		}
		if !preceded {
			return i
		}
	}
	return 0
}

// bySource groups lists and returns the sources in order.
func bySource(lists []list) ([]string, map[string][]list) {
	groups := map[string][]list{}
	for _, l := range lists {
		groups[l.source] = append(groups[l.source], l)
	}
	return slices.Sorted(maps.Keys(groups)), groups
}
