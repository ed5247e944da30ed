package disruption

import (
	"bytes"
	"fmt"
	"strings"

	opv1 "github.com/openshift/api/operator/v1"
)

// firstBootOnly are the sections of Ignition's storage whose changes the admin wants for new nodes alone:
// spec.irreconcilableValidationOverrides of the MachineConfiguration. A node that is there goes on without them.
type firstBootOnly []opv1.IrreconcilableValidationOverridesStorage

// covers tells whether a section, by Ignition's name, is among them.
func (f firstBootOnly) covers(section string) bool {
	for _, s := range f {
		if strings.EqualFold(string(s), section) {
			return true
		}
	}
	return false
}

// withoutEffect lists what a MachineConfiguration sets and no program of dayone does, in words.
func withoutEffect(spec *opv1.MachineConfigurationSpec) []string {
	var out []string
	add := func(set bool, field, why string) {
		if set {
			out = append(out, fmt.Sprintf("spec.%s has no effect: %s", field, why))
		}
	}
	add(len(spec.ManagedBootImages.MachineManagers) > 0, "managedBootImages",
		"dayone changes no boot image of machine sets; new nodes get their image at their first boot")
	add(spec.BootImageSkewEnforcement.Mode != "", "bootImageSkewEnforcement", "dayone does not look at boot images")
	add(spec.ManagementState != "" && spec.ManagementState != opv1.Managed, "managementState",
		"dayone always manages: scale dayone-controller to 0 to stop it, or pause pools")
	const noPods = "dayone has no static pods"
	add(spec.ForceRedeploymentReason != "", "forceRedeploymentReason", noPods)
	add(spec.FailedRevisionLimit != 0, "failedRevisionLimit", noPods)
	add(spec.SucceededRevisionLimit != 0, "succeededRevisionLimit", noPods)
	const noConfig = "dayone reads no configuration there"
	add(says(spec.UnsupportedConfigOverrides.Raw), "unsupportedConfigOverrides", noConfig)
	add(says(spec.ObservedConfig.Raw), "observedConfig", noConfig)
	return out
}

// says tells whether a piece of JSON is there and not empty.
func says(raw []byte) bool {
	text := string(bytes.TrimSpace(raw))
	return text != "" && text != "null" && text != "{}"
}
