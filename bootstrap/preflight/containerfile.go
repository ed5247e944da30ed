package preflight

import (
	"fmt"
	"slices"
	"strings"

	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"

	"dayone.dev/dayone/build/containerfile"
	"dayone.dev/dayone/installconfig"
	"dayone.dev/dayone/installconfig/report"
)

// architectures are the API's (openshift/api machineconfiguration/v1, ContainerfileArch).
func architectures() []string { return []string{"NoArch", "AMD64", "ARM64", "PPC64LE", "S390X"} }

// containerfiles checks the architectures of the pools' Containerfiles, and lints the one for the nodes' platform.
func containerfiles(d *directory, in *Input, rep *report.Report) {
	for _, p := range in.Pools {
		item := p.MachineOSConfig
		entries := item.Object.Spec.Containerfile
		seen := map[string]bool{}
		for i, f := range entries {
			at := item.Origin.At(fmt.Sprintf("spec.containerFile[%d].containerfileArch", i), "containerfile-arch")
			at.Next = "write one of " + strings.Join(architectures(), ", ")
			name := string(f.ContainerfileArch)
			if seen[name] {
				at.Next = "keep one"
				rep.Errorf(at, "there are two Containerfiles for architecture %q", name)
			}
			if !slices.Contains(architectures(), name) && name != "" {
				rep.Errorf(at, "unknown architecture %q", name)
			}
			seen[name] = true
		}
		text, ok := containerfileFor(item, d.platform)
		if !ok && len(entries) > 0 {
			at := item.Origin.At("spec.containerFile", "containerfile-arch")
			at.Next = "add one with containerfileArch: NoArch, or name the nodes' platform"
			rep.Warnf(at, "no Containerfile is for %s: the image has the rendered config only", d.platform)
		}
		if strings.TrimSpace(text) == "" {
			continue // the image is the base with the rendered config
		}
		at := containerfilePlace(in.Sidecar.Config, item, text)
		at.Line = lineBefore(d, at.File, text)
		_, findings := containerfile.Lint(text, containerfile.LintOptions{Place: at})
		rep.Add(findings...)
	}
}

// containerfileFor is the Containerfile for the nodes' platform.
func containerfileFor(item mosc, platform string) (string, bool) {
	byArchitecture := map[string]string{}
	for _, f := range item.Object.Spec.Containerfile {
		byArchitecture[string(f.ContainerfileArch)] = f.Content
	}
	_, arch, _ := strings.Cut(platform, "/")
	return containerfile.Select(byArchitecture, arch)
}

// containerfilePlace is where the user wrote a Containerfile of a MachineOSConfig: in the object, or, where dayone
// generated the object, in install-config.yaml or the file that it names.
func containerfilePlace(c installconfig.Config, item mosc, text string) report.Finding {
	index := poolIndex(c, item.Object.Spec.MachineConfigPool.Name)
	if index < 0 || !c.Pools[index].Generated() {
		i := slices.IndexFunc(item.Object.Spec.Containerfile,
			func(f mcfgv1.MachineOSContainerfile) bool { return f.Content == text })
		return item.Origin.At(fmt.Sprintf("spec.containerFile[%d].content", i), "")
	}
	if file := c.Pools[index].ContainerfilePath; file != "" {
		return report.Finding{File: file}
	}
	return report.Finding{File: installconfig.FileName, Path: poolPath(index) + ".containerfile"}
}

// lineBefore finds where a Containerfile begins inside the file that quotes it: the number of the line before its
// first. It is 0 where the quoting hides it; findings then count lines from the Containerfile's own first.
func lineBefore(d *directory, name, text string) int {
	raw, err := d.file(name)
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
