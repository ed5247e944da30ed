package scrub_test

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"dayone.dev/dayone/build/scrub"
)

func TestReplace(t *testing.T) {
	for _, c := range []struct {
		name       string
		secrets    []string
		text, want string
	}{
		{"nothing is known", nil, "a password", "a password"},
		{"one, twice", []string{"hunter2"}, "hunter2 and hunter2!", "***** and *****!"},
		{"one that begins with another", []string{"hunter2", "hunter2-and-more"}, "x hunter2-and-more y", "x ***** y"},
		{"the same, the other way", []string{"hunter2-and-more", "hunter2"}, "x hunter2-and-more hunter2 y",
			"x ***** ***** y"},
		{"one inside another", []string{"and-more", "hunter2-and-more-still"}, "hunter2-and-more-still", "*****"},
		{"two that overlap", []string{"abcdef", "defghi"}, "xabcdefghiy", "x*****y"},
		{"one that overlaps itself", []string{"ababab"}, "xababababy", "x*****y"},
		{"two side by side", []string{"abcdef", "ghijkl"}, "abcdefghijkl", "**********"},
		{"short ones stay", []string{"", "a", "abcde"}, "abcde", "abcde"},
	} {
		assert.Equal(t, c.want, scrub.New(c.secrets).Replace(c.text), c.name)
	}
	assert.Equal(t, "hunter2", scrub.Scrubber{}.Replace("hunter2"))
}
