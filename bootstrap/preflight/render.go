package preflight

import (
	"slices"
	"strings"

	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"

	"dayone.dev/dayone/build/configlayer"
	"dayone.dev/dayone/installconfig"
	"dayone.dev/dayone/installconfig/report"
	"dayone.dev/dayone/installconfig/strict"
	"dayone.dev/dayone/manifests"
	"dayone.dev/dayone/manifests/machineconfig"
	"dayone.dev/dayone/manifests/render"
	"dayone.dev/dayone/rebase/deploy"
)

// UnknownBase stands for the repository of the release's OS image, which only the bootstrap node knows.
const UnknownBase = "release.invalid/openshift/base-os"

// rendering renders everything once on a made-up base image, and refuses what the renderer and the build on the
// bootstrap host would refuse minutes from now.
func rendering(_ *directory, in *Input, rep *report.Report) {
	versions := render.Versions{Raw: "preflight", Hash: "preflight", Payload: "preflight"}
	repository := in.Sidecar.Config.BaseRepository()
	if in.openshift() {
		repository = UnknownBase + repository
	}
	base := repository + "@sha256:" + strings.Repeat("0", 64)
	r, err := render.Render(in.Inputs(base, versions), in.Options(versions))
	if findings := report.Of(err); findings != nil {
		rep.Add(findings...)
		return
	}
	if err != nil {
		rep.Errorf(report.Finding{Rule: "render"}, "%v", err)
		return
	}
	for _, f := range r.Findings {
		f.Severity = report.Warning
		rep.Add(f)
	}
	rep.Add(imagesByTag(in, r, base)...)
	for _, p := range in.Pools {
		config := r.Config(p.Name)
		if config == nil {
			continue
		}
		taken := selected(in.Set, p.Name)
		if p.BuildAt == installconfig.BuildAtBootstrap && config.Spec.OSImageURL != base {
			rep.Add(ownImage(p.Name, config.Spec.OSImageURL, taken))
		}
		faults := layerFaults(config, report.Finding{Path: "rendered config of pool " + p.Name})
		if len(faults) == 0 {
			continue
		}
		var inUsersFiles []report.Finding
		for _, item := range taken {
			inUsersFiles = append(inUsersFiles, layerFaults(item.Object, item.Origin.At("spec.config", ""))...)
		}
		if len(inUsersFiles) > 0 {
			faults = inUsersFiles
		}
		rep.Add(faults...)
	}
}

// imagesByTag refuses OS images that no node of the standalone flow boots: dayone-firstboot takes digests only.
func imagesByTag(in *Input, r *render.Result, base string) []report.Finding {
	var out report.Report
	for _, pool := range r.Pools {
		config := r.Config(pool.Name)
		if in.openshift() || config == nil || config.Spec.OSImageURL == base || builtAtBootstrap(in, pool.Name) {
			continue
		}
		image := config.Spec.OSImageURL
		if _, err := deploy.ParseImage(image); err != nil {
			at := placeOfImage(pool.Name, image, selected(in.Set, pool.Name))
			at.Rule, at.Next = "os-image-by-tag", "name the image by its digest, so that all nodes run the same one"
			out.Errorf(at, "the nodes of pool %q refuse the OS image at their first boot: %v", pool.Name, err)
		}
	}
	return out.Findings
}

func builtAtBootstrap(in *Input, pool string) bool {
	return slices.ContainsFunc(in.Pools,
		func(p Pool) bool { return p.Name == pool && p.BuildAt == installconfig.BuildAtBootstrap })
}

// ownImage refuses an osImageURL in a MachineConfig: it would win over the image that is built here.
func ownImage(pool, image string, selected []machineConfig) report.Finding {
	at := placeOfImage(pool, image, selected)
	at.Severity, at.Rule = report.Error, "os-image-url"
	at.Message = "the nodes of pool \"" + pool + "\" would boot " + image + " instead of the image that is built for them"
	at.Next = "remove osImageURL here, or the pool from " + installconfig.Field + ".pools"
	return at
}

