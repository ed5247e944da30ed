package render_test

import (
	"testing"

	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"dayone.dev/dayone/manifests"
	"dayone.dev/dayone/manifests/render"
)

func specOf(image, config string) mcfgv1.MachineConfigSpec {
	return mcfgv1.MachineConfigSpec{OSImageURL: image, KernelType: "default",
		Config: runtime.RawExtension{Raw: []byte(config)}}
}

func TestCompare(t *testing.T) {
	before := specOf("a",
		`{"ignition":{"version":"3.5.0"},"storage":{"files":[{"path":"/etc/x","mode":420,
			"contents":{"source":"data:,one%0Atwo%0A"}},{"path":"/etc/same","contents":{"source":"data:,s"}}]},
			"passwd":{"users":[{"name":"core","passwordHash":"first"}]}}`)
	after := specOf("b",
		`{"ignition":{"version":"3.4.0"},"storage":{"files":[{"path":"/etc/same","contents":{"source":"data:;base64,cw=="}},
			{"path":"/etc/x","mode":384,"contents":{"source":"data:;base64,b25lClRXTwo="}}]},"passwd":{"users":[{"name":"core",
			"passwordHash":"second"}]}}`)
	changes, err := render.Compare(before, after)
	require.NoError(t, err)
	require.Len(t, changes, 3, "%v", changes)
	assert.Equal(t, "config.storage.files[/etc/x].contents", changes[0].Path)
	assert.Contains(t, changes[0].Diff, "@@ -1,2 +1,2 @@\n one\n-two\n+TWO\n")
	assert.Equal(t, "config.storage.files[/etc/x].mode", changes[1].Path)
	assert.Equal(t, "osImageURL", changes[2].Path)
	assert.Equal(t, "a", changes[2].Before)
	assert.Equal(t, "b", changes[2].After)

	before, after = specOf("a", `{"ignition":{"version":"3.5.0"}}`),
		specOf("a", `{"ignition":{"version":"3.5.0"},"systemd":{"units":[{"name":"bare.service"},
			{"name":"on.service","enabled":true}]}}`)
	after.KernelArguments = []string{"quiet"}
	changes, err = render.Compare(before, after)
	require.NoError(t, err)
	var paths []string
	for _, c := range changes {
		assert.Empty(t, c.Before, "%s was not there", c.Path)
		paths = append(paths, c.Path)
	}
	assert.Equal(t, []string{"config.systemd.units[bare.service]", "config.systemd.units[on.service].enabled",
		"kernelArguments"}, paths)
	_, err = render.Compare(before, specOf("a", "{"))
	require.ErrorContains(t, err, "parse Ignition config")
	_, err = render.Compare(specOf("a", "{"), before)
	require.ErrorContains(t, err, "parse Ignition config")
	realtime := *before.DeepCopy()
	realtime.KernelType = "realtime"
	changes, err = render.Compare(before, realtime)
	require.NoError(t, err)
	assert.Equal(t, []render.Change{{Path: "kernelType", Before: "default", After: "realtime"}}, changes)

	same, err := render.Compare(before, before)
	require.NoError(t, err)
	assert.Empty(t, same)
}

func TestCompareContents(t *testing.T) {
	file := func(source string) mcfgv1.MachineConfigSpec {
		return specOf("",
			`{"ignition":{"version":"3.5.0"},"storage":{"files":[{"path":"/a","contents":{"source":"`+source+`"}}]}}`)
	}
	changes, err := render.Compare(file("data:,a"), file("data:,a%0A"))
	require.NoError(t, err)
	require.Len(t, changes, 1)
	assert.Contains(t, changes[0].Diff, "No newline at end of file")
	changes, err = render.Compare(file("data:;base64,AAE="), file("data:;base64,AAI="))
	require.NoError(t, err)
	require.Len(t, changes, 1)
	assert.Contains(t, changes[0].Diff, "no text")
}

func setOf(pool, config string, spec mcfgv1.MachineConfigSpec, version string) *manifests.Set {
	p := &mcfgv1.MachineConfigPool{ObjectMeta: metav1.ObjectMeta{Name: pool}}
	p.Spec.Configuration.Name = config
	c := &mcfgv1.MachineConfig{ObjectMeta: metav1.ObjectMeta{Name: config,
		Annotations: map[string]string{manifests.AnnotationGeneratedByController: version}}, Spec: spec}
	return &manifests.Set{Pools: []manifests.Item[*mcfgv1.MachineConfigPool]{manifests.NewItem(p)},
		MachineConfigs: []manifests.Item[*mcfgv1.MachineConfig]{manifests.NewItem(c)}}
}

func TestParityReasons(t *testing.T) {
	const plain = `{"ignition":{"version":"3.5.0"}}`
	const more = `{"ignition":{"version":"3.5.0"},"storage":{"files":[{"path":"/etc/x","mode":420,"overwrite":true,
		"contents":{"source":"data:,x"}}]}}`
	bootstrap := setOf("master", "rendered-master-1", specOf("a", plain), "v1")
	for _, c := range []struct {
		name    string
		cluster *manifests.Set
		want    string
		same    bool
	}{
		{"same", setOf("master", "rendered-master-1", specOf("a", plain), "v1"), "same config", true},
		{"only the image", setOf("master", "rendered-master-2", specOf("b", plain), "v1"), "only osImageURL differs",
			false},
		{"another version", setOf("master", "rendered-master-2", specOf("b", more), "v2"), "different versions", false},
		{"an input came late", setOf("master", "rendered-master-2", specOf("a", more), "v1"), "inputs that bootstrap had not",
			false},
		{"not rendered yet", &manifests.Set{}, "has not rendered", false},
		{"the config is gone", &manifests.Set{Pools: setOf("master", "rendered-master-2", specOf("a", plain), "v1").Pools},
			"missing", false},
	} {
		t.Run(c.name, func(t *testing.T) {
			verdicts, err := render.Parity(bootstrap, c.cluster)
			require.NoError(t, err)
			require.Len(t, verdicts, 1)
			assert.Equal(t, c.same, verdicts[0].Same)
			assert.Contains(t, verdicts[0].Reason, c.want)
		})
	}
}

