package installconfig

import (
	"bytes"

	"dayone.dev/dayone/installconfig/report"
)

// RefuseUTF16 refuses a file in UTF-16, which editors of other systems write: tools that read lines would take it apart
// or find nothing in it. With strict it refuses also what has a byte order mark, which a YAML reader understands.
func RefuseUTF16(raw []byte, file string, strict bool) error {
	marked := bytes.HasPrefix(raw, []byte{0xff, 0xfe}) || bytes.HasPrefix(raw, []byte{0xfe, 0xff})
	bare := len(raw) >= 2 && (raw[0] == 0) != (raw[1] == 0)
	if !bare && !(marked && strict) {
		return nil
	}
	return &report.Invalid{Findings: []report.Finding{{Severity: report.Error, File: file, Rule: "utf-16",
		Message: "the file is written in UTF-16", Next: "save it in UTF-8, for example with iconv -f UTF-16 -t UTF-8"}}}
}