// placeOfImage is where a pool's OS image is named.
func placeOfImage(pool, image string, selected []machineConfig) report.Finding {
	at := report.Finding{Path: "rendered config of pool " + pool + ": spec.osImageURL"}
	for _, item := range selected {
		if item.Object.Spec.OSImageURL == image {
			at = item.Origin.At("spec.osImageURL", "")
		}
	}
	return at
}

// layerFaults are the refusals of a config that hold whatever the base image is; the others need the base image's files
// and are left to the build.
func layerFaults(config *mcfgv1.MachineConfig, place report.Finding) []report.Finding {
	if len(config.Spec.Config.Raw) == 0 {
		return nil
	}
	parsed, err := machineconfig.Parse(config.Spec.Config.Raw)
	if err != nil {
		return nil // invalidIgnition reports it
	}
	// The error says nothing that the findings do not say.
	_, findings, _ := configlayer.Compile(parsed, configlayer.Options{Place: place})
	anyBase := []string{"remote-source", "contents", "nested-config", "machine-file"}
	return slices.DeleteFunc(findings, func(f report.Finding) bool {
		return f.Severity != report.Error || !slices.Contains(anyBase, f.Rule)
	})
}

// invalidIgnition refuses every MachineConfig whose Ignition config is invalid, also those that no pool selects: MCO
// checks them only when a pool does, long after the installation.
func invalidIgnition(d *directory, in *Input, rep *report.Report) {
	for _, item := range in.Set.MachineConfigs {
		if len(item.Object.Spec.Config.Raw) == 0 {
			continue
		}
		config, err := d.ignition(item)
		if err != nil {
			rep.Add(ignitionFindings(item, err)...)
			continue
		}
		for _, f := range machineconfig.Names(config) {
			rep.Add(refusedIn(item, f))
		}
	}
}

// refusedIn makes a refusal of a finding about a MachineConfig's Ignition config.
func refusedIn(item manifests.Item[*mcfgv1.MachineConfig], f report.Finding) report.Finding {
	at := item.Origin.At("spec.config."+f.Path, f.Rule)
	at.Severity, at.Message, at.Next = report.Error, "MachineConfig \""+item.Object.Name+"\": "+f.Message, f.Next
	return at
}

// decodedInput refuses an install directory whose contents take too much memory once they are unpacked. It comes before
// whatever unpacks them.
func decodedInput(d *directory) []report.Finding {
	var budget machineconfig.Budget
	for _, item := range d.set.MachineConfigs {
		config, err := d.ignition(item)
		if err != nil {
			continue // invalidIgnition reports it
		}
		if found := budget.Take(config); len(found) > 0 {
			return []report.Finding{refusedIn(item, found[0])}
		}
	}
	return nil
}

// ignitionFindings are the values of the wrong kind, which Ignition's decoder does not place, else the parser's
// refusal.
func ignitionFindings(item manifests.Item[*mcfgv1.MachineConfig], err error) []report.Finding {
	var out []report.Finding
	for _, f := range machineconfig.Strict(item.Object.Spec.Config.Raw) {
		if f.Rule == strict.RuleType {
			out = append(out, refusedIn(item, f))
		}
	}
	if len(out) == 0 {
		out = append(out, ignitionFinding(item, err))
	}
	return out
}

// ignitionFinding leads to the field of the Ignition config that the parser names.
func ignitionFinding(item manifests.Item[*mcfgv1.MachineConfig], err error) report.Finding {
	at := item.Origin.At("spec.config", "ignition")
	message := err.Error()
	if found := report.Of(err); len(found) == 1 {
		at.Next, message = found[0].Next, found[0].Message
		if found[0].Path != "" {
			at.Path += "." + found[0].Path
		}
	}
	at.Severity, at.Message = report.Error, "MachineConfig \""+item.Object.Name+"\": "+message
	return at
}
