package machine

import (
	"bytes"
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestConsole(t *testing.T) {
	long := string(bytes.Repeat([]byte("x"), 100))
	for _, c := range []struct {
		name   string
		chunks []string
		want   []string
	}{
		{"whole", []string{"[2J" + loaderWords + "\r\n", "[    0.000000] Linux version 7"},
			[]string{loaderWords, kernelWords}},
		{"in pieces", []string{long + "boot loader: read", "ing the ", "boot entries", long}, []string{loaderWords}},
		{"told once", []string{"Linux version", "", " 7"}, []string{kernelWords}},
		{"nothing", []string{"Linux", long, "version"}, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			var log bytes.Buffer
			var saw []string
			w := &console{log: &log, saw: func(words string) { saw = append(saw, words) }}
			whole := ""
			for _, chunk := range c.chunks {
				n, err := w.Write([]byte(chunk))
				assert.NoError(t, err)
				assert.Len(t, chunk, n)
				whole += chunk
			}
			assert.Equal(t, c.want, saw)
			assert.Equal(t, whole, log.String())
		})
	}
}
