package preflight

import (
	"os"
	"path/filepath"
	"strings"

	"dayone.dev/dayone/build/containerfile"
	"dayone.dev/dayone/installconfig"
	"dayone.dev/dayone/installconfig/report"
	"dayone.dev/dayone/manifests"
	"dayone.dev/dayone/manifests/render"
)

// Inputs are the objects that are rendered on a base image, those that the flow adds among them. In the openshift flow
// what MCO renders from its templates and the release is not here: only the users' own configs can be looked at.
func (in *Input) Inputs(base string, versions render.Versions) *manifests.Set {
	set := &manifests.Set{}
	set.Append(in.Set)
	if in.Sidecar.Config.Flow == installconfig.FlowOpenShift {
		set.FeatureGates, set.KubeletConfigs, set.ContainerRuntimeConfigs = nil, nil, nil
	}
	render.StandaloneInputs(set, base, versions)
	return set
}

// render renders everything once on a made-up base image: what the bootstrap host would refuse minutes from now is
// refused here.
func (c *checker) render() {
	versions := render.Versions{Raw: "preflight", Hash: "preflight", Payload: "preflight"}
	base := installconfig.Repository(c.in.Sidecar.Config.BaseImage) + "@sha256:" + strings.Repeat("0", 64)
	if c.openshift() {
		base = UnknownBase + base
	}
	set := c.in.Inputs(base, versions)
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
	c.images(r, base)
}

// generatedName is the file of a generated MachineOSConfig, in the layering directory.
func generatedName(pool string) string { return "99_dayone-machineosconfig-" + pool + ".yaml" }

// UnknownBase stands for the repository of the release's OS image, which only the bootstrap node knows.
const UnknownBase = "release.invalid/openshift/base-os"

// lint refuses a Containerfile that no engine could build; at is the field that holds it.
func (c *checker) lint(at report.Finding, text string) {
	if strings.TrimSpace(text) == "" {
		return // the image is the base with the rendered config
	}
	at.Line = c.lineBefore(at.File, text)
	_, findings := containerfile.Lint(text, containerfile.LintOptions{Place: at})
	c.rep.Add(findings...)
}

// lineBefore finds where a Containerfile begins inside the file that quotes it: the number of the line before its
// first. It is 0 where the quoting hides it; findings then count lines from the Containerfile's own first.
func (c *checker) lineBefore(file, text string) int {
	raw, err := os.ReadFile(filepath.Join(c.dir, filepath.FromSlash(file)))
	if err != nil {
		return 0
	}
	first, _, _ := strings.Cut(strings.TrimLeft(text, "\n"), "\n")
	for n, line := range strings.Split(string(raw), "\n") {
		if strings.TrimSpace(line) == strings.TrimSpace(first) {
			return n - strings.Count(text[:len(text)-len(strings.TrimLeft(text, "\n"))], "\n")
		}
	}
	return 0
}
