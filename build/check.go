package build

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"path"
	"slices"
	"strings"
	"syscall"

	"dayone.dev/dayone/build/appendengine"
	"dayone.dev/dayone/build/basetree"
	"dayone.dev/dayone/build/configlayer"
	"dayone.dev/dayone/installconfig/report"
)

// bootable tells whether bootc and rpm-ostree take an image: both ask for one of these labels and nothing else.
func bootable(labels map[string]string) bool {
	_, ostree := labels["ostree.bootable"]
	_, bootc := labels["containers.bootc"]
	return ostree || bootc
}

// checkBase refuses a base that no node could boot, before work is put into it.
func checkBase(base *appendengine.Image, platform string) error {
	if got := base.Config.OS + "/" + base.Config.Architecture; got != platform {
		return &Failure{Class: ClassPolicy, Step: "base",
			Message: fmt.Sprintf("the base image is for %s, the build is for %s", got, platform),
			Next:    "name the base image for this architecture, or build on a host of the image's"}
	}
	if !bootable(base.Labels()) {
		return &Failure{Class: ClassPolicy, Step: "base",
			Message: "the base image has neither the label containers.bootc nor ostree.bootable",
			Next:    "use a bootable OS image as base"}
	}
	return nil
}

// check looks at the image that was pushed as a node will see it.
func (w *work) check(ctx context.Context, image *appendengine.Image) error {
	base := w.base.Manifest.Layers
	if len(image.Manifest.Layers) < len(base) {
		return lostBase("the image has fewer layers than its base")
	}
	for i, l := range base {
		if image.Manifest.Layers[i].Digest != l.Digest {
			return lostBase(fmt.Sprintf("layer %d is %s and was %s in the base", i, image.Manifest.Layers[i].Digest, l.Digest))
		}
	}
	if err := checkBase(image, w.r.platform()); err != nil {
		return err
	}
	for label, value := range w.base.Labels() {
		if strings.HasPrefix(label, "ostree.") && image.Labels()[label] != value {
			return &Failure{Class: ClassUser, Step: "check", Message: "the label " + label + " is not the base's any more",
				Next: "leave labels that begin with ostree. alone: hosts find the base's layers by them"}
		}
	}
	added, err := image.Layers(len(base))
	if err != nil {
		return registryFailure("check", err)
	}
	after, err := w.tree.With(ctx, added)
	if err != nil {
		return registryFailure("check", err)
	}
	return w.checkTree(after)
}

func lostBase(message string) *Failure {
	return &Failure{Class: ClassInfrastructure, Step: "check", Message: message,
		Next: "delete the build directory on this host and build again; nodes would else fetch the whole base anew"}
}

// maxPaths is how many paths a finding names.
const maxPaths = 5

// checkTree compares the file tree before and after.
func (w *work) checkTree(after *basetree.Tree) error {
	if err := checkKernel(w.tree, after); err != nil {
		return err
	}
	lists := map[string][]string{}
	for p, e := range after.Entries {
		before, known := w.tree.Lookup(p)
		switch {
		case below(p, "/var") && e.Kind != basetree.Directory && !known && !below(p, "/var/tmp") && !below(p, "/var/cache"):
			lists["var-content"] = append(lists["var-content"], p)
		case below(p, "/opt") && !known || below(p, "/root") && !known || below(p, "/home") && !known:
			lists["machine-content"] = append(lists["machine-content"], p)
		case known && below(p, "/etc") && (e.Kind == basetree.Directory) != (before.Kind == basetree.Directory):
			lists["file-and-directory"] = append(lists["file-and-directory"], p)
		case isAccounts(p):
			old, _ := w.tree.Content(p)
			if now, ok := after.Content(p); ok && !bytes.Equal(old, now) {
				lists["accounts"] = append(lists["accounts"], p)
			}
		}
	}
	for _, e := range w.layer.Entries {
		if overridden(e, after) {
			lists["config-overridden"] = append(lists["config-overridden"], e.Path)
		}
	}
	for _, rule := range []struct{ name, message, next string }{
		{"var-content", "the image has files in /var, which reach a node's /var never or only on its first installation",
			"make them with tmpfiles.d, or remove them in the RUN that writes them"},
		{"machine-content", "the image has files in a directory that belongs to the machine", "put them below /usr"},
		{"file-and-directory",
			"a path of /etc changes between file and directory, and a node that has changed it cannot merge it",
			"choose another path"},
		{"accounts", "the image changes account files, which every node has changed itself: the change never arrives",
			"use sysusers.d"},
		{"config-overridden",
			"the Containerfile changes files of the rendered config: nodes keep what Ignition wrote and take them for edited by hand", "change the MachineConfig instead"},
	} {
		if paths := lists[rule.name]; len(paths) > 0 {
			place := w.place()
			place.Rule, place.Next, place.Severity = rule.name, rule.next, report.Warning
			place.Message = rule.message + ": " + some(paths)
			w.found.files = append(w.found.files, place)
		}
	}
	return nil
}

