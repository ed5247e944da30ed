package serve

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"net/http"
	"strconv"
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
}

// answer is one complete response; what belongs in its headers is ready, too.
type answer struct {
	once   sync.Once
	status int
	err    error
	body   []byte
	// Header values as slices, so that a request allocates none.
	length, etag []string

	zipOnce   sync.Once
	zipped    []byte
	zipLength []string
	zipETag   []string
}

func failed(status int, err error) *poolAnswers { return &poolAnswers{status: status, err: err} }

func newPoolAnswers(m *material) *poolAnswers {
	p := &poolAnswers{material: m, byVersion: map[string]*answer{}}
	for _, v := range versions() {
		p.byVersion[v] = &answer{}
	}
	return p
}

// get returns the answer in a version. It is made once; all who ask meanwhile wait for it.
func (p *poolAnswers) get(version string) *answer {
	a := p.byVersion[version]
	a.once.Do(func() {
		body, err := p.make(version)
		if err != nil {
			a.status, a.err = http.StatusInternalServerError, err
			if version == "3.0.0" {
				// MCO has no way down to 3.0.0 at all; here only configs that need more are refused, as the client's fault.
				a.status = http.StatusBadRequest
			}
			return
		}
		sum := sha256.Sum256(body)
		tag := hex.EncodeToString(sum[:16])
		a.status, a.body = http.StatusOK, body
		a.length, a.etag = []string{strconv.Itoa(len(body))}, []string{`"` + tag + `"`}
		a.zipETag = []string{`"` + tag + `-gzip"`}
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
	return machineconfig.EncodeAny(converted)
}

// errNotSmaller says that packing does not pay.
var errNotSmaller = errors.New("packed answer is not smaller")

// packed returns the answer in gzip, nil when that would not be smaller.
func (a *answer) packed() []byte {
	a.zipOnce.Do(func() {
		zipped, err := pack(a.body)
		if err != nil {
			return
		}
		a.zipped, a.zipLength = zipped, []string{strconv.Itoa(len(zipped))}
	})
	return a.zipped
}

func pack(body []byte) ([]byte, error) {
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	if _, err := w.Write(body); err != nil {
		return nil, fmt.Errorf("pack answer: %w", err)
	}
	if err := w.Close(); err != nil {
		return nil, fmt.Errorf("pack answer: %w", err)
	}
	if b.Len() >= len(body) {
		return nil, errNotSmaller
	}
	return b.Bytes(), nil
}
