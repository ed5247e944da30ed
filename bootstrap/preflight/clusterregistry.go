package preflight

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"

	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	corev1 "k8s.io/api/core/v1"

	"dayone.dev/dayone/bootstrap/clusterregistry"
	"dayone.dev/dayone/installconfig"
	"dayone.dev/dayone/installconfig/report"
	"dayone.dev/dayone/manifests"
	"dayone.dev/dayone/manifests/assets/cluster"
	"dayone.dev/dayone/registry/credentials"
)

// ControlPlanePool is the pool whose nodes have the cluster's own registries.
const ControlPlanePool = "master"

// SharedDir has what the cluster's own registries share, in an install directory.
func SharedDir(dir string) string { return filepath.Join(dir, installconfig.SidecarDir, "registry") }

// MakeShared creates the accounts and the CA of the cluster's own registries if the layering field asks for these
// registries. A second call reuses the files of the first.
func MakeShared(dir string, layering *installconfig.Sidecar) error {
	if !layering.Config.InCluster() {
		return nil
	}
	_, err := clusterregistry.LoadOrCreate(SharedDir(dir), layering.Config.Registry.Name)
	return err
}

// shareRegistry reads what the cluster's own registries share.
func (d *directory) shareRegistry() (err error) {
	if !d.sidecar.Config.InCluster() {
		return nil
	}
	d.shared, err = clusterregistry.Load(SharedDir(d.dir), d.sidecar.Config.Registry.Name)
	if errors.Is(err, fs.ErrNotExist) {
		return report.Finding{File: SharedDir(d.dir), Rule: "not-prepared",
			Message: fmt.Sprintf("the cluster's own registries have no accounts and no CA: %v", err),
			Next:    "run dayone prepare, and copy the directory with its hidden files"}
	}
	if err != nil {
		return err
	}
	if !credentials.Covers(d.shared.PullAuth, d.shared.Registry) {
		return report.Finding{File: SharedDir(d.dir), Rule: "not-prepared",
			Message: "the accounts of the cluster's own registries are not for " + d.shared.Registry, Next: "run dayone prepare"}
	}
	return nil
}

// agents says that the nodes run dayone's agent. Then no MachineConfig, and so no image, has their account at the
// cluster's own registries, or the key of these registries' CA: they are served beside the config. In the openshift
// flow the bootstrap merges the account into the pull secret of MCO, which has no other way, and a MachineConfig has
// the key.
func (d *directory) agents() bool { return d.sidecar.Config.Flow != installconfig.FlowOpenShift }

// registryFile brings dayone-registry to a node whose configs MCO renders, registryCAFile the CA to a pool's nodes.
const registryFile = "openshift/" + ownPrefix + "registry.yaml"

func registryCAFile(pool string) string {
	return "openshift/" + ownPrefix + "registry-ca-" + pool + ".yaml"
}

// registryConfig brings dayone-registry to the control plane. MCO has to read it from a file, and its nodes, which have
// no agent of dayone's, the CA, too.
func (d *directory) registryConfig() (list []Generated, err error) {
	if d.shared == nil {
		return nil, nil
	}
	mc, err := d.shared.MachineConfig(ControlPlanePool, d.agents())
	if err != nil {
		return nil, err
	}
	if d.agents() {
		item := manifests.NewItem(mc)
		item.Origin = manifests.Origin{File: installconfig.FileName}
		d.set.MachineConfigs = append(d.set.MachineConfigs, item)
		return nil, nil
	}
	list = append(list, d.bring(registryFile, mc))
	if d.sidecar.Cluster.InPlace() { // what its nodes pull by is in its image already
		return list, nil
	}
	for _, p := range d.sidecar.Config.Pools {
		if mc, err = d.shared.CAConfig(p.Name); err != nil {
			return nil, err
		}
		list = append(list, d.bring(registryCAFile(p.Name), mc))
	}
	return list, nil
}

// bring adds a MachineConfig that MCO reads from a file, in the place of what the file had.
func (d *directory) bring(file string, mc *mcfgv1.MachineConfig) Generated {
	item := manifests.NewItem(mc)
	item.Origin = manifests.Origin{File: file}
	d.set.MachineConfigs = append(slices.DeleteFunc(d.set.MachineConfigs,
		func(have manifests.Item[*mcfgv1.MachineConfig]) bool { return have.Origin.File == file }), item)
	return Generated{File: file, Object: mc, Secret: true}
}

// addShared adds the Secrets of builds in the cluster, which every MachineOSConfig may name, the cluster's pull secret
// and the CA.
func addShared(d *directory, in *Input, rep *report.Report) {
	if d.shared == nil {
		return
	}
	in.Shared, in.RegistryCA = d.shared, slices.Concat(d.shared.CA, in.RegistryCA)
	if in.openshift() { // MCO's builds pull with the cluster's pull secret
		addSecret(d, in, clusterregistry.PushSecret, d.shared.PushAuth)
		return
	}
	pull, err := merged(d.nodes.PullSecret, d.shared.PullAuth)
	if err != nil {
		rep.Errorf(report.Finding{File: installconfig.FileName, Path: "pullSecret", Rule: "pull-secret",
			Next: "correct it"}, "it cannot be joined with the account at the cluster's own registries: %v", err)
		return
	}
	shareClusterSecret(d, in, pull)
	// No file has it: the directory has the key already.
	in.Set.Secrets = append(in.Set.Secrets, manifests.Item[*corev1.Secret]{Object: d.shared.Secret(),
		Origin: manifests.Origin{File: installconfig.FileName}})
	if name := d.sidecar.Config.Registry.BaseImagePullAuthFile; name != "" {
		own, ok := authFile(d, name, "baseImagePullAuthFile", rep)
		if !ok {
			return
		}
		if both, err := merged(pull, own); err == nil { // authFile has read it
			pull = both
		}
	}
	addSecret(d, in, clusterregistry.PushSecret, d.shared.PushAuth)
	addSecret(d, in, clusterregistry.PullSecret, pull)
}