func overridden(e configlayer.Entry, after *basetree.Tree) bool {
	now, ok := after.Lookup(e.Path)
	if e.Whiteout || e.Kind == basetree.Directory {
		return false
	}
	if !ok || now.Kind != e.Kind || now.UID != e.UID || now.GID != e.GID || e.Kind == basetree.Symlink &&
		now.Link != e.Link {
		return true
	}
	if e.Kind != basetree.Regular {
		return false
	}
	content, kept := after.Content(e.Path)
	return now.Mode != e.Mode || kept && !bytes.Equal(content, e.Content)
}

func isAccounts(p string) bool {
	switch p {
	case "/etc/passwd", "/etc/group", "/etc/shadow", "/etc/gshadow", "/etc/subuid", "/etc/subgid":
		return true
	}
	return false
}

// checkKernel refuses an image that would not boot although its base did: a deployment needs one kernel, with its
// initramfs beside it (ostree, "Operating systems and kernels"). What is as in the base is the base's matter.
func checkKernel(before, after *basetree.Tree) error {
	was, is := kernelsOf(before), kernelsOf(after)
	f := &Failure{Class: ClassUser, Step: "check"}
	switch {
	case maps.Equal(was, is):
		return nil
	case len(is) == 0:
		f.Message, f.Next = "there is no kernel in /usr/lib/modules any more",
			"keep or replace the kernel in the Containerfile"
		return f
	case len(is) > 1 && len(was) <= 1:
		f.Message = "there is more than one kernel: " + some(slices.Collect(maps.Keys(is)))
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

func some(paths []string) string {
	slices.Sort(paths)
	if len(paths) <= maxPaths {
		return strings.Join(paths, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(paths[:maxPaths], ", "), len(paths)-maxPaths)
}

// registryFailure tells errors of a registry apart.
func registryFailure(step string, err error) *Failure {
	if f := AsFailure(err); f != nil {
		return f
	}
	f := &Failure{Step: step, Message: err.Error(), Cause: err}
	var network net.Error
	switch status := appendengine.StatusOf(err); {
	case errors.Is(err, context.DeadlineExceeded) && (!errors.As(err, &network) || network == context.DeadlineExceeded),
		errors.Is(err, context.Canceled):
		return asFailure(step, err)
	case status == 401 || status == 403:
		f.Class, f.Next = ClassInfrastructure,
			"check the registry credentials: the account needs pull on the base and push on the target"
	case status == 404:
		f.Class, f.Next = ClassInfrastructure, "check that the image is in this registry under this digest"
	case status == 429 || status >= 500:
		f.Class, f.Next = ClassTransient, "look at the registry's log"
	case strings.Contains(err.Error(), "x509: "):
		f.Class, f.Next = ClassInfrastructure, "give the CA certificate of the registry"
	case errors.As(err, &network), errors.Is(err, syscall.ECONNREFUSED), errors.Is(err, syscall.ECONNRESET),
		errors.Is(err, syscall.EPIPE):
		f.Class, f.Next = ClassTransient, "check that the registry runs and can be reached from this host"
	default:
		f.Class, f.Next = ClassInfrastructure, "look at the registry's log"
	}
	return f
}

// fill describes the image in the result.
func (w *work) fill(image *appendengine.Image) {
	r := w.result
	r.Digest, r.MediaType, r.Labels = image.Ref.DigestStr(), string(image.MediaType), image.Labels()
	r.Reference = w.r.Target + "@" + r.Digest
	r.Warnings = w.found.all()
	config, base := configLayer(image), w.baseLayers
	for i, l := range image.Manifest.Layers {
		layer := Layer{Digest: l.Digest.String(), Size: l.Size, From: "containerfile"}
		switch {
		case i < base:
			layer.From = "base"
		case i == config:
			layer.From = "config"
		}
		r.Layers = append(r.Layers, layer)
		r.Size += l.Size
	}
}
