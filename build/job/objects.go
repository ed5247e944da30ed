package job

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"

	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"dayone.dev/dayone/build"
	"dayone.dev/dayone/build/machineosbuild"
	"dayone.dev/dayone/manifests"
	"dayone.dev/dayone/manifests/assets/cluster"
	"dayone.dev/dayone/registry/credentials"
)

// Input is everything that a build in the cluster is made of.
type Input struct {
	// Build is the MachineOSBuild; it must be in the cluster, for its UID owns the objects.
	Build *mcfgv1.MachineOSBuild
	// Config is the MachineOSConfig.
	Config *mcfgv1.MachineOSConfig
	// Request is the build: base by digest, rendered config, Containerfile for Platform, target, extensions image, trust
	// bundle. Registry and paths in its options do not count: the pod has its own.
	Request build.Request
	// PullSecret and PushSecret are credentials as Canonical makes them; PullSecret may be empty.
	PullSecret, PushSecret []byte
	// CA is PEM of CAs that sign the certificates of registries; empty means the builder image's.
	CA []byte
	// Mounts are Secrets and ConfigMaps that RUN sees as directories: entitlement certificates, package repositories.
	Mounts []Mount
	// Options are how the pod runs.
	Options Options
}

// Mount is a Secret or ConfigMap in the Job's namespace that RUN sees. It may be missing, and then nothing is mounted.
type Mount struct {
	// Secret or ConfigMap is its name; one of both.
	Secret, ConfigMap string
	// Target is the directory in which RUN sees it.
	Target string
}

// EntitlementMounts are what subscribed hosts need to install packages, by the names that the API's operator gives
// them: pool is the pool's name.
func EntitlementMounts(pool string) []Mount {
	return []Mount{
		{Secret: "etc-pki-entitlement-" + pool, Target: "/etc/pki/entitlement"},
		{ConfigMap: "etc-yum-repos-d", Target: "/etc/yum.repos.d"},
		{Secret: "etc-pki-rpm-gpg", Target: "/etc/pki/rpm-gpg"},
	}
}

// Objects are what a build needs in the cluster. Apply ConfigMaps and Secrets before the Job; all of them go with the
// MachineOSBuild.
type Objects struct {
	Job        *batchv1.Job
	ConfigMaps []*corev1.ConfigMap
	Secrets    []*corev1.Secret
}

// Limits of what is stored, in bytes. The API server refuses ConfigMaps and Secrets above 1 MiB (corev1.MaxSecretSize);
// metadata and the order need some of it.
const (
	maxObject = 1 << 20
	maxPart   = 960 << 10
	// maxParts keeps the number of objects below what a MachineOSBuild's status can name (relatedObjects, 10).
	maxParts = 4
)

// maxJobName keeps the name a label's value, which Kubernetes puts on the pods (batch.kubernetes.io/job-name).
const maxJobName = 63

// JobName is the name of a build's Job.
func JobName(machineOSBuild string) string { return objectName("build-", machineOSBuild) }

func objectName(prefix, machineOSBuild string) string {
	return prefix + manifests.Shorten(machineOSBuild, maxJobName-len(prefix))
}

// New makes the objects of a build. Equal input gives equal objects. The error names input that is too large.
func New(in Input) (Objects, error) {
	objects, err := newObjects(in)
	if err != nil {
		return Objects{}, fmt.Errorf("make Job of MachineOSBuild %s: %w", in.name(), err)
	}
	return objects, nil
}

func newObjects(in Input) (Objects, error) {
	if err := in.validate(); err != nil {
		return Objects{}, err
	}
	in.Options = in.Options.withDefaults()
	parts, err := pack(in.Request.Config, maxPart)
	if err != nil {
		return Objects{}, err
	}
	if len(parts) > maxParts {
		return Objects{}, fmt.Errorf("rendered config %s has more than %d KiB when compressed; move large files out of the "+
			"MachineConfigs into the Containerfile", in.Request.Config.Name, maxParts*maxPart>>10)
	}
	inputs, err := in.inputs(parts)
	if err != nil {
		return Objects{}, err
	}
	var out Objects
	for _, input := range inputs {
		for _, o := range input.objects {
			switch o := o.(type) {
			case *corev1.ConfigMap:
				out.ConfigMaps = append(out.ConfigMaps, o)
			case *corev1.Secret:
				out.Secrets = append(out.Secrets, o)
			}
		}
	}
	out.Job = in.job(inputs)
	return out, nil
}

func (in Input) name() string {
	if in.Build == nil {
		return ""
	}
	return in.Build.Name
}

