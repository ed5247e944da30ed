package openshift

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"dayone.dev/dayone/installconfig"
)

// At half of each of the installer's limits it is said what comes, and not before.
func TestWarnAtHalfOfEachLimit(t *testing.T) {
	for cluster, hard := range map[installconfig.Cluster]string{{Platform: "aws"}: "45m", {Platform: "none"}: "45m",
		{}: "45m", {Platform: "baremetal"}: "1h", {Platform: "vsphere"}: "1h",
		{Platform: "aws", UserProvisionedDNS: true}: "1h"} {
		l := InstallerLimits(cluster)
		half := l.Hard / 2
		assert.Empty(t, due(l.fromStart(), 10*time.Minute-time.Second))
		assert.Contains(t, due(l.fromStart(), 10*time.Minute)[0].text, "openshift-install gives up 20m")
		assert.Empty(t, due(l.fromAPI(), 10*time.Minute-time.Second))
		soft := due(l.fromAPI(), 10*time.Minute)
		assert.Len(t, soft, 1)
		assert.Contains(t, soft[0].text, "half of 20m")
		assert.Contains(t, soft[0].text, "cluster-bootstrap ends the bootstrap control plane once")
		both := due(l.fromAPI(), half)
		assert.Len(t, both, 2)
		assert.True(t, strings.HasPrefix(both[1].text, "half of "+hard), both[1].text)
		assert.Contains(t, both[1].text, "wait-for bootstrap-complete again")
	}
}
