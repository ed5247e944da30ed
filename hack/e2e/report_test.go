package e2e

import (
	"bytes"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"dayone.dev/dayone/installconfig"
	"dayone.dev/dayone/installconfig/report"
)

func TestReportOfAFailedRun(t *testing.T) {
	began := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	rep := &Report{Work: "/tmp/x", Timeline: []Span{{Who: "bootstrap", What: "take in the base image", Start: began,
		End: began.Add(time.Second)}}}
	var out bytes.Buffer
	rep.Print(&out)
	assert.Contains(t, out.String(), "take in the base image")
	assert.Contains(t, out.String(), "/tmp/x/logs")
	assert.NotContains(t, out.String(), "report.json", "none was written")
	assert.NotContains(t, out.String(), "checks inside")
}

func TestInstallDirectoryWithoutLayeredMasters(t *testing.T) {
	cases := []struct {
		name  string
		pools []installconfig.Pool
		rule  string
	}{
		{"the master's image is built at the bootstrap", []installconfig.Pool{{Name: "worker"},
			{Name: "master", BuildAt: installconfig.BuildAtBootstrap}}, ""},
		{"workers only", []installconfig.Pool{{Name: "worker", BuildAt: installconfig.BuildAtBootstrap}},
			"master-not-layered"},
		{"masters are left to the cluster", []installconfig.Pool{{Name: "master", BuildAt: installconfig.BuildAtCluster}},
			"master-not-layered"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			r := &Run{sidecar: &installconfig.Sidecar{Config: installconfig.Config{Pools: c.pools}}}
			found := report.Of(r.layersMasters())
			if c.rule == "" {
				assert.Empty(t, found)
				return
			}
			assert.Equal(t, c.rule, found[0].Rule)
		})
	}
}
