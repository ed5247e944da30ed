package analyze

import (
	"testing"

	"github.com/stretchr/testify/assert"
)

// A status code is a word of its own: times and digests have the same digits.
func TestStatusCodesInTexts(t *testing.T) {
	const failed = "build failed (user) in containerfile, line 7: RUN exit 7; full log: "
	for _, c := range []struct{ name, text, want string }{
		{"a code at the end", "pull: unexpected status code: 401", "registry-credentials"},
		{"a code before its words", "GET https://r.example.com/v2/: 403 Forbidden", "registry-credentials"},
		{"a code in brackets", "push refused (401)", "registry-credentials"},
		{"the milliseconds of a log's name", failed + "/state/build/master/logs/20261126T134455.401-1c09.log",
			causeContainerfile},
		{"a digest", failed + "sha256:ab-403-cd", causeContainerfile},
		{"a server that is down", "GET https://r.example.com/v2/: 503 Service Unavailable", "registry-unreachable"},
		{"a count of bytes", "read 1503 bytes", causeUnknown},
	} {
		t.Run(c.name, func(t *testing.T) { assert.Equal(t, c.want, explain(c.text).id) })
	}
}
