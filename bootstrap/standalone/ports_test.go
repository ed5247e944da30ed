package standalone

import (
	"net"
	"strconv"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"dayone.dev/dayone/bootstrap/day1"
	"dayone.dev/dayone/bootstrap/journal"
	"dayone.dev/dayone/bootstrap/preflight"
	"dayone.dev/dayone/installconfig"
	"dayone.dev/dayone/installconfig/report"
	"dayone.dev/dayone/manifests"
	"dayone.dev/dayone/registry/registrytest"
)

func TestCheckPortsReportsAllPlaces(t *testing.T) {
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer taken.Close()
	_, port, err := net.SplitHostPort(taken.Addr().String())
	require.NoError(t, err)
	number, err := strconv.Atoi(port)
	require.NoError(t, err)
	c := installconfig.Config{BootstrapRegistry: installconfig.BootstrapRegistry{Port: number}}
	err = checkPorts(Options{ConfigListen: taken.Addr().String()}.listeners(c))
	found := report.Of(err)
	require.Len(t, found, 2, "%v", err)
	var places []string
	for _, f := range found {
		assert.Equal(t, "port-taken", f.Rule)
		places = append(places, f.Place())
	}
	assert.ElementsMatch(t, []string{"install-config.yaml: onClusterLayering.bootstrapRegistry.port", "--config-listen"},
		places)
}

func TestCheckPortsRefusesOnePortTwice(t *testing.T) {
	address := net.JoinHostPort("127.0.0.1", strconv.Itoa(registrytest.Port(t)))
	l := chosen("Ignition server", address, 0, "configServer.port", "--config-listen")
	require.NoError(t, checkPorts(l), "the port is free again afterwards")
	assert.Len(t, report.Of(checkPorts(l, l)), 1)
}

func inputWithBase(name string) *preflight.Input {
	return &preflight.Input{Set: &manifests.Set{},
		Sidecar: &installconfig.Sidecar{Config: installconfig.Config{BaseImage: name}}}
}

func TestImportedBeforeFromAnotherSource(t *testing.T) {
	f := flow{Options: Options{Options: day1.Options{Platform: "linux/amd64"}, BaseSource: "oci:/a"},
		host: day1.Host{In: inputWithBase("registry.example.com/ocp/base-os:1")}}
	hash, err := journal.HashOf(f.baseInputs("sha256:aa"))
	require.NoError(t, err)
	j := &journal.Journal{Records: []journal.Record{{Name: "base", Status: journal.StatusDone, InputsHash: hash,
		Output: []byte(`{"digest":"sha256:aa"}`)}}}
	digest, ok := f.importedBefore(j)
	assert.True(t, ok, "the source is gone, the image is here")
	assert.Equal(t, "sha256:aa", digest)
	f.BaseSource = "oci:/mistyped"
	_, ok = f.importedBefore(j)
	assert.False(t, ok)
}
