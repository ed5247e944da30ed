package preflight

import (
	"bytes"
	"errors"
	"io/fs"
	"maps"
	"path"
	"slices"
	"strings"

	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"dayone.dev/dayone/bootstrap/clusterregistry"
	"dayone.dev/dayone/installconfig"
	"dayone.dev/dayone/installconfig/report"
	"dayone.dev/dayone/manifests"
)

// mosc is shorter than its type.
type mosc = manifests.Item[*mcfgv1.MachineOSConfig]

// resolve makes the input of what was read: every pool to layer with its objects, read or generated. It reports what
// leaves a pool without them.
func resolve(d *directory, rep *report.Report) *Input {
	in := &Input{Sidecar: d.sidecar, Set: d.set, Nodes: d.nodes}
	in.earlier = dropGenerated(d, rep)
	in.SignaturePolicy, _ = d.file(d.sidecar.Config.SignaturePolicyFile) // namedFiles reports errors
	in.Signing = resolveSigning(d, rep)
	if ca, err := d.file(d.sidecar.Config.Registry.CAFile); err == nil {
		in.RegistryCA = append(bytes.TrimRight(ca, "\n"), '\n')
	}
	addShared(d, in, rep)
	in.LogSpool = resolveLogSpool(d, rep)
	byPool := machineOSConfigs(d, rep)
	for i, p := range d.sidecar.Config.Pools {
		item, ok := byPool[p.Name]
		switch {
		case !ok:
			at := report.Finding{File: installconfig.FileName, Path: poolPath(i)}
			made, ok := generateMachineOSConfig(d, p, at, rep)
			if !ok {
				continue
			}
			made.add(in)
			item = made.config
		case p.Generated():
			rep.Errorf(item.Origin.At("metadata.name", "generated-and-given"),
				"pool %q has a Containerfile in %s and a MachineOSConfig here; keep one of them", p.Name, installconfig.FileName)
			continue
		}
		in.Pools = append(in.Pools, resolvePool(d, p, item))
	}
	requireSignatures(d, in)
	return in
}

// resolvePool finds what a pool's MachineOSConfig names. What cannot be found or used stays empty; the checks say why.
func resolvePool(d *directory, p installconfig.Pool, item mosc) Pool {
	spec := item.Object.Spec
	out := Pool{Pool: p, MachineOSConfig: item}
	out.Repository, _ = parsePushSpec(string(spec.RenderedImagePushSpec))
	out.PushAuth = normalizedSecret(d.set, spec.RenderedImagePushSecret.Name)
	if ref := spec.BaseImagePullSecret; ref != nil {
		out.BasePull = normalizedSecret(d.set, ref.Name)
	}
	if pull := nodePull(d, p.Name); pull != nil {
		out.NodePull = pull.raw
	}
	if d.shared != nil && d.agents() {
		if both, err := merged(out.NodePull, d.shared.PullAuth); err == nil { // else another check refuses the secret
			out.NodePull = both
		}
	}
	out.Containerfile, _ = containerfileFor(item, d.platform)
	return out
}

// defaultPools are the MachineConfigPools master and worker where they are missing: every cluster has them. They are
// generated in the standalone flow only; in the openshift flow MCO writes its own.
func defaultPools(have []manifests.Item[*mcfgv1.MachineConfigPool], flow installconfig.Flow) (
	pools []manifests.Item[*mcfgv1.MachineConfigPool], generated []Generated) {
	for _, name := range []string{"master", "worker"} {
		if hasPool(have, name) {
			continue
		}
		pool := &mcfgv1.MachineConfigPool{
			TypeMeta:   metav1.TypeMeta{APIVersion: mcfgv1.GroupVersion.String(), Kind: "MachineConfigPool"},
			ObjectMeta: metav1.ObjectMeta{Name: name},
			Spec: mcfgv1.MachineConfigPoolSpec{
				MachineConfigSelector: &metav1.LabelSelector{MatchLabels: map[string]string{manifests.LabelRole: name}},
				NodeSelector:          &metav1.LabelSelector{MatchLabels: map[string]string{"node-role.kubernetes.io/" + name: ""}},
			},
		}
		pools = append(pools, manifests.NewItem(pool))
		if flow != installconfig.FlowOpenShift {
			generated = append(generated, Generated{File: "openshift/" + ownPrefix + "machineconfigpool-" + name + ".yaml",
				Object: pool})
		}
	}
	return pools, generated
}

