package installconfig

import (
	"encoding/json"
	"fmt"
	"math"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
)

// Size is a number of bytes, written plain or with a binary unit: 512Mi, 8Gi.
type Size int64

// sizeUnits are the units from the largest to none: a size is written with the largest that leaves no rest.
func sizeUnits() []struct {
	suffix string
	bytes  int64
} {
	return []struct {
		suffix string
		bytes  int64
	}{{"Ti", 1 << 40}, {"Gi", 1 << 30}, {"Mi", 1 << 20}, {"Ki", 1 << 10}, {"", 1}}
}

// parseSize reads the textual form.
func parseSize(text string) (Size, error) {
	for _, u := range sizeUnits() {
		digits, found := strings.CutSuffix(text, u.suffix)
		if !found {
			continue
		}
		n, err := strconv.ParseUint(digits, 10, 63)
		if err != nil || int64(n) > math.MaxInt64/u.bytes {
			break
		}
		return Size(int64(n) * u.bytes), nil
	}
	return 0, fmt.Errorf("%q is not a size such as 8Gi", text)
}

// String is the textual form.
func (s Size) String() string {
	for _, u := range sizeUnits() {
		if s != 0 && int64(s)%u.bytes == 0 {
			return strconv.FormatInt(int64(s)/u.bytes, 10) + u.suffix
		}
	}
	return "0"
}

// UnmarshalYAML reads the textual form.
func (s *Size) UnmarshalYAML(n *yaml.Node) (err error) {
	*s, err = parseSize(n.Value)
	return err
}

// MarshalYAML writes the textual form.
func (s Size) MarshalYAML() (any, error) { return s.String(), nil }

// MarshalJSON writes the textual form.
func (s Size) MarshalJSON() ([]byte, error) { return json.Marshal(s.String()) }

// UnmarshalJSON reads the textual form.
func (s *Size) UnmarshalJSON(b []byte) error {
	var text string
	if err := json.Unmarshal(b, &text); err != nil {
		return fmt.Errorf("read size: %w", err)
	}
	parsed, err := parseSize(text)
	if err != nil {
		return fmt.Errorf("read size: %w", err)
	}
	*s = parsed
	return nil
}
