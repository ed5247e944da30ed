package job

import (
	"fmt"
	"strings"

	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
)

// Containerfile is the text that a MachineOSConfig has for an architecture, in the runtime's spelling (amd64): its own
// entry, else the one for all. Empty without an error means that there is no Containerfile at all.
func Containerfile(c *mcfgv1.MachineOSConfig, architecture string) (string, error) {
	var all, given []string
	for _, entry := range c.Spec.Containerfile {
		switch {
		case strings.EqualFold(string(entry.ContainerfileArch), architecture):
			return entry.Content, nil
		case entry.ContainerfileArch == mcfgv1.NoArch || entry.ContainerfileArch == "":
			all = append(all, entry.Content)
		default:
			given = append(given, string(entry.ContainerfileArch))
		}
	}
	switch {
	case len(all) > 0:
		return all[0], nil
	case len(given) > 0:
		return "", fmt.Errorf(
			"find Containerfile of MachineOSConfig %s: it has one for %s and none for %s; add an entry for it or one for NoArch",
			c.Name, strings.Join(given, ", "), architecture)
	}
	return "", nil
}
