package manifests

import "slices"

// Names of annotations and labels. MCO means openshift/machine-config-operator, whose cluster objects and nodes carry
// them.
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
	// AnnotationGeneratedByController holds the version hash of the controller that made a MachineConfig; absent on a
	// user's.
	AnnotationGeneratedByController = MCOPrefix + "generated-by-controller-version"
	// AnnotationGeneratedByVersion holds the version of the operator that made a ControllerConfig.
	AnnotationGeneratedByVersion = MCOPrefix + "generated-by-version"
	// AnnotationReleaseImageVersion is copied from the ControllerConfig to a rendered MachineConfig.
	AnnotationReleaseImageVersion = MCOPrefix + "release-image-version"
	// AnnotationOSImageURLOverridden is "true" on a rendered MachineConfig whose image is not the default one.
	AnnotationOSImageURLOverridden = MCOPrefix + "os-image-url-overridden"
	// LabelBuiltInPool marks the pools that MCO ships.
	LabelBuiltInPool = MCOPrefix + "mco-built-in"
)

// On MachineOSConfigs and MachineOSBuilds (MCO, pkg/controller/build/constants/constants.go).
const (
	// AnnotationPreBuiltImage names the image that a pool boots at install time, by digest; on a build it is a label
	// "true".
	AnnotationPreBuiltImage = MCOPrefix + "pre-built-image"
	// AnnotationCurrentBuild names the MachineOSBuild that counts as current.
	AnnotationCurrentBuild = MCOPrefix + "current-machine-os-build"
	// AnnotationRebuild asks for a new build of the same inputs.
	AnnotationRebuild = MCOPrefix + "rebuild"
	// AnnotationRebuildImage on a MachineConfigPool, as annotation or as label, asks for the same.
	AnnotationRebuildImage = MCOPrefix + "rebuildImage"
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
	// LabelMachineOSBuild names the build of an object that serves it.
	LabelMachineOSBuild = MCOPrefix + "machine-os-build"
	// LabelEphemeralBuildObject marks objects that live as long as a build needs them.
	LabelEphemeralBuildObject = MCOPrefix + "ephemeral-build-object"
	// LabelCanonicalizedSecret marks the copy of a registry Secret in the form that builders read.
	LabelCanonicalizedSecret = MCOPrefix + "canonicalizedSecret"
	// LabelOriginalSecretName names the Secret that such a copy was made of.
	LabelOriginalSecretName = MCOPrefix + "originalSecretName"
	// ConditionSeeded is True on a MachineOSConfig whose pre-built image has been taken over.
	ConditionSeeded = "Seeded"
	// ConditionImageAccepted of a MachineConfigPool is False, with the reason, when the pool's image did not pass the
	// checks that come before the first node gets its target; it is this project's own.
	ConditionImageAccepted = "ImageAccepted"
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
	// AnnotationControlPlaneTopology is the cluster's, as its Infrastructure says it.
	AnnotationControlPlaneTopology = MCOPrefix + "controlPlaneTopology"
	// AnnotationCustomPoolLabelsApplied is on a node that got the labels of the custom pool that it had booted for.
	AnnotationCustomPoolLabelsApplied = MCOPrefix + "customPoolLabelsApplied"
	// TaintUpdateInProgress, with the effect PreferNoSchedule, is on nodes that wait for their turn in a rollout.
	TaintUpdateInProgress = "UpdateInProgress"
	// AnnotationPostConfigAction on a node says what the agent is about to do after applying a config.
	AnnotationPostConfigAction = MCOPrefix + "post-config-action"
	// AnnotationFinalizeFailure is why ostree did not finalize the deployment that was staged in the boot before.
	AnnotationFinalizeFailure = MCOPrefix + "ostree-finalize-staged-failure"
	// AnnotationSyncedControllerConfig is the resourceVersion of the ControllerConfig whose certificates and pull secrets
	// the node has.
	AnnotationSyncedControllerConfig = MCOPrefix + "lastSyncedControllerConfigResourceVersion"
	// AnnotationObservedServerCA is the ControllerConfig's AnnotationServiceCARotate that the node has followed.
	AnnotationObservedServerCA = MCOPrefix + "lastObservedServerCAAnnotation"
	// AnnotationServiceCARotate on the ControllerConfig is "true" when kubelets have to get another CA of the API server.
	AnnotationServiceCARotate = MCOPrefix + "service-ca-rotate"
	// AnnotationSSH is SSHAccessed on a node that somebody has logged in to.
	AnnotationSSH = MCOPrefix + "ssh"
	// SSHAccessed is described with AnnotationSSH.
	SSHAccessed = "accessed"
	// StateDone is the state of a node that has converged.
	StateDone = "Done"
)

