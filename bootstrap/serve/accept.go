package serve

import (
	"fmt"
	"sort"
	"strconv"
	"strings"

	"github.com/coreos/go-semver/semver"
)

// ignitionType is the media type that Ignition asks for, with its version as a parameter (Ignition,
// internal/resource/http.go).
const ignitionType = "application/vnd.coreos.ignition+json"

// fallbackVersion is served to clients that do not say a version: curl, and Ignition before it named one.
const fallbackVersion = "2.2.0"

// maxAcceptEntries bounds the work on one header; Ignition sends three entries.
const maxAcceptEntries = 64

// errUnsupported is the reason for an answer 400.
type errUnsupported struct{ version string }

func (e errUnsupported) Error() string {
	return fmt.Sprintf("Ignition %s is not served; 2.2.0 and 3.0.0 to 3.5.0 are", e.version)
}

// negotiate returns the Ignition version to serve for an Accept header, or an errUnsupported. The entry with the
// highest q decides that is for Ignition and has a valid version; without any the answer is the fallback version.
func negotiate(accept string) (string, error) {
	for _, value := range ignitionEntries(accept) {
		version, err := semver.NewVersion(value)
		if err != nil {
			continue
		}
		return served(*version)
	}
	return fallbackVersion, nil
}

// served maps an asked version to the one that is answered with.
func served(v semver.Version) (string, error) {
	switch {
	case v.Major == 3 && v.Minor >= 5:
		return "3.5.0", nil
	case v.Major == 3:
		return fmt.Sprintf("3.%d.0", v.Minor), nil
	case v.Major == 2 && v.Minor >= 2:
		return fallbackVersion, nil
	default:
		return "", errUnsupported{version: v.String()}
	}
}

// ignitionEntries lists the version parameters of the header's entries for Ignition, highest q first, equal ones in
// order.
func ignitionEntries(accept string) []string {
	type entry struct {
		version string
		q       float64
	}
	var entries []entry
	for range maxAcceptEntries {
		part, rest, more := strings.Cut(accept, ",")
		accept = rest
		fields := strings.Split(part, ";")
		if strings.TrimSpace(fields[0]) == ignitionType {
			e := entry{q: 1}
			for _, f := range fields[1:] {
				name, value, _ := strings.Cut(f, "=")
				switch strings.TrimSpace(name) {
				case "version":
					e.version = strings.TrimSpace(value)
				case "q":
					if q, err := strconv.ParseFloat(strings.TrimSpace(value), 64); err == nil {
						e.q = q
					}
				}
			}
			entries = append(entries, e)
		}
		if !more {
			break
		}
	}
	sort.SliceStable(entries, func(i, j int) bool { return entries[i].q > entries[j].q })
	out := make([]string, 0, len(entries))
	for _, e := range entries {
		out = append(out, e.version)
	}
	return out
}
