package journal

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"

	"dayone.dev/dayone/installconfig/report"
)

// sealed matches the end of a journal that has a checksum. The checksum is the last member of the object, and it covers
// every byte before it. Earlier versions wrote none; they read over it.
var sealed = regexp.MustCompile(`(?s)^(.*),\n  "checksum": "sha256:([0-9a-f]{64})"\n}\n$`)

// seal adds the checksum to a journal that json.MarshalIndent wrote.
func seal(object []byte) []byte {
	body := bytes.TrimSuffix(object, []byte("\n}"))
	return fmt.Appendf(nil, "%s,\n  \"checksum\": \"sha256:%x\"\n}\n", body, sha256.Sum256(body))
}

// unseal checks a journal's checksum and returns the journal as it is. One without a checksum is an earlier version's.
func unseal(raw []byte) ([]byte, error) {
	parts := sealed.FindSubmatch(raw)
	if parts == nil {
		var have struct {
			Checksum json.RawMessage `json:"checksum"`
		}
		if err := json.Unmarshal(raw, &have); err != nil {
			return nil, err
		}
		if have.Checksum != nil {
			return nil, errors.New("its checksum is not at its end")
		}
		return raw, nil
	}
	if have := fmt.Sprintf("%x", sha256.Sum256(parts[1])); have != string(parts[2]) {
		return nil, errors.New("its checksum does not fit what it says")
	}
	return raw, nil
}

// damaged refuses a journal: what it says is not what a dayone wrote.
func damaged(path string, why error) error {
	return report.Finding{Severity: report.Error, File: path, Rule: "journal-damaged",
		Message: fmt.Sprintf("something other than dayone has changed this journal: %v", why),
		Next: "test the disk; then move this file away and start the bootstrap again: it begins with the first phase " +
			"and takes the images that are already in its registry"}
}
