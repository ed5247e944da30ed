package preflight

import (
	"path"
	"slices"
	"strings"

	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"

	"dayone.dev/dayone/build/containerfile"
	"dayone.dev/dayone/installconfig"
	"dayone.dev/dayone/installconfig/report"
	"dayone.dev/dayone/manifests"
	"dayone.dev/dayone/manifests/render"
)

// render renders everything once on a made-up base image: what the bootstrap host would refuse minutes from now is refused here.
func (c *checker) render() {
	set := &manifests.Set{}
	set.Append(c.in.Set)
	versions := render.Versions{Raw: "preflight", Hash: "preflight", Payload: "preflight"}
	render.StandaloneInputs(set, installconfig.Repository(c.in.Sidecar.Config.BaseImage)+"@sha256:"+strings.Repeat("0", 64), versions)
	r, err := render.Render(set, render.Options{Versions: versions, Unbuilt: render.IgnoreUnbuilt, Strict: true})
	if findings := report.Of(err); findings != nil {
		c.rep.Add(findings...)
		return
	}
	if err != nil {
		c.rep.Errorf(report.Finding{Rule: "render"}, "%v", err)
		return
	}
	for _, f := range r.Findings {
		f.Severity = report.Warning
		c.rep.Add(f)
	}
}

// generatedName is the file of a generated MachineOSConfig, in the layering directory.
func generatedName(pool string) string { return "99_dayone-machineosconfig-" + pool + ".yaml" }

// dropGenerated forgets MachineOSConfigs that an earlier dayone manifests wrote for pools whose Containerfile stands in
// install-config.yaml: they are generated anew from there.
func (c *checker) dropGenerated() {
	files := map[string]bool{}
	for _, p := range c.in.Sidecar.Config.Pools {
		if p.Generated() {
			files[path.Join(c.in.Sidecar.Config.LayeringDir, generatedName(p.Name))] = true
		}
	}
	c.in.Set.MachineOSConfigs = slices.DeleteFunc(c.in.Set.MachineOSConfigs, func(i manifests.Item[*mcfgv1.MachineOSConfig]) bool {
		return files[i.Origin.File]
	})
}

// lint refuses a Containerfile that no engine could build; at is the field that holds it.
func (c *checker) lint(at report.Finding, text string) {
	if strings.TrimSpace(text) == "" {
		return // the image is the base with the rendered config
	}
	file, err := containerfile.Parse(text)
	switch {
	case err != nil:
		at.Rule, at.Next = "containerfile-syntax", "dayone build lint FILE checks a Containerfile alone"
		c.rep.Errorf(at, "%v", err)
	case file.Final() == nil:
		at.Rule, at.Next = "containerfile-no-stage", "start with FROM configs"
		c.rep.Errorf(at, "there is no FROM, so no stage becomes the image")
	}
}
