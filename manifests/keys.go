package manifests

// Names of annotations and labels. MCO means openshift/machine-config-operator, whose cluster objects and nodes carry them.
const (
	// MCOPrefix is the prefix of MCO's keys.
	MCOPrefix = "machineconfiguration.openshift.io/"
	// DayonePrefix is the prefix of this project's own keys.
	DayonePrefix = "dayone.dev/"
)

// On MachineConfigs, rendered MachineConfigs and the ControllerConfig (MCO, pkg/controller/common/constants.go).
const (
	// LabelRole is the label by which pools usually select MachineConfigs.
	LabelRole = MCOPrefix + "role"
	// AnnotationGeneratedByController holds the version hash of the controller that made a MachineConfig; absent on a user's.
	AnnotationGeneratedByController = MCOPrefix + "generated-by-controller-version"
	// AnnotationGeneratedByVersion holds the version of the operator that made a ControllerConfig.
	AnnotationGeneratedByVersion = MCOPrefix + "generated-by-version"
	// AnnotationReleaseImageVersion is copied from the ControllerConfig to a rendered MachineConfig.
	AnnotationReleaseImageVersion = MCOPrefix + "release-image-version"
	// AnnotationOSImageURLOverridden is "true" on a rendered MachineConfig whose image is not the default one.
	AnnotationOSImageURLOverridden = MCOPrefix + "os-image-url-overridden"
	// LabelBuiltInPool marks the pools that MCO ships.
	LabelBuiltInPool = MCOPrefix + "mco-built-in"
	// AnnotationOriginalOSImageURL and AnnotationLayeredOSImageURL are set by MCO's daemon on its copy of a MachineConfig.
	AnnotationOriginalOSImageURL = MCOPrefix + "original-osimageurl"
	// AnnotationLayeredOSImageURL holds the layered image that replaced the original one.
	AnnotationLayeredOSImageURL = MCOPrefix + "ocl-osimageurl"
)

// On MachineOSConfigs and MachineOSBuilds (MCO, pkg/controller/build/constants/constants.go).
const (
	// AnnotationPreBuiltImage names the image that a pool boots at install time, by digest; on a build it is a label "true".
	AnnotationPreBuiltImage = MCOPrefix + "pre-built-image"
	// AnnotationCurrentBuild names the MachineOSBuild that counts as current.
	AnnotationCurrentBuild = MCOPrefix + "current-machine-os-build"
	// AnnotationRebuild asks for a new build of the same inputs.
	AnnotationRebuild = MCOPrefix + "rebuild"
	// AnnotationBuildRetries counts the retries of a rebuild.
	AnnotationBuildRetries = MCOPrefix + "buildRetries"
	// AnnotationJobUID is the UID of the Job that serves a build.
	AnnotationJobUID = MCOPrefix + "job-uid"
	// AnnotationRenderedImagePushSecret names the push secret on a build, for pruning.
	AnnotationRenderedImagePushSecret = MCOPrefix + "rendered-image-push-secret"
	// LabelTargetPool names the pool of a build.
	LabelTargetPool = MCOPrefix + "target-machine-config-pool"
	// LabelRenderedMachineConfig names the rendered MachineConfig of a build.
	LabelRenderedMachineConfig = MCOPrefix + "rendered-machine-config"
	// LabelMachineOSConfig names the MachineOSConfig of a build.
	LabelMachineOSConfig = MCOPrefix + "machine-os-config"
	// LabelOnClusterLayering marks every object of on-cluster layering.
	LabelOnClusterLayering = MCOPrefix + "on-cluster-layering"
	// ConditionSeeded is True on a MachineOSConfig whose pre-built image has been taken over.
	ConditionSeeded = "Seeded"
	// PreBuiltComponentPrefix starts the name of the MachineConfig that carries a pool's pre-built image.
	PreBuiltComponentPrefix = "10-prebuiltimage-osimageurl-"
)

// On Nodes (MCO, pkg/daemon/constants/constants.go).
const (
	// AnnotationCurrentConfig names the rendered MachineConfig that the node has.
	AnnotationCurrentConfig = MCOPrefix + "currentConfig"
	// AnnotationDesiredConfig names the rendered MachineConfig that the node should have.
	AnnotationDesiredConfig = MCOPrefix + "desiredConfig"
	// AnnotationFirstPivotConfig names the rendered MachineConfig of the first boot.
	AnnotationFirstPivotConfig = MCOPrefix + "firstPivotConfig"
	// AnnotationCurrentImage is the layered image that the node runs, by digest; absent on a node that is not layered.
	AnnotationCurrentImage = MCOPrefix + "currentImage"
	// AnnotationDesiredImage is the layered image that the node should run, by digest.
	AnnotationDesiredImage = MCOPrefix + "desiredImage"
	// AnnotationDesiredOSImage is an equal alias of AnnotationDesiredImage.
	AnnotationDesiredOSImage = MCOPrefix + "desiredOSimage"
	// AnnotationState is the node agent's state, for example Done.
	AnnotationState = MCOPrefix + "state"
	// AnnotationReason is the text of the agent's last failure.
	AnnotationReason = MCOPrefix + "reason"
	// AnnotationPostConfigAction on a node says what the agent is about to do after applying a config.
	AnnotationPostConfigAction = MCOPrefix + "post-config-action"
	// StateDone is the state of a node that has converged.
	StateDone = "Done"
)

// This project's own keys.
const (
	// AnnotationOwnPostConfigAction on a MachineConfig says what its files need after a change; grammar as nodeDisruptionPolicy.
	AnnotationOwnPostConfigAction = DayonePrefix + "post-config-action"
)
