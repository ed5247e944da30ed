package conformance_test

import (
	"encoding/xml"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"dayone.dev/dayone/hack/conformance"
	"dayone.dev/dayone/registry"
	"dayone.dev/dayone/registry/registrytest"
)

// report is what is read of the suite's junit.xml.
type report struct {
	Suites []struct {
		Tests    int `xml:"tests,attr"`
		Failures int `xml:"failures,attr"`
		Errors   int `xml:"errors,attr"`
		Skipped  int `xml:"skipped,attr"`
		Disabled int `xml:"disabled,attr"`
		Cases    []struct {
			Name    string    `xml:"name,attr"`
			Failure *struct{} `xml:"failure"`
			Skipped *struct{} `xml:"skipped"`
		} `xml:"testcase"`
	} `xml:"testsuite"`
}

func TestConformance(t *testing.T) {
	for _, tc := range []struct {
		name   string
		sparse bool
		env    []string
	}{
		{"version 1.1", false, []string{"OCI_VERSION=1.1", "OCI_API_BLOBS_DIGEST_HEADER=true",
			"OCI_API_BLOBS_UPLOAD_CANCEL=true", "OCI_API_MANIFESTS_DIGEST_HEADER=true"}},
		{"what comes after 1.1, and sparse indexes", true, []string{"OCI_VERSION=dev", "OCI_DATA_SPARSE=true"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			program, err := conformance.Program(t.Context(), "suite")
			require.NoError(t, err)
			r := registrytest.Start(t, func(o *registry.Options) { o.Sparse = tc.sparse })
			dir := t.TempDir()
			cmd := exec.CommandContext(t.Context(), program)
			cmd.Dir = dir
			cmd.Env = append(append(os.Environ(), "SSL_CERT_FILE="+r.CAFile, "OCI_REGISTRY="+r.Addr, "OCI_TLS=enabled",
				"OCI_RESULTS_DIR="+dir,
				"OCI_USERNAME="+r.Push.Name, "OCI_PASSWORD="+r.Push.Password), tc.env...)
			out, err := cmd.CombinedOutput()
			var results report
			raw, readErr := os.ReadFile(filepath.Join(dir, "junit.xml"))
			require.NoError(t, readErr, "%s", out)
			require.NoError(t, xml.Unmarshal(raw, &results))
			require.NotEmpty(t, results.Suites)
			tests := 0
			for _, s := range results.Suites {
				tests += s.Tests
				assert.Zero(t, s.Failures+s.Errors+s.Skipped+s.Disabled)
				for _, c := range s.Cases {
					assert.Nil(t, c.Failure, c.Name)
					assert.Nil(t, c.Skipped, c.Name)
				}
			}
			require.NoError(t, err, "%s", out)
			assert.Greater(t, tests, 700)
			t.Logf("%d tests", tests)
		})
	}
}
