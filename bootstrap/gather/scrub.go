package gather

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"net/url"
	"regexp"
	"sort"
	"strings"

	"dayone.dev/dayone/build/scrub"
)

// scrubbed stands where a secret was.
const scrubbed = "*****"

// minSecret keeps short words from blanking out the bundle, in characters.
const minSecret = 6

// scrubber takes secrets out of texts: the known ones in every encoding, and all text in the form of a secret.
type scrubber struct {
	known *strings.Replacer
	forms []*regexp.Regexp
}

// Scrubber returns a function that takes the secrets of a host, and all text in the form of one, out of a text.
func Scrubber(o Options) func(string) string {
	return newScrubber(knownSecrets(o.withDefaults())).text
}

// newScrubber takes out the secrets in all their encodings.
func newScrubber(secrets []string) *scrubber {
	forms := map[string]bool{}
	for _, secret := range secrets {
		for _, s := range append([]string{strings.TrimSpace(secret)}, secretLines(secret)...) {
			if len(s) < minSecret {
				continue
			}
			for _, form := range encodings(s) {
				forms[form] = true
			}
		}
	}
	list := make([]string, 0, len(forms))
	for f := range forms {
		list = append(list, f)
	}
	// The longest first: a secret that is part of another must not break it into pieces.
	sort.Slice(list, func(i, j int) bool {
		if len(list[i]) != len(list[j]) {
			return len(list[i]) > len(list[j])
		}
		return list[i] < list[j]
	})
	pairs := make([]string, 0, 2*len(list))
	for _, f := range list {
		pairs = append(pairs, f, scrubbed)
	}
	return &scrubber{known: strings.NewReplacer(pairs...), forms: scrub.Forms()}
}

// secretLines are the lines of a secret of several, such as a key: a log may show one of them.
func secretLines(secret string) []string {
	var out []string
	for _, line := range strings.Split(secret, "\n") {
		if line = strings.TrimSpace(line); len(line) >= 16 && !strings.HasPrefix(line, "-----") {
			out = append(out, line)
		}
	}
	return out
}

// encodings are the forms in which a secret is met: as it is, in base64 at each of the three offsets that it can have
// inside a longer text, in URLs and in JSON.
func encodings(s string) []string {
	out := []string{s, url.QueryEscape(s), url.PathEscape(s), base64.StdEncoding.EncodeToString([]byte(s)),
		base64.URLEncoding.EncodeToString([]byte(s))}
	if quoted, err := json.Marshal(s); err == nil {
		out = append(out, strings.Trim(string(quoted), `"`))
	}
	for offset := range 3 {
		// The first and last characters of a group depend on what stands beside the secret: only those in between are its
		// own.
		raw := base64.StdEncoding.EncodeToString(append(make([]byte, offset), s...))
		from := (offset*8 + 5) / 6
		to := (offset + len(s)) * 8 / 6
		if inner := raw[from:to]; len(inner) >= 2*minSecret {
			out = append(out, inner)
		}
	}
	return out
}

// text scrubs a string.
func (s *scrubber) text(in string) string { return string(s.bytes([]byte(in))) }

// bytes scrubs a file's content. Bytes that are no UTF-8 become question marks: the bundle has texts only.
func (s *scrubber) bytes(in []byte) []byte {
	if len(in) == 0 {
		return in
	}
	out := bytes.ToValidUTF8(bytes.ReplaceAll(in, []byte{0}, nil), []byte("?"))
	out = []byte(s.known.Replace(string(out)))
	for _, form := range s.forms {
		out = form.ReplaceAll(out, []byte("${1}"+scrubbed+"${2}"))
	}
	return out
}
