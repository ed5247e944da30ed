package buildpod

import (
	"bytes"
	"io"
	"strings"
	"sync"

	"dayone.dev/dayone/build/buildlog"
	"dayone.dev/dayone/build/scrub"
)

// maxLine bounds a line without an end, in bytes.
const maxLine = 64 << 10

// transcript takes the log line by line, takes secrets out, hands lines on and keeps them for the registry: the
// beginning and the end of what is too long.
type transcript struct {
	mu     sync.Mutex
	out    io.Writer
	scrub  scrub.Scrubber
	line   bytes.Buffer
	head   bytes.Buffer
	tail   []byte
	missed bool
}

// half is what is kept of the beginning and of the end, in bytes.
const half = buildlog.MaxSize/2 - 1024

func newTranscript(out io.Writer, secrets []string) *transcript {
	return &transcript{out: out, scrub: scrub.New(secrets)}
}

// Write never fails: a reader that has gone must not stop the build.
func (t *transcript) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for rest := p; len(rest) > 0; {
		end := bytes.IndexByte(rest, '\n')
		if end < 0 {
			t.line.Write(rest)
			if t.line.Len() > maxLine {
				t.flush()
			}
			break
		}
		t.line.Write(rest[:end])
		t.flush()
		rest = rest[end+1:]
	}
	return len(p), nil
}

func (t *transcript) flush() {
	text := []byte(t.scrub.Replace(strings.ToValidUTF8(t.line.String(), "?")) + "\n")
	t.line.Reset()
	_, _ = t.out.Write(text) // the kubelet's reader may be gone
	if t.head.Len()+len(text) <= half {
		t.head.Write(text)
		return
	}
	t.tail = append(t.tail, text...)
	if len(t.tail) > 2*half { // cut seldom, not at every line
		t.tail, t.missed = append([]byte(nil), t.tail[len(t.tail)-half:]...), true
	}
}

// text is what is kept.
func (t *transcript) text() []byte {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.line.Len() > 0 {
		t.flush()
	}
	out := append([]byte(nil), t.head.Bytes()...)
	tail := t.tail
	if len(tail) > half {
		tail, t.missed = tail[len(tail)-half:], true
	}
	if t.missed {
		out = append(out, "… the middle of this log is not kept …\n"...)
	}
	return append(out, tail...)
}

// clean takes secrets out of a text that goes elsewhere.
func (t *transcript) clean(s string) string { return t.scrub.Replace(s) }
