package machineconfig

import (
	"compress/gzip"
	"fmt"
	"io"
	"slices"
	"strings"

	ign35 "github.com/coreos/ignition/v2/config/v3_5/types"
	"github.com/vincent-petithory/dataurl"

	"dayone.dev/dayone/installconfig/report"
)

// maxDecoded bounds in bytes what all inline contents that are read together may have once they are unpacked. The
// cluster takes 1.5 MiB a MachineConfig, and text packs to about a tenth.
const maxDecoded = 128 << 20

// Budget counts the unpacked contents of the configs that are read together. The zero value is a whole budget of 128
// MiB; it is not safe for concurrent use.
type Budget struct{ used int64 }

// Take counts a config's contents and refuses it when they go past what is left. It holds none of them: packed ones are
// unpacked piece by piece and dropped. What cannot be unpacked has a finding where it is read.
func (b *Budget) Take(config ign35.Config) []report.Finding {
	for i, f := range config.Storage.Files {
		for _, r := range slices.Concat([]ign35.Resource{f.Contents}, f.Append) {
			b.used += decodedSize(r, maxDecoded-b.used)
		}
		if b.used > maxDecoded {
			var out report.Report
			at := report.Finding{Path: fmt.Sprintf("storage.files[%d].contents", i), Rule: "contents-too-large",
				Next: "put large files into the Containerfile"}
			out.Errorf(at, "with %s, the contents of all files have more than %d bytes, which is the most that is unpacked",
				f.Path, int64(maxDecoded))
			return out.Findings
		}
	}
	return nil
}

// decodedSize is the size of a resource's bytes, at most about limit. Of what is not packed it is the source's.
func decodedSize(r ign35.Resource, limit int64) int64 {
	if r.Source == nil {
		return 0
	}
	plain := int64(len(*r.Source))
	if r.Compression == nil || *r.Compression == "" {
		return plain
	}
	url, err := dataurl.DecodeString(*r.Source)
	if err != nil {
		return plain
	}
	unpacked, err := gzip.NewReader(strings.NewReader(string(url.Data)))
	if err != nil {
		return plain
	}
	size, _ := io.Copy(io.Discard, io.LimitReader(unpacked, limit+1)) // as far as it can be unpacked
	return size
}
