package manifests_test

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"dayone.dev/dayone/manifests"
)

func TestKeys(t *testing.T) {
	keys := manifests.Keys()
	assert.Greater(t, len(keys), 40)
	assert.Subset(t, keys, []string{manifests.LabelRole, manifests.AnnotationCurrentConfig, manifests.LabelCanary,
		manifests.AnnotationOwnPostConfigAction, manifests.AnnotationPostConfigActions, manifests.AnnotationTrustEnded})
	assert.NotContains(t, keys, manifests.FinalizerMachineOSBuild)
}
