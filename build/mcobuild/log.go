package mcobuild

import (
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
)

const (
	// MaxKept bounds a compressed log, in bytes: a ConfigMap has at most 1 MiB.
	MaxKept = 700 << 10
	// maxHead and maxTail bound what is held of a log while it grows, in bytes.
	maxHead, maxTail = 256 << 10, 3 << 20
	// maxUnpacked bounds what a packed log is read to, in bytes.
	maxUnpacked = 16 << 20
)

// Log is the beginning and the end of a text that grows. The zero value is empty and ready. It is safe for concurrent
// use.
type Log struct {
	mu         sync.Mutex
	head, tail []byte
	total      int64
}

// Write takes the next piece.
func (l *Log) Write(piece []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.total += int64(len(piece))
	room := min(maxHead-len(l.head), len(piece))
	l.head = append(l.head, piece[:room]...)
	l.tail = append(l.tail, piece[room:]...)
	if len(l.tail) > 2*maxTail { // moved seldom
		l.tail = append(l.tail[:0], l.tail[len(l.tail)-maxTail:]...)
	}
	return len(piece), nil
}

// Len is how long the text is, with what was left out.
func (l *Log) Len() int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.total
}

// Text gives whole lines of valid UTF-8, with a line in the place of what was left out.
func (l *Log) Text() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return join(string(l.head), string(l.tail), l.total-int64(len(l.head)+len(l.tail)))
}

// join puts head and tail together; without anything left out they are one text.
func join(head, tail string, left int64) string {
	if left > 0 {
		if at := strings.LastIndexByte(head, '\n'); at >= 0 {
			left += int64(len(head) - at - 1)
			head = head[:at+1]
		}
		if at := strings.IndexByte(tail, '\n'); at >= 0 {
			left += int64(at + 1)
			tail = tail[at+1:]
		}
		head += fmt.Sprintf("… dayone left out %d bytes …\n", left)
	}
	return strings.ToValidUTF8(head+tail, "?")
}

// Pack scrubs and compresses a log. One that is longer than MaxKept when it is compressed loses its middle.
func Pack(text string) ([]byte, error) {
	text = clean(text)
	for tail := len(text); ; tail /= 2 {
		short := text
		if head := min(maxHead, len(text)/4, tail/4); tail < len(text) {
			short = join(text[:head], text[len(text)-tail:], int64(len(text)-head-tail))
		}
		var out bytes.Buffer
		w := gzip.NewWriter(&out)
		_, err := io.WriteString(w, short)
		if err := errors.Join(err, w.Close()); err != nil {
			return nil, fmt.Errorf("compress log: %w", err)
		}
		if out.Len() <= MaxKept || tail == 0 {
			return out.Bytes(), nil
		}
	}
}

// Unpack reads what Pack wrote; a log that somebody has written is read to a bound only.
func Unpack(packed []byte) (string, error) {
	if len(packed) == 0 {
		return "", nil
	}
	r, err := gzip.NewReader(bytes.NewReader(packed))
	if err != nil {
		return "", fmt.Errorf("read kept log: %w", err)
	}
	text, err := io.ReadAll(io.LimitReader(r, maxUnpacked))
	if err != nil {
		return "", fmt.Errorf("read kept log: %w", err)
	}
	return string(text), nil
}
