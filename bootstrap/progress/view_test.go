package progress

import (
	"bytes"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"dayone.dev/dayone/bootstrap/journal"
	"dayone.dev/dayone/build"
)

func TestPlainLines(t *testing.T) {
	var out bytes.Buffer
	v := New(&out)
	began := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	rec := journal.Record{Title: "take in the base image", Started: began, Finished: began.Add(1500 * time.Millisecond)}
	v.Phase(journal.Event{Kind: journal.EventStarted, Record: rec, Index: 0, Total: 2})
	v.Build("master", build.Event{Text: "RUN true"})
	v.Build("master", build.Event{Text: "what the command prints", Output: true})
	v.Phase(journal.Event{Kind: journal.EventRecorded, Record: rec, Index: 0, Total: 2})
	v.Phase(journal.Event{Kind: journal.EventReused, Record: rec, Index: 1, Total: 2})
	v.Close()
	assert.Equal(t,
		"[1/2] take in the base image ...\n      master: RUN true\n[1/2] take in the base image: done in 1.50s\n"+
			"[2/2] take in the base image: done by an earlier run\n", out.String())
}

func TestShortenControlCharacters(t *testing.T) {
	assert.Equal(t, "50%  [31mred", shorten("50%\r\x1b[31mred\nsecond", 80))
	assert.Equal(t, "fo...", shorten("four characters", 5))
	assert.Equal(t, "..", shorten("four characters", 2), "the smallest terminals")
	assert.Equal(t, "ä", shorten("ä", 1))
}
