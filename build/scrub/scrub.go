package scrub

import (
	"cmp"
	"slices"
	"strings"
)

const (
	// mark stands where a secret was.
	mark = "*****"
	// MinSecret keeps short values from blanking out a text, in bytes.
	MinSecret = 6
)

// Scrubber knows secrets. It is safe for concurrent use; the zero value knows none.
type Scrubber struct{ secrets []string }

// New takes the secrets. Those shorter than MinSecret are left alone.
func New(secrets []string) Scrubber {
	kept := slices.DeleteFunc(slices.Clone(secrets), func(s string) bool { return len(s) < MinSecret })
	slices.Sort(kept)
	return Scrubber{slices.Compact(kept)}
}

// span is a secret's place in a text.
type span struct{ from, to int }

// Replace puts mark in the place of every secret. Secrets that overlap, as one that begins with another, go as a whole.
func (s Scrubber) Replace(text string) string {
	spans := s.find(text)
	if len(spans) == 0 {
		return text
	}
	var out strings.Builder
	end := 0
	for i, at := range spans {
		if i == 0 || at.from >= end {
			out.WriteString(text[end:at.from])
			out.WriteString(mark)
		}
		end = max(end, at.to)
	}
	out.WriteString(text[end:])
	return out.String()
}

// find gives the places of secrets by their beginnings.
func (s Scrubber) find(text string) []span {
	var spans []span
	for _, secret := range s.secrets {
		for from := 0; ; {
			at := strings.Index(text[from:], secret)
			if at < 0 {
				break
			}
			spans = append(spans, span{from + at, from + at + len(secret)})
			from += at + 1 // it may overlap itself
		}
	}
	slices.SortFunc(spans, func(a, b span) int { return cmp.Compare(a.from, b.from) })
	return spans
}
