package serve

import (
	"fmt"
	"sort"
	"strconv"
	"strings"

	"github.com/coreos/go-semver/semver"
)

// ignitionType is the media type that Ignition asks for, with its version as a parameter (Ignition,
// internal/resource/http.go). Its second part alone decides, as in MCO's server.
const (
	ignitionType    = "application/" + ignitionSubtype
	ignitionSubtype = "vnd.coreos.ignition+json"
)

// fallbackVersion is served to clients that do not say a version: curl, and Ignition before it named one.
const fallbackVersion = "2.2.0"

// errUnsupported is the reason for an answer 400.
type errUnsupported struct{ version string }

func (e errUnsupported) Error() string {
	return fmt.Sprintf("Ignition %s is not served; 2.2.0 and 3.0.0 to 3.5.0 are", e.version)
}

// negotiate returns the Ignition version to serve for an Accept header, or an errUnsupported. The entry with the
// highest q decides that is for Ignition and has a valid version; without any the answer is the fallback version.
func negotiate(accept string) (string, error) {
	if versions := ignitionVersions(accept); len(versions) > 0 {
		return served(versions[0])
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

// ignitionVersions lists the versions that the header's entries for Ignition ask for, highest q first, equal ones in
// order. The server bounds the header.
func ignitionVersions(accept string) []semver.Version {
	type entry struct {
		version semver.Version
		q       float64
	}
	var entries []entry
	for part := range strings.SplitSeq(accept, ",") {
		media, parameters, _ := strings.Cut(part, ";")
		if _, subtype, _ := strings.Cut(strings.TrimSpace(media), "/"); subtype != ignitionSubtype {
			continue
		}
		if version, q := asked(parameters); version != nil {
			entries = append(entries, entry{*version, q})
		}
	}
	sort.SliceStable(entries, func(i, j int) bool { return entries[i].q > entries[j].q })
	out := make([]semver.Version, 0, len(entries))
	for _, e := range entries {
		out = append(out, e.version)
	}
	return out
}

// asked reads the parameters of one entry. The first valid value of each counts, and a blank beside the equals sign
// makes another parameter of it: so MCO's server reads them.
func asked(parameters string) (version *semver.Version, q float64) {
	q = 1
	weighed := false
	for f := range strings.SplitSeq(parameters, ";") {
		name, value, _ := strings.Cut(strings.TrimSpace(f), "=")
		switch name {
		case "version":
			if v, err := semver.NewVersion(value); err == nil && version == nil {
				version = v
			}
		case "q":
			if f, err := strconv.ParseFloat(value, 32); err == nil && !weighed {
				q, weighed = f, true
			}
		}
	}
	return version, q
}
