package build

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"

	"dayone.dev/dayone/build/appendengine"
	"dayone.dev/dayone/build/basetree"
	"dayone.dev/dayone/build/configlayer"
	"dayone.dev/dayone/installconfig/report"
)

// bootable reports whether bootc and rpm-ostree accept an image: both ask for one of these labels and nothing else.
func bootable(labels map[string]string) bool {
	_, ostree := labels["ostree.bootable"]
	_, bootc := labels["containers.bootc"]
	return ostree || bootc
}

// checkBootable refuses an image that no node could boot.
func checkBootable(image *appendengine.Image, platform string) error {
	if got := image.Config.OS + "/" + image.Config.Architecture; got != platform {
		return &Failure{Class: ClassPolicy, Step: "base",
			Message: fmt.Sprintf("the base image is for %s, the build is for %s", got, platform),
			Next:    "name the base image for this architecture, or build on a host of the image's"}
	}
	if !bootable(image.Labels()) {
		return &Failure{Class: ClassPolicy, Step: "base",
			Message: "the base image has neither the label containers.bootc nor ostree.bootable",
			Next:    "use a bootable OS image as base"}
	}
	return nil
}

// checked is what the check has found out of an image.
type checked struct {
	// files are warnings about its files.
	files []report.Finding
	// kernels are the names of its kernels, in order.
	kernels []string
}

// check reads the pushed image as a node will see it.
func check(ctx context.Context, src source, image *appendengine.Image) (out checked, err error) {
	base := src.base.image.Manifest.Layers
	if len(image.Manifest.Layers) < len(base) {
		return out, lostBase("the image has fewer layers than its base")
	}
	for i, l := range base {
		if got := image.Manifest.Layers[i].Digest; got != l.Digest {
			return out, lostBase(fmt.Sprintf("layer %d is %s and was %s in the base", i, got, l.Digest))
		}
	}
	if err := checkBootable(image, src.platform()); err != nil {
		return out, err
	}
	for label, value := range src.base.image.Labels() {
		if strings.HasPrefix(label, "ostree.") && image.Labels()[label] != value {
			return out, &Failure{Class: ClassUser, Step: "check", Message: "the Containerfile changes the base's label " + label,
				Next: "remove the LABEL instruction: hosts find the base's layers by labels that begin with ostree."}
		}
	}
	added, err := image.Layers(len(base))
	if err != nil {
		return out, registryFailure("check", err)
	}
	after, err := src.base.tree.With(ctx, added)
	if err != nil {
		return out, treeFailure("check", err)
	}
	if err := checkKernel(src.base.tree, after); err != nil {
		return out, err
	}
	for dir := range kernelsOf(after) {
		out.kernels = append(out.kernels, path.Base(dir))
	}
	slices.Sort(out.kernels)
	out.files = checkFiles(src.base.tree, after, src.layer.Entries, src.containerfileName())
	return out, nil
}

func lostBase(message string) *Failure {
	return &Failure{Class: ClassInfrastructure, Step: "check", Message: message,
		Next: "delete the build directory on this host and build again; otherwise nodes download the whole base again"}
}

// fileRule is a kind of file that does not reach a node as the image has it.
type fileRule struct{ name, message, next string }

// fileRules are in the order of their findings.
func fileRules() []fileRule {
	return []fileRule{
		{"var-content", "the image has files in /var, which reach a node's /var never or only on its first installation",
			"make them with tmpfiles.d, or remove them in the RUN that writes them"},
		{"machine-content", "the image has files in a directory that belongs to the machine", "put them below /usr"},
		{"file-and-directory",
			"a path of /etc changes between file and directory, and a node that has changed it cannot merge it",
			"choose another path"},
		{"accounts", "the image changes account files, which every node has changed itself: the change never arrives",
			"use sysusers.d"},
		{"config-overridden", "the Containerfile changes files of the rendered config: nodes keep what Ignition wrote " +
			"and report config drift", "change the MachineConfig instead"},
	}
}

