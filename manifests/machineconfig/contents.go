package machineconfig

import (
	"bytes"
	"compress/gzip"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"path"
	"slices"
	"strings"

	ign35 "github.com/coreos/ignition/v2/config/v3_5/types"
	"github.com/vincent-petithory/dataurl"
)

// maxContents is the largest size in bytes to which Contents unpacks one file. A rendered MachineConfig cannot be
// larger than an etcd request (1.5 MiB), so this only stops compression bombs.
const maxContents = 64 << 20

// ErrRemote is returned for contents that are not inline.
var ErrRemote = errors.New("contents are not inline")

// Contents returns the bytes of an inline resource, unpacked; none for a resource without a source.
func Contents(r ign35.Resource) ([]byte, error) {
	if r.Source == nil || *r.Source == "" {
		return nil, nil
	}
	if !strings.HasPrefix(*r.Source, "data:") {
		return nil, fmt.Errorf("read contents from %s: %w", *r.Source, ErrRemote)
	}
	url, err := dataurl.DecodeString(*r.Source)
	if err != nil {
		return nil, fmt.Errorf("decode data URL: %w", err)
	}
	if r.Compression == nil || *r.Compression == "" {
		return url.Data, nil
	}
	if *r.Compression != "gzip" {
		return nil, fmt.Errorf("unpack contents: compression %q is not known", *r.Compression)
	}
	zipped, err := gzip.NewReader(bytes.NewReader(url.Data))
	if err != nil {
		return nil, fmt.Errorf("unpack contents: %w", err)
	}
	plain, err := io.ReadAll(io.LimitReader(zipped, maxContents+1))
	if err != nil {
		return nil, fmt.Errorf("unpack contents: %w", err)
	}
	if len(plain) > maxContents {
		return nil, fmt.Errorf("unpack contents: more than %d bytes", maxContents)
	}
	return plain, nil
}

// FilesAt are the contents of a rendered config's files at those paths. What is not there, or cannot be read, is left
// out: whoever uses the whole config says so.
func FilesAt(raw []byte, paths ...string) map[string][]byte {
	out := map[string][]byte{}
	config, err := ParseRendered(raw)
	if err != nil {
		return out
	}
	for _, f := range config.Storage.Files {
		if at := path.Clean(f.Path); slices.Contains(paths, at) {
			if content, err := Contents(f.Contents); err == nil {
				out[at] = content
			}
		}
	}
	return out
}

// Inline is a resource that holds data in base64, as MCO's generated files have it.
func Inline(data []byte) ign35.Resource {
	source, none := "data:text/plain;charset=utf-8;base64,"+base64.StdEncoding.EncodeToString(data), ""
	return ign35.Resource{Source: &source, Compression: &none}
}

// Escaped is a resource that holds data percent-encoded, as MCO's server appends files.
func Escaped(data []byte) ign35.Resource {
	source := "data:," + dataurl.Escape(data)
	return ign35.Resource{Source: &source}
}