// This project's own keys.
const (
	// AnnotationOwnPostConfigAction on a MachineConfig says what its files need after a change; grammar as
	// nodeDisruptionPolicy.
	AnnotationOwnPostConfigAction = DayonePrefix + "post-config-action"
	// AnnotationBuildAddress on a MachineOSBuild holds its content address; images carry it as a label of the same name.
	AnnotationBuildAddress = DayonePrefix + "build-address"

	// AnnotationPostConfigActions on a rendered MachineConfig holds those actions by file and unit, as JSON
	// (manifests/postconfig.Encode).
	AnnotationPostConfigActions = DayonePrefix + "post-config-actions"
	// AnnotationMirrorPolicy on the MachineConfiguration says which changes of mirror sets need no drain; earlier versions
	// had nothing else for it (rebase/disruption.ParseMirrorPolicy).
	AnnotationMirrorPolicy = DayonePrefix + "mirror-policy"
	// AnnotationPlan on a pool holds what its target does to its nodes (rebase/disruption.PoolPlan); on a node, what of it
	// the node got its target (rebase/disruption.Promise).
	AnnotationPlan = DayonePrefix + "plan"
	// AnnotationMaxDisruption on a pool is the worst level of a plan that is delivered to its nodes
	// (rebase/disruption.Level).
	AnnotationMaxDisruption = DayonePrefix + "max-disruption"
	// AnnotationRebootPolicy on a pool says whether its nodes may take an image by a soft reboot
	// (rebase/softreboot.Policy).
	AnnotationRebootPolicy = DayonePrefix + "reboot-policy"
	// AnnotationSoftReboot on a node is what its agent found before the drain: "soft", which means likely, or
	// "hard: REASON". AnnotationLastBoot is how the node came into what it runs, in the same words.
	AnnotationSoftReboot = DayonePrefix + "soft-reboot"
	AnnotationLastBoot   = DayonePrefix + "last-boot"
	// AnnotationUpdateTimes on a node holds how long its last way to a target took, by level
	// (rebase/disruptioncontroller).
	AnnotationUpdateTimes = DayonePrefix + "update-times"
	// AnnotationPolicyOrigins on the MachineConfiguration says who gave each rule of its status
	// (rebase/disruptioncontroller).
	AnnotationPolicyOrigins = DayonePrefix + "policy-origins"
	// AnnotationRelease on the ControllerConfig and on the MachineConfigs that MCO's program makes says for which state of
	// the cluster they were made (manifests/releasecontroller). While they differ nothing is rendered of them.
	AnnotationRelease = DayonePrefix + "release"
	// AnnotationReleaseBefore on the ControllerConfig is the release that nodes have while another one is being written to
	// the MachineConfigs (manifests/releasecontroller).
	AnnotationReleaseBefore = DayonePrefix + "release-before"
	// AnnotationBaseImage is "true" on a MachineConfig whose osImageURL is the base of a layered pool's next image.
	// Without it admission refuses such an osImageURL (manifests/assets/cluster).
	AnnotationBaseImage = DayonePrefix + "base-image"
	// AnnotationBuildGround on a MachineOSBuild is its address without the rendered config: images of one ground differ in
	// their config only.
	AnnotationBuildGround = DayonePrefix + "build-ground"
	// AnnotationMaintenanceWindows on a pool holds the times at which its nodes may start (rebase/rollout.ParseWindows).
	AnnotationMaintenanceWindows = DayonePrefix + "maintenance-windows"
	// AnnotationRolloutWaves on a pool holds how many nodes get a target before it has proved well
	// (rebase/rollout.ParseWaves).
	AnnotationRolloutWaves = DayonePrefix + "rollout-waves"
	// AnnotationHaltAfter on a pool holds how many nodes may fail at a target before no more nodes get it.
	AnnotationHaltAfter = DayonePrefix + "halt-after"
	// AnnotationAgentProgress on a node says how far the agent is with what takes time, for example "3.1 of 80.2 MB, 1 of
	// 5 layers".
	AnnotationAgentProgress = DayonePrefix + "agent-progress"
	// AnnotationPrefetch on a node is an image, by digest, that its agent may prefetch before the node gets it as its
	// target: into the node's store of images, with nothing staged for the next boot. The node controller writes and
	// removes it.
	AnnotationPrefetch = DayonePrefix + "prefetch"
	// AnnotationPrefetched on a node is the agent's answer: the image that it has fetched. AnnotationPrefetchError is why
	// it has not; the agent need not try again.
	AnnotationPrefetched = DayonePrefix + "prefetched"
	// AnnotationPrefetchError is described with AnnotationPrefetched.
	AnnotationPrefetchError = DayonePrefix + "prefetch-error"
	// AnnotationPrefetchLimit on a pool is how many of its nodes may prefetch at the same time; 0: none.
	AnnotationPrefetchLimit = DayonePrefix + "prefetch-limit"
	// AnnotationPinnedImageSets on a node lists the PinnedImageSets of its pools as NAME=GENERATION,…; its agent pulls
	// and pins their images. The node controller writes it.
	AnnotationPinnedImageSets = DayonePrefix + "pinned-image-sets"
	// AnnotationPinnedImageSetsDone is the agent's answer: the list that it has pinned. AnnotationPinnedImageSetsError is
	// why it has not; it tries again.
	AnnotationPinnedImageSetsDone = DayonePrefix + "pinned-image-sets-done"
	// AnnotationPinnedImageSetsError is described with AnnotationPinnedImageSetsDone.
	AnnotationPinnedImageSetsError = DayonePrefix + "pinned-image-sets-error"
	// AnnotationForced on a node says that its agent does more than was promised, because an administrator has asked for
	// it on the node itself (rebase/daemon.ForcePath).
	AnnotationForced = DayonePrefix + "forced-update"
	// AnnotationCordonedBy on a node says who made it unschedulable, so that only that cordon is undone.
	AnnotationCordonedBy = DayonePrefix + "cordoned-by"
	// CordonedByDayone is its value when it was the drain controller.
	CordonedByDayone = "dayone"
	// AnnotationDrainStarted on a node is when its drain began, RFC 3339.
	AnnotationDrainStarted = DayonePrefix + "drain-started"
	// LabelCanary on a node lets it go before the others of its pool; its value does not matter.
	LabelCanary = DayonePrefix + "canary"
	// AnnotationRebuilding names the build that serves the rebuild request on the same object.
	AnnotationRebuilding = DayonePrefix + "rebuilding"
	// AnnotationBuildAttempt and AnnotationBuildRetries on a MachineOSBuild count the builds of one address and those in a
	// row that were retries.
	AnnotationBuildAttempt = DayonePrefix + "build-attempt"
	// AnnotationBuildForced is "true" on a MachineOSBuild that builds although an image with its address may exist.
	AnnotationBuildForced = DayonePrefix + "build-forced"
	// AnnotationClaimed is "true" on a MachineOSBuild that MCO made and that dayone builds, in mode builder.
	AnnotationClaimed = DayonePrefix + "claimed"
	// AnnotationReusedImage on a MachineOSBuild names the image, by digest, that was taken over instead of being built.
	AnnotationReusedImage = DayonePrefix + "reused-image"
	// AnnotationNoRetry on a MachineOSConfig is "true" where an advisor shall ask for no rebuild of a build that failed.
	AnnotationNoRetry = DayonePrefix + "no-retry"
	// LabelBuildRecord is on the ConfigMaps with what is kept of builds (build/mcobuild).
	LabelBuildRecord = DayonePrefix + "build-record"
	// AnnotationBuildOutcome on the ConfigMap with the log of a build is what became of it (build/mcobuild).
	AnnotationBuildOutcome = DayonePrefix + "build-outcome"
	// AnnotationKernels on a MachineOSBuild has the names of its image's kernels, with commas between them.
	AnnotationKernels = DayonePrefix + "kernels"
	// AnnotationPushedImage on a MachineOSBuild is the image, by digest, that its Job has pushed into the cluster's own
	// registry. The build ends when the control plane's registries have it.
	AnnotationPushedImage = DayonePrefix + "pushed-image"
	// AnnotationRegistry on a control-plane node is how far its registry is (registry/wanted.Report).
	AnnotationRegistry = DayonePrefix + "registry"
	// AnnotationRegistryKey on a node is the key for which its account at the control plane's registries is sealed, and
	// the account that it uses (registry/poolaccounts.Word). The agent writes it.
	AnnotationRegistryKey = DayonePrefix + "registry-key"
	// AnnotationRegistryAccount on a node is that account, which only the node can read (registry/poolaccounts.Sealed).
	AnnotationRegistryAccount = DayonePrefix + "registry-account"
	// AnnotationRegistryShared on a control-plane node is what its registry shares with the others, the key of their CA
	// among it, which only the node can read (registry/poolaccounts.Sealed).
	AnnotationRegistryShared = DayonePrefix + "registry-shared"
	// AnnotationRotateAccount on a pool, or on the Secret with the builders' account at the control plane's registries,
	// asks for a new account whenever its text is another one. Nobody removes it.
	AnnotationRotateAccount = DayonePrefix + "rotate-registry-account"
	// AnnotationRotateCA on the Secret with the CA of the control plane's registries asks for another CA
	// (registry/authority.Request), whenever its text is another one. Nobody removes it.
	AnnotationRotateCA = DayonePrefix + "rotate-registry-ca"
	// AnnotationStandalone marks a ControllerConfig that dayone's hand-over made because the cluster has no operator that
	// would: whoever renders counts as its maker.
	AnnotationStandalone = DayonePrefix + "standalone"
	// AnnotationEndTrust on a node asks its agent to end the trust in registries of a bootstrap host, HOST:PORT with
	// commas between; AnnotationTrustEnded is the agent's answer, with the same value.
	AnnotationEndTrust   = DayonePrefix + "end-trust"
	AnnotationTrustEnded = DayonePrefix + "trust-ended"
	// FinalizerMachineOSBuild keeps a MachineOSBuild until what belongs to it is gone.
	FinalizerMachineOSBuild = DayonePrefix + "machine-os-build"
)

// Types of conditions that dayone's controllers write; the API leaves the types open.
const (
	// ConditionOptedIn is True on a MachineOSConfig whose pool is opted in; False with what an administrator must change.
	ConditionOptedIn = "OptedIn"
	// ConditionBuilderAvailable on the MachineConfiguration is True while dayone-builder works.
	ConditionBuilderAvailable = "MachineOSBuilderAvailable"
)

// ControlPlaneLabels are those of which a control-plane node has one: Kubernetes', and that of Kubernetes before 1.20,
// which OpenShift has, too.
func ControlPlaneLabels() []string {
	return []string{"node-role.kubernetes.io/control-plane", "node-role.kubernetes.io/master"}
}

// ControlPlane reports whether labels are those of a control-plane node. An arbiter is none: it has a member of etcd
// and nothing else.
func ControlPlane(labels map[string]string) bool {
	return slices.ContainsFunc(ControlPlaneLabels(), func(l string) bool {
		_, there := labels[l]
		return there
	})
}
