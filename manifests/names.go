package manifests

import (
	"crypto/sha256"
	"encoding/hex"
)

const (
	// maxLabel is the API's bound on label values.
	maxLabel = 63
	// sumDigits stand for what was cut off a name.
	sumDigits = 8
)

// Shorten gives a name as it is when it has at most limit bytes; else its beginning and a hash of the whole.
func Shorten(name string, limit int) string {
	if len(name) <= limit {
		return name
	}
	sum := sha256.Sum256([]byte(name))
	tail := "-" + hex.EncodeToString(sum[:])[:sumDigits]
	head := name[:limit-len(tail)]
	for len(head) > 0 && (head[len(head)-1] == '.' || head[len(head)-1] == '-') {
		head = head[:len(head)-1]
	}
	return head + tail
}

// LabelValue makes a label's value of an object's name.
func LabelValue(name string) string { return Shorten(name, maxLabel) }