func TestParityOfAConfigThatCannotBeRead(t *testing.T) {
	good := setOf("master", "rendered-master-1", specOf("a", `{"ignition":{"version":"3.5.0"}}`), "v1")
	_, err := render.Parity(good, setOf("master", "rendered-master-2", specOf("a", "{"), "v1"))
	assert.ErrorContains(t, err, "compare pool master")
}

func TestCheckRendered(t *testing.T) {
	rendered := func(config string) *mcfgv1.MachineConfig {
		return &mcfgv1.MachineConfig{ObjectMeta: metav1.ObjectMeta{Name: "rendered-master-1"}, Spec: specOf("a", config)}
	}
	require.NoError(t, render.CheckRendered("master", rendered(`{"ignition":{"version":"3.5.0"}}`)))
	assert.ErrorContains(t, render.CheckRendered("master", rendered("{")), "read rendered config of pool master")
	assert.Error(t, render.CheckRendered("master", rendered(`{"ignition":{"version":"3.5.0"},"storage":{"files":[
		{"path":"/etc/crio/crio.conf.d/01","contents":{"source":"data:,%5B"}}]}}`)), "MCO reads CRI-O's drop-ins")
}

// Every kind of setting is explained, with the MachineConfig that it comes from.
func TestExplainEveryKind(t *testing.T) {
	set, err := manifests.ReadDir("testdata/a-user-image-beats-the-layered-one/in", manifests.ReadOptions{})
	require.NoError(t, err)
	mine := &mcfgv1.MachineConfig{ObjectMeta: metav1.ObjectMeta{Name: "98-all",
		Labels: map[string]string{"machineconfiguration.openshift.io/role": "master"}}}
	mine.Spec = specOf("", `{"ignition":{"version":"3.4.0"},"kernelArguments":{"shouldExist":["fromignition"]},
		"storage":{"directories":[{"path":"/etc/d"}],"links":[{"path":"/etc/l","target":"/etc/d"}]},
		"systemd":{"units":[{"name":"a.service","dropins":[{"name":"1.conf","contents":"[Unit]\n"}]}]},
		"passwd":{"users":[{"name":"core","sshAuthorizedKeys":["ssh-ed25519 AAAA"]}]}}`)
	mine.Spec.KernelArguments, mine.Spec.Extensions = []string{"quiet"}, []string{"usbguard"}
	mine.Spec.FIPS, mine.Spec.KernelType = true, "realtime"
	mine.Spec.BaseOSExtensionsContainerImage = "quay.io/e"
	set.MachineConfigs = append(set.MachineConfigs, manifests.NewItem(mine))
	explained, err := render.Explain(set, render.Options{Versions: render.Versions{Raw: "v1", Hash: "h",
		Payload: "1.0.0"}})
	require.NoError(t, err)
	var got []string
	for _, e := range explained[0].Entries {
		if e.From.MachineConfig == mine.Name {
			got = append(got, e.Kind+" "+e.Name+" "+e.Value)
		}
	}
	assert.ElementsMatch(t, []string{"directory /etc/d ", "link /etc/l ", "unit a.service ", "dropin a.service/1.conf ",
		"user core ", "kernelArgument quiet ", "kernelArgument fromignition ", "extension usbguard ", "field fips true",
		"field kernelType realtime", "field baseOSExtensionsContainerImage quay.io/e"}, got)
	assert.Contains(t, explained[0].String(), "master: "+explained[0].Config+"\n")

	mine.Spec.KernelType = "fastest"
	_, err = render.Explain(set, render.Options{Versions: render.Versions{Raw: "v1", Hash: "h", Payload: "1.0.0"}})
	assert.ErrorContains(t, err, "fastest", "what is refused is not explained")
}

func TestExplainOrigins(t *testing.T) {
	set, err := manifests.ReadDir("testdata/a-user-image-beats-the-layered-one/in", manifests.ReadOptions{})
	require.NoError(t, err)
	explained, err := render.Explain(set, render.Options{Versions: render.Versions{Raw: "v1", Hash: "h",
		Payload: "1.0.0"}})
	require.NoError(t, err)
	require.Len(t, explained, 1)
	for _, e := range explained[0].Entries {
		if e.Name == "osImageURL" {
			assert.Equal(t, "99-mine", e.From.MachineConfig)
			require.Len(t, e.Overrode, 2)
			assert.Equal(t, "the ControllerConfig", e.Overrode[0].MachineConfig)
			assert.Equal(t, "10-prebuiltimage-osimageurl-master", e.Overrode[1].MachineConfig)
		}
	}
	assert.Contains(t, explained[0].String(), "file           /etc/a  from 00-master (a.yaml)")
	assert.Regexp(t, `(?m)^  field +osImageURL = .* from 99-mine .*, over the ControllerConfig.* and 10-prebuilt.*$`,
		explained[0].String())
	assert.Contains(t, explained[0].String(), "osImageURL = registry.example.com/ocp/os@sha256:2222")
}