// shareClusterSecret gives the cluster's pull secret the account at the registries: the config server gives it to nodes
// that come before an agent has said a key. A Secret of the user's keeps what it has.
func shareClusterSecret(d *directory, in *Input, pull []byte) {
	own := secretNamed(d.set, cluster.PullSecretName)
	if own == nil { // as a MachineConfig of install-config.yaml: no file has it
		s := clusterregistry.Secret(cluster.PullSecretName, pull)
		s.Namespace = cluster.PullSecretNamespace
		in.Set.Secrets = append(in.Set.Secrets, manifests.Item[*corev1.Secret]{Object: s,
			Origin: manifests.Origin{File: installconfig.FileName}})
		return
	}
	if own.Object.Namespace != cluster.PullSecretNamespace {
		return
	}
	if both, err := merged(dockerConfig(own.Object), d.shared.PullAuth); err == nil { // else secretContents refuses it
		own.Object.Data, own.Object.StringData = map[string][]byte{corev1.DockerConfigJsonKey: both}, nil
	}
}

// addSecret adds credentials of builds in the cluster, unless the user has a Secret of that name.
func addSecret(d *directory, in *Input, name string, auth []byte) {
	if secretNamed(d.set, name) != nil {
		return
	}
	s, file := clusterregistry.Secret(name, auth), secretFile(d.sidecar.Config.LayeringDir, name)
	in.Generated = append(in.Generated, Generated{File: file, Object: s})
	in.Set.Secrets = append(in.Set.Secrets, manifests.Item[*corev1.Secret]{Object: s,
		Origin: manifests.Origin{File: file, Document: 1}})
}

// ownRegistries refuses images that would not be in the cluster's own registries, and says what one master means.
func ownRegistries(d *directory, in *Input, rep *report.Report) {
	if d.shared == nil {
		return
	}
	for _, p := range in.Pools {
		if strings.HasPrefix(p.Repository, d.shared.Registry+"/") || p.Repository == "" {
			continue
		}
		at := p.MachineOSConfig.Origin.At("spec.renderedImagePushSpec", "registry-cluster")
		at.Next = "write " + d.shared.Registry + "/" + p.Name + "-os:latest and the Secret " + clusterregistry.PushSecret +
			", or registry.type: external in " + installconfig.FileName
		rep.Errorf(at, "the images go to the cluster's own registries, and this one to %s", p.Repository)
	}
	mastersBringProgram(d, in, rep)
	at := report.Finding{File: installconfig.FileName, Path: "controlPlane.replicas", Rule: "registry-cluster"}
	switch n := in.Sidecar.Cluster.ControlPlane; n {
	case 1:
		at.Next = "have three, or keep a copy of the images elsewhere: dayone registry copy"
		rep.Warnf(at, "the only control-plane node has the only registry: with its disk every image is lost")
	case 2:
		at.Next = "have three"
		rep.Warnf(at, "while one of two control-plane nodes is down, each image is in one registry only")
	}
}

// registryProgram is named by a Containerfile that brings it.
const registryProgram = "dayone-registry"

// mastersBringProgram refuses masters on which the registry would not run: in the openshift flow nothing but their
// image brings its program, also to masters that come later.
func mastersBringProgram(d *directory, in *Input, rep *report.Report) {
	if !in.openshift() || in.Sidecar.Cluster.InPlace() {
		return
	}
	const external = "name a registry of yours: registry.repository"
	i := slices.IndexFunc(in.Pools, func(p Pool) bool { return p.Name == ControlPlanePool })
	if i < 0 || in.Pools[i].BuildAt != installconfig.BuildAtBootstrap {
		rep.Errorf(report.Finding{File: installconfig.FileName, Path: installconfig.Field + ".pools",
			Rule: "registry-program", Next: "add pool master with buildAt: bootstrap, or " + external},
			"the masters keep the images, and only an image that is built at the bootstrap brings dayone-registry to them")
		return
	}
	item := in.Pools[i].MachineOSConfig
	text, ok := containerfileFor(item, d.platform)
	if strings.Contains(text, registryProgram) {
		return
	}
	at := item.Origin.At("spec.containerFile", "")
	if ok {
		at = containerfilePlace(in.Sidecar.Config, item, text)
	}
	at.Rule = "registry-program"
	at.Next = "add COPY --from=REGISTRY/dayone-registry@sha256:… /usr/bin/dayone-registry /usr/bin/dayone-registry " +
		"(a comment that names dayone-registry, where the base image has it), or " + external
	rep.Errorf(at, "the masters keep the images, and their image does not bring dayone-registry, which does it")
}