func (in Input) validate() error {
	switch {
	case in.Build == nil || in.Build.Name == "" || in.Build.UID == "":
		return errors.New("the MachineOSBuild has no name or UID; create it first")
	case in.Config == nil:
		return errors.New("there is no MachineOSConfig")
	case len(in.PushSecret) == 0:
		return errors.New("there are no push credentials; set renderedImagePushSecret")
	}
	if err := in.Options.Validate(); err != nil {
		return err
	}
	if _, err := in.Request.Address(); err != nil {
		return err
	}
	if _, err := credentials.ForPush(in.PullSecret, in.PushSecret, in.Request.Target); err != nil {
		return err
	}
	for _, m := range in.Mounts {
		if (m.Secret == "") == (m.ConfigMap == "") || !strings.HasPrefix(m.Target, "/") {
			return fmt.Errorf("mount at %q: name one Secret or ConfigMap and an absolute target", m.Target)
		}
	}
	return nil
}

// input is a directory that the pod reads: a volume, and the objects of this build behind it.
type input struct {
	name, path string
	source     corev1.VolumeSource
	objects    []metav1.Object
}

// inputs makes what the pod reads. Only the Containerfile and CAs are no secrets: a rendered config holds the
// node's pull secret, and addresses of proxies may hold a password.
func (in Input) inputs(parts [][]byte) ([]input, error) {
	order, err := json.Marshal(in.order(len(parts)))
	if err != nil {
		return nil, fmt.Errorf("encode order: %w", err)
	}
	if len(order)+len(parts[0]) > maxObject {
		return nil, fmt.Errorf("the trust bundle and options have %d KiB; make the trust bundle smaller", len(order)>>10)
	}
	all := []input{in.config(order, parts), in.configMap("containerfile-", DirContainerfile, map[string]string{
		FileContainerfile: in.Request.Containerfile})}
	if len(in.CA) > 0 {
		all = append(all, in.configMap("additionaltrustbundle-", DirCA, map[string]string{FileCA: string(in.CA)}))
	}
	if len(in.PullSecret) > 0 {
		original := ""
		if s := in.Config.Spec.BaseImagePullSecret; s != nil {
			original = s.Name
		}
		all = append(all, in.auth("base-", DirPull, in.PullSecret, original))
	}
	all = append(all, in.auth("final-", DirPush, in.PushSecret, in.Config.Spec.RenderedImagePushSecret.Name))
	for i, mount := range in.Mounts {
		all = append(all, mount.input(strconv.Itoa(i)))
	}
	for _, input := range all {
		if err := input.fits(); err != nil {
			return nil, err
		}
	}
	return all, nil
}

// order is what the builder does, without what has a file of its own.
func (in Input) order(parts int) Order {
	order := Order{MachineOSBuild: in.Build.Name, Request: in.Request, Parts: parts}
	r := &order.Request
	r.Config, r.Containerfile, r.Registry = nil, "", build.Access{}
	r.Options.Mounts, r.Options.Secrets, r.Options.RegistriesConf = nil, nil, ""
	r.Options.Timeout = in.Options.BuilderDeadline
	for i, mount := range in.Mounts {
		order.Mounts = append(order.Mounts, OrderMount{Name: strconv.Itoa(i), Target: mount.Target})
	}
	return order
}

// fits refuses a text that one object cannot hold.
func (i input) fits() error {
	for _, o := range i.objects {
		size := 0
		switch o := o.(type) {
		case *corev1.ConfigMap:
			for _, text := range o.Data {
				size += len(text)
			}
		case *corev1.Secret:
			for _, data := range o.Data {
				size += len(data)
			}
		}
		if size > maxObject {
			return fmt.Errorf("%s has %d KiB, and an object holds 1024; make it smaller", i.name, size>>10)
		}
	}
	return nil
}

// config shows the order and the rendered config, which several Secrets hold, in one directory.
func (in Input) config(order []byte, parts [][]byte) input {
	var objects []metav1.Object
	var sources []corev1.VolumeProjection
	for i, part := range parts {
		data := map[string][]byte{FilePart + strconv.Itoa(i): part}
		if i == 0 {
			data[FileOrder] = order
		}
		s := &corev1.Secret{ObjectMeta: in.meta(objectName("config-"+strconv.Itoa(i)+"-", in.Build.Name)),
			Type: corev1.SecretTypeOpaque, Data: data}
		objects = append(objects, s)
		sources = append(sources, corev1.VolumeProjection{Secret: &corev1.SecretProjection{LocalObjectReference: named(s)}})
	}
	return input{name: DirConfig, path: DirConfig, objects: objects, source: corev1.VolumeSource{
		Projected: &corev1.ProjectedVolumeSource{Sources: sources, DefaultMode: new(secretMode)}}}
}

func named(o metav1.Object) corev1.LocalObjectReference {
	return corev1.LocalObjectReference{Name: o.GetName()}
}

// secretMode lets only the pod's own root read secrets: not the user namespace in which RUN is root.
const secretMode = int32(0o400)

