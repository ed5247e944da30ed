package preflight

import "dayone.dev/dayone/installconfig/report"

// check adds a finding for everything of its subject that cannot work. It reads the directory and the input, and
// changes neither.
type check func(*directory, *Input, *report.Report)

// installChecks are all checks of an install directory.
func installChecks() []check {
	return append([]check{unsupportedFlows, plainFiles, poolsExist, customPools, streams, runc, trust, sshKeys,
		rolloutLimits, idleSettings, baseImage, ownBase, ownRegistries, signaturePolicy, invalidIgnition, unselected,
		unreadKinds, unusedRegistry},
		layeringChecks()...)
}

// layeringChecks are those of the layering directory, which also run on the bootstrap node.
func layeringChecks() []check {
	return []check{pointerConfigs, builderType, pushSpecs, secrets, secretContents, nodesCanPull, containerfiles,
		registryCA, names}
}
