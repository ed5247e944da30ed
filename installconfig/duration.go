package installconfig

import (
	"fmt"
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