// auth holds registry credentials, a copy of the Secret that is named.
func (in Input) auth(prefix, dir string, auth []byte, original string) input {
	s := &corev1.Secret{
		ObjectMeta: in.meta(objectName(prefix, in.Build.Name)), Type: corev1.SecretTypeDockerConfigJson,
		Data: map[string][]byte{corev1.DockerConfigJsonKey: auth},
	}
	s.Labels[manifests.LabelCanonicalizedSecret] = ""
	if original != "" {
		s.Labels[manifests.LabelOriginalSecretName] = manifests.LabelValue(original)
	}
	return input{name: dir, path: dir, source: secretVolume(s.Name, false), objects: []metav1.Object{s}}
}

func (in Input) configMap(prefix, dir string, data map[string]string) input {
	c := &corev1.ConfigMap{ObjectMeta: in.meta(objectName(prefix, in.Build.Name)), Data: data}
	return input{name: dir, path: dir, objects: []metav1.Object{c}, source: corev1.VolumeSource{
		ConfigMap: &corev1.ConfigMapVolumeSource{LocalObjectReference: named(c)}}}
}

func secretVolume(name string, optional bool) corev1.VolumeSource {
	source := &corev1.SecretVolumeSource{SecretName: name, DefaultMode: new(secretMode)}
	if optional {
		source.Optional = new(true)
	}
	return corev1.VolumeSource{Secret: source}
}

// input shows an object that others keep in the namespace.
func (m Mount) input(index string) input {
	source := secretVolume(m.Secret, true)
	if m.Secret == "" {
		source = corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{
			LocalObjectReference: corev1.LocalObjectReference{Name: m.ConfigMap}, Optional: new(true)}}
	}
	return input{name: "mount-" + index, path: DirMounts + "/" + index, source: source}
}

// meta names, labels and owns an object.
func (in Input) meta(name string) metav1.ObjectMeta {
	b := in.Build
	return metav1.ObjectMeta{
		Name: name, Namespace: in.Options.Namespace, Labels: buildLabels(b, in.Config),
		Annotations: map[string]string{manifests.LabelMachineOSBuild: b.Name,
			manifests.LabelMachineOSConfig: in.Config.Name},
		OwnerReferences: []metav1.OwnerReference{{
			APIVersion: mcfgv1.GroupVersion.String(), Kind: "MachineOSBuild", Name: b.Name, UID: b.UID,
			Controller: new(true), BlockOwnerDeletion: new(true),
		}},
	}
}

// podMeta labels pods as the other objects; they are the Job's.
func (in Input) podMeta() metav1.ObjectMeta {
	meta := in.meta("")
	meta.Namespace, meta.OwnerReferences = "", nil
	return meta
}

// buildLabels are on every object of a build.
func buildLabels(b *mcfgv1.MachineOSBuild, c *mcfgv1.MachineOSConfig) map[string]string {
	labels := machineosbuild.Labels(c.Spec.MachineConfigPool.Name, c.Name, b.Spec.MachineConfig.Name)
	labels[manifests.LabelEphemeralBuildObject] = ""
	if b.Annotations[manifests.AnnotationClaimed] != "" { // MCO follows and cleans up what has this label, too
		delete(labels, manifests.LabelOnClusterLayering)
	}
	labels[cluster.LabelManagedBy], labels[cluster.LabelPartOf] = cluster.ManagedBy, cluster.ManagedBy
	labels[manifests.LabelMachineOSBuild] = manifests.LabelValue(b.Name)
	return labels
}

// coreGroup stands for Kubernetes' group without a name: the API refuses an empty one in relatedObjects (openshift/api
// machineconfiguration/v1, ObjectReference.group: a DNS subdomain).
const coreGroup = "core"

// Related lists the objects as a MachineOSBuild's status names them, in the API's order of keys: by resource and name.
func (o Objects) Related() []mcfgv1.ObjectReference {
	var out []mcfgv1.ObjectReference
	for _, c := range o.ConfigMaps {
		out = append(out, mcfgv1.ObjectReference{Group: coreGroup, Resource: "configmaps", Namespace: c.Namespace,
			Name: c.Name})
	}
	for _, s := range o.Secrets {
		out = append(out, mcfgv1.ObjectReference{Group: coreGroup, Resource: "secrets", Namespace: s.Namespace,
			Name: s.Name})
	}
	return out
}

// Builder is the reference to the Job for a MachineOSBuild's status.
func (o Objects) Builder() *mcfgv1.MachineOSBuilderReference {
	return &mcfgv1.MachineOSBuilderReference{
		ImageBuilderType: mcfgv1.JobBuilder,
		Job: &mcfgv1.ObjectReference{Group: batchv1.GroupName, Resource: "jobs", Namespace: o.Job.Namespace,
			Name: o.Job.Name},
	}
}

// architecture is the part of a platform behind the slash.
func architecture(platform, own string) string {
	_, arch, _ := strings.Cut(platform, "/")
	arch, _, _ = strings.Cut(arch, "/") // without a variant
	return cmp.Or(arch, own)
}
