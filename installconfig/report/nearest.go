package report

import "strings"

// Nearest is the one of known that a mistyped word most likely means; "" where none is near: another case, a few
// letters more, fewer, swapped or wrong, or a shortened word.
func Nearest(word string, known []string) string {
	best, least := "", 0
	lower := strings.ToLower(word)
	for _, k := range known {
		d := distance(lower, strings.ToLower(k))
		if d > max(1, max(len(word), len(k))/4) && !shortened(lower, strings.ToLower(k)) {
			continue
		}
		if best == "" || d < least {
			best, least = k, d
		}
	}
	return best
}

// Suggests says that a finding's next step names a word that was probably meant.
func Suggests(f Finding) bool { return strings.HasPrefix(f.Next, suggestion) }

const suggestion = "did you mean "

// DidYouMean is a next step that begins with the nearest of known, where there is one.
func DidYouMean(word string, known []string, next string) string {
	if near := Nearest(word, known); near != "" {
		return suggestion + near + "? " + next
	}
	return next
}

// shortened says that two words begin alike for two thirds of the shorter one, and for five letters at least.
func shortened(a, b string) bool {
	same := 0
	for same < min(len(a), len(b)) && a[same] == b[same] {
		same++
	}
	return same >= 5 && 3*same >= 2*min(len(a), len(b))
}

// distance counts the letters to insert, drop, replace or swap with their neighbour until a is b.
func distance(a, b string) int {
	before, last := make([]int, len(b)+1), make([]int, len(b)+1)
	for j := range last {
		last[j] = j
	}
	for i := 1; i <= len(a); i++ {
		now := make([]int, len(b)+1)
		now[0] = i
		for j := 1; j <= len(b); j++ {
			cost := 1
			if a[i-1] == b[j-1] {
				cost = 0
			}
			now[j] = min(last[j]+1, now[j-1]+1, last[j-1]+cost)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				now[j] = min(now[j], before[j-2]+1)
			}
		}
		before, last = last, now
	}
	return last[len(b)]
}
