package machineosbuild

import (
	"fmt"
	"regexp"
	"strconv"

	"dayone.dev/dayone/manifests"
)

const (
	// maxName is the API's bound on names (DNS subdomain, RFC 1123).
	maxName = 253
	// addressDigits are enough of a content address for a name: 128 bits.
	addressDigits = 32
)

// maxReference is the length of an image reference with a digest that the API accepts (openshift/api,
// ImageDigestFormat, v1 of 2026-08).
const maxReference = 447

// digestForm is what that format accepts before the @.
var digestForm = regexp.MustCompile(
	`^([a-zA-Z0-9-]+\.)+[a-zA-Z0-9-]+(:[0-9]{2,5})?/([a-zA-Z0-9-_]{0,61}/)?[a-zA-Z0-9-_.]*$`)

// Unrecordable says why a MachineOSBuild cannot name an image of this repository by digest; empty means that it can.
func Unrecordable(repository string) string {
	switch {
	case !digestForm.MatchString(repository):
		return fmt.Sprintf("the API records the image as host[:port][/namespace]/name@sha256:…, with a dot in the host and "+
			"at most one namespace of up to 61 letters, digits, - or _; %s does not have that form", repository)
	case len(repository)+len("@sha256:")+64 > maxReference:
		return fmt.Sprintf("with a digest the reference has more than %d characters; choose a shorter repository",
			maxReference)
	}
	return ""
}

// Name is the name of the build of a content address (build.Request.Address) for a MachineOSConfig. Equal arguments
// give equal names.
func Name(machineOSConfig, address string) string { return AttemptName(machineOSConfig, address, 0) }

// AttemptName is the name of a later attempt at the same address: a terminal build cannot begin again. Attempt 0 is
// Name's.
func AttemptName(machineOSConfig, address string, attempt int) string {
	tail := "-" + address[:min(len(address), addressDigits)]
	if attempt > 0 {
		tail += "-" + strconv.Itoa(attempt)
	}
	return manifests.Shorten(machineOSConfig, maxName-len(tail)) + tail
}

// Labels are those of a build, by which it is found. Names that are too long for a label's value are shortened as by
// manifests.LabelValue.
func Labels(pool, machineOSConfig, renderedConfig string) map[string]string {
	return map[string]string{
		manifests.LabelOnClusterLayering:     "",
		manifests.LabelTargetPool:            manifests.LabelValue(pool),
		manifests.LabelMachineOSConfig:       manifests.LabelValue(machineOSConfig),
		manifests.LabelRenderedMachineConfig: manifests.LabelValue(renderedConfig),
	}
}

// Annotations are those of a build.
func Annotations(address, pushSecret string) map[string]string {
	return map[string]string{
		manifests.AnnotationBuildAddress:            address,
		manifests.AnnotationRenderedImagePushSecret: pushSecret,
	}
}
