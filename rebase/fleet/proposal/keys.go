package proposal

import "dayone.dev/dayone/manifests"

// knownKeys are the labels and annotations of manifests/keys.go.
func knownKeys() []string {
	return []string{
		manifests.LabelRole, manifests.AnnotationGeneratedByController, manifests.AnnotationGeneratedByVersion,
		manifests.AnnotationReleaseImageVersion, manifests.AnnotationOSImageURLOverridden,
		manifests.LabelBuiltInPool, manifests.AnnotationPreBuiltImage, manifests.AnnotationCurrentBuild,
		manifests.AnnotationRebuild, manifests.AnnotationRebuildImage, manifests.AnnotationBuildRetries,
		manifests.AnnotationJobUID, manifests.AnnotationRenderedImagePushSecret, manifests.LabelTargetPool,
		manifests.LabelRenderedMachineConfig, manifests.LabelMachineOSConfig, manifests.LabelOnClusterLayering,
		manifests.LabelMachineOSBuild, manifests.LabelEphemeralBuildObject, manifests.LabelCanonicalizedSecret,
		manifests.LabelOriginalSecretName, manifests.AnnotationCurrentConfig, manifests.AnnotationDesiredConfig,
		manifests.AnnotationFirstPivotConfig, manifests.AnnotationCurrentImage,
		manifests.AnnotationDesiredImage, manifests.AnnotationDesiredOSImage, manifests.AnnotationState,
		manifests.AnnotationReason, manifests.AnnotationPostConfigAction,
		manifests.AnnotationOwnPostConfigAction, manifests.AnnotationBuildAddress,
		manifests.AnnotationPostConfigActions, manifests.AnnotationMirrorPolicy, manifests.AnnotationPlan,
		manifests.AnnotationMaxDisruption, manifests.AnnotationUpdateTimes, manifests.AnnotationPolicyOrigins,
		manifests.AnnotationBuildGround, manifests.AnnotationMaintenanceWindows,
		manifests.AnnotationRolloutWaves, manifests.AnnotationHaltAfter, manifests.AnnotationAgentProgress,
		manifests.AnnotationPrefetch, manifests.AnnotationPrefetched, manifests.AnnotationPrefetchError,
		manifests.AnnotationPrefetchLimit, manifests.AnnotationCordonedBy, manifests.AnnotationDrainStarted,
		manifests.LabelCanary, manifests.AnnotationRebuilding, manifests.AnnotationBuildAttempt,
		manifests.AnnotationBuildForced, manifests.AnnotationReusedImage, manifests.AnnotationStandalone,
		manifests.AnnotationEndTrust, manifests.AnnotationTrustEnded,
	}
}