// dropGenerated takes what an earlier dayone manifests wrote into the layering directory out of the set, and returns
// those files: the objects are generated anew from install-config.yaml. It refuses such a file that was edited, because
// it cannot tell which of the two the user means.
func dropGenerated(d *directory, rep *report.Report) []string {
	dir := d.sidecar.Config.LayeringDir
	wanted := map[string]bool{}
	for _, name := range []string{generatedPushSecret, generatedPullSecret, clusterregistry.PushSecret,
		clusterregistry.PullSecret} {
		wanted[secretFile(dir, name)] = true
	}
	for _, p := range d.sidecar.Config.Pools {
		if p.Generated() {
			wanted[machineOSConfigFile(dir, p.Name)] = true
		}
	}
	ours := map[string]bool{}
	isOurs := func(name string) bool {
		if !strings.HasPrefix(name, dir+"/"+ownPrefix) {
			return false
		}
		raw, err := d.file(name)
		if err == nil && untouched(raw) {
			ours[name] = true
		} else if wanted[name] && !errors.Is(err, fs.ErrNotExist) {
			rep.Errorf(report.Finding{File: name, Rule: "generated-edited",
				Next: "put the change into " + installconfig.FileName +
					" and remove this file, or remove containerfile there and rename this file"},
				"dayone generates this file, and it was edited since")
		}
		return ours[name]
	}
	d.set.MachineOSConfigs = slices.DeleteFunc(d.set.MachineOSConfigs, func(i mosc) bool { return isOurs(i.Origin.File) })
	d.set.Secrets = slices.DeleteFunc(d.set.Secrets,
		func(i manifests.Item[*corev1.Secret]) bool { return isOurs(i.Origin.File) })
	return slices.Sorted(maps.Keys(ours))
}

// machineOSConfigs maps pools to their MachineOSConfig and refuses those that no pool can use.
func machineOSConfigs(d *directory, rep *report.Report) map[string]mosc {
	wanted := map[string]bool{}
	for _, p := range d.sidecar.Config.Pools {
		wanted[p.Name] = true
	}
	byPool := map[string]mosc{}
	for _, item := range layeringFirst(d) {
		o := item.Object
		pool := o.Spec.MachineConfigPool.Name
		preBuilt := o.Annotations[manifests.AnnotationPreBuiltImage] != ""
		if first, twice := byPool[pool]; twice && !(preBuilt && outside(d, item)) {
			at := item.Origin.At("spec.machineConfigPool.name", "mosc-twice")
			at.Next = "keep one"
			rep.Errorf(at, "pool %q has another MachineOSConfig in %s", pool, first.Origin.File)
			continue
		}
		if outside(d, item) && usesPreBuilt(item, d.sidecar.Config, wanted[pool], rep) {
			continue
		}
		if o.Name != pool {
			at := item.Origin.At("metadata.name", "mosc-name")
			at.Next = "give both the pool's name, as the API demands"
			rep.Errorf(at, "MachineOSConfig %q is for pool %q", o.Name, pool)
		}
		byPool[pool] = item
		if !wanted[pool] {
			at := item.Origin.At("spec.machineConfigPool.name", "mosc-pool-not-named")
			at.Next = "add it to " + installconfig.Field + ".pools or remove the MachineOSConfig"
			rep.Errorf(at, "pool %q is not among the pools to layer", pool)
		}
	}
	return byPool
}

// layeringFirst are the MachineOSConfigs, those of the layering directory first: of two for one pool the other is one
// too many.
func layeringFirst(d *directory) []mosc {
	list := slices.Clone(d.set.MachineOSConfigs)
	slices.SortStableFunc(list, func(a, b mosc) int {
		switch {
		case outside(d, a) == outside(d, b):
			return 0
		case outside(d, b):
			return -1
		}
		return 1
	})
	return list
}

// outside says that a MachineOSConfig lies in one of the installer's directories.
func outside(d *directory, item mosc) bool {
	return path.Dir(item.Origin.File) != d.sidecar.Config.LayeringDir
}

// usesPreBuilt judges a MachineOSConfig in one of the installer's directories. Its pool is layered with an image that
// exists already; in the openshift flow MCO's bootstrap stops without that image before any master gets its config.
func usesPreBuilt(item mosc, c installconfig.Config, wanted bool, rep *report.Report) bool {
	image := item.Object.Annotations[manifests.AnnotationPreBuiltImage]
	at := item.Origin.At("metadata.annotations["+manifests.AnnotationPreBuiltImage+"]", "mosc-place")
	repository, digest, _ := strings.Cut(image, "@")
	switch {
	case image == "" && c.Flow == installconfig.FlowStandalone:
		at.Path, at.Next = "", "move it to "+c.LayeringDir+"/"
		rep.Errorf(at, "MachineOSConfig %q has no image yet: the standalone flow builds those in %s/ only",
			item.Object.Name, c.LayeringDir)
	case image == "":
		at.Path, at.Next = "", "move it to "+c.LayeringDir+"/: dayone gives it to the cluster, wherever its image is built"
		rep.Errorf(at,
			"MachineOSConfig %q is in a directory that the installer's own bootstrap reads before the image is built",
			item.Object.Name)
	case wanted:
		at.Next = "remove the pool from " + installconfig.Field +
			".pools, or move the MachineOSConfig without its annotation to " + c.LayeringDir + "/"
		rep.Errorf(at, "dayone is to build the image of pool %q, and the pool has a pre-built image: which is meant?",
			item.Object.Name)
	case !digestForm.MatchString(repository) || !referenceEnd.MatchString("@"+digest):
		at.Rule, at.Next = "pre-built-image", "write host[:port][/namespace]/name@sha256:DIGEST"
		rep.Errorf(at, "%q names no image by digest: MCO's bootstrap would stop before any node gets its config", image)
	default:
		return true
	}
	return false
}
