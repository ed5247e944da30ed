package installconfig

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
)

// Duration is a time.Duration written as Go writes it, for example 30m or 1h30m.
type Duration time.Duration

// UnmarshalText reads the textual form, for YAML and JSON.
func (d *Duration) UnmarshalText(text []byte) error {
	v, err := time.ParseDuration(string(text))
	if err != nil {
		return fmt.Errorf("%q is not a duration such as 30m", text)
	}
	*d = Duration(v)
	return nil
}

// MarshalText writes the textual form, for YAML and JSON.
func (d Duration) MarshalText() ([]byte, error) { return []byte(d.Duration().String()), nil }

// Duration is the value as the time package has it.
func (d Duration) Duration() time.Duration { return time.Duration(d) }

// Size is a number of bytes, written plain or with a binary unit: 512Mi, 8Gi.
type Size int64

type sizeUnit struct {
	suffix string
	bytes  int64
}

// sizeUnits are the units from the largest to none: String uses the largest that leaves no rest.
func sizeUnits() []sizeUnit {
	return []sizeUnit{{"Ti", 1 << 40}, {"Gi", 1 << 30}, {"Mi", 1 << 20}, {"Ki", 1 << 10}, {"", 1}}
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

// UnmarshalText reads the textual form, for YAML and JSON.
func (s *Size) UnmarshalText(text []byte) (err error) {
	*s, err = parseSize(string(text))
	return err
}

// MarshalText writes the textual form, for YAML and JSON.
func (s Size) MarshalText() ([]byte, error) { return []byte(s.String()), nil }