// checkFiles compares the file tree before and after the build.
func checkFiles(before, after *basetree.Tree, config []configlayer.Entry, file string) []report.Finding {
	found := map[string][]string{}
	for p := range after.Entries {
		if rule := ruleOf(p, before, after); rule != "" {
			found[rule] = append(found[rule], p)
		}
	}
	for _, e := range config {
		if overridden(e, after) {
			found["config-overridden"] = append(found["config-overridden"], e.Path)
		}
	}
	var out []report.Finding
	for _, rule := range fileRules() {
		if paths := found[rule.name]; len(paths) > 0 {
			out = append(out, report.Finding{Severity: report.Warning, File: file, Rule: rule.name, Next: rule.next,
				Message: rule.message + ": " + some(paths)})
		}
	}
	return out
}

// ruleOf names the rule that a path of the image breaks, or none.
func ruleOf(p string, before, after *basetree.Tree) string {
	is := after.Entries[p]
	was, known := before.Lookup(p)
	directory := is.Kind == basetree.Directory
	switch {
	case !known && !directory && below(p, "/var") && !below(p, "/var/tmp") && !below(p, "/var/cache"):
		return "var-content"
	case !known && (below(p, "/opt") || below(p, "/root") || below(p, "/home")):
		return "machine-content"
	case known && below(p, "/etc") && directory != (was.Kind == basetree.Directory):
		return "file-and-directory"
	}
	switch p {
	case "/etc/passwd", "/etc/group", "/etc/shadow", "/etc/gshadow", "/etc/subuid", "/etc/subgid":
		old, _ := before.Content(p)
		if now, ok := after.Content(p); ok && !bytes.Equal(old, now) {
			return "accounts"
		}
	}
	return ""
}

// overridden reports whether the image has something else where the config has this entry.
func overridden(e configlayer.Entry, after *basetree.Tree) bool {
	if e.Whiteout || e.Kind == basetree.Directory {
		return false
	}
	now, ok := after.Lookup(e.Path)
	if !ok || now.Kind != e.Kind || now.UID != e.UID || now.GID != e.GID {
		return true
	}
	if e.Kind == basetree.Symlink {
		return now.Link != e.Link
	}
	content, kept := after.Content(e.Path)
	return now.Mode != e.Mode || kept && !bytes.Equal(content, e.Content)
}

// checkKernel refuses an image that would not boot although its base did: a deployment needs one kernel, with its
// initramfs beside it (ostree, "Operating systems and kernels"). What the base has already is not checked.
func checkKernel(before, after *basetree.Tree) error {
	was, is := kernelsOf(before), kernelsOf(after)
	f := &Failure{Class: ClassUser, Step: "check"}
	switch {
	case maps.Equal(was, is):
		return nil
	case len(is) == 0:
		f.Message, f.Next = "the image has no kernel in /usr/lib/modules",
			"keep or replace the kernel in the Containerfile"
		return f
	case len(is) > 1 && len(was) <= 1:
		f.Message = "the image has more than one kernel: " + some(slices.Collect(maps.Keys(is)))
		f.Next = "remove the old kernel in the step that installs the new one"
		return f
	}
	for dir, initramfs := range is {
		if _, known := was[dir]; !initramfs && !known {
			f.Message = "the kernel in " + dir + " has no initramfs.img beside it and would not boot"
			f.Next = "make it in the Containerfile: dracut --force --no-hostonly --add ostree " + dir + "/initramfs.img VERSION"
			return f
		}
	}
	return nil
}

// kernelsOf are the directories with a kernel; the value tells whether its initramfs is there.
func kernelsOf(t *basetree.Tree) map[string]bool {
	out := map[string]bool{}
	for p := range t.Entries {
		if dir := path.Dir(p); path.Base(p) == "vmlinuz" && path.Dir(dir) == "/usr/lib/modules" {
			_, out[dir] = t.Lookup(dir + "/initramfs.img")
		}
	}
	return out
}

func below(p, dir string) bool { return p == dir || strings.HasPrefix(p, dir+"/") }

// maxPaths is how many paths a finding names.
const maxPaths = 5

func some(paths []string) string {
	slices.Sort(paths)
	if len(paths) <= maxPaths {
		return strings.Join(paths, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(paths[:maxPaths], ", "), len(paths)-maxPaths)
}
