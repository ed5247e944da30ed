package serve

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"net"
	"net/http"
	"sync"

	"dayone.dev/dayone/manifests/machineconfig"
)

// versions are the Ignition versions that answers exist in.
func versions() []string {
	return []string{"3.5.0", "3.4.0", "3.3.0", "3.2.0", "3.1.0", "3.0.0", fallbackVersion}
}

// poolAnswers are a pool's answers, each made when it is first asked for. err is why there are none.
type poolAnswers struct {
	status    int // of err
	err       error
	material  *material
	byVersion map[string]*answer
	// choices are answers of which each client gets one; none: all get this one.
	choices []*poolAnswers
}

// answer is one complete response.
type answer struct {
	once   sync.Once
	status int
	err    error
	body   []byte
	// tag is the entity tag without quotes.
	tag string

	zipOnce sync.Once
	zipped  []byte
}

func failed(status int, err error) *poolAnswers { return &poolAnswers{status: status, err: err} }

func newPoolAnswers(m *material) *poolAnswers {
	p := &poolAnswers{material: m, byVersion: map[string]*answer{}}
	for _, v := range versions() {
		p.byVersion[v] = &answer{}
	}
	return p
}

// of gives a client, HOST:PORT, its choice: whatever the port, so that it finds the same when it asks again.
func (p *poolAnswers) of(client string) *poolAnswers {
	if len(p.choices) == 0 {
		return p
	}
	host, _, err := net.SplitHostPort(client)
	if err != nil {
		host = client
	}
	sum := sha256.Sum256([]byte(host))
	return p.choices[binary.BigEndian.Uint64(sum[:8])%uint64(len(p.choices))]
}

// get returns the answer in a version. The first request makes it; concurrent requests wait for it.
func (p *poolAnswers) get(version string) *answer {
	a := p.byVersion[version]
	a.once.Do(func() {
		body, err := p.make(version)
		if err != nil {
			a.status, a.err = http.StatusInternalServerError, err
			if version == "3.0.0" {
				// MCO cannot convert to 3.0.0 at all; here only configs that need more are refused, as the client's fault.
				a.status = http.StatusBadRequest
			}
			return
		}
		sum := sha256.Sum256(body)
		a.status, a.body, a.tag = http.StatusOK, body, hex.EncodeToString(sum[:16])
	})
	return a
}

func (p *poolAnswers) make(version string) ([]byte, error) {
	config, err := p.material.compose(version < "3.3.0")
	if err != nil {
		return nil, err
	}
	converted, err := machineconfig.Down(config, version)
	if err != nil {
		return nil, err
	}
	return machineconfig.Encode(converted)
}

// packed returns the answer in gzip, nil when that would not be smaller.
func (a *answer) packed() []byte {
	a.zipOnce.Do(func() {
		var b bytes.Buffer
		w := gzip.NewWriter(&b)
		_, err := w.Write(a.body)
		if errors.Join(err, w.Close()) == nil && b.Len() < len(a.body) {
			a.zipped = b.Bytes()
		}
	})
	return a.zipped
}
