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
	// CA is PEM of authorities that sign the certificates of registries; empty means the builder image's.
	CA []byte
	// RegistriesConf is a registries.conf with mirrors for images that the Containerfile names; empty means none.
	RegistriesConf string
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
	return prefix + machineosbuild.Shorten(machineOSBuild, maxJobName-len(prefix))
}

// New makes the objects of a build. Equal input gives equal objects. What is too large to be stored is refused by its
// name.
func New(in Input) (Objects, error) {
	if err := in.validate(); err != nil {
		return Objects{}, fmt.Errorf("make Job of MachineOSBuild %s: %w", in.name(), err)
	}
	in.Options = in.Options.withDefaults()
	parts, err := pack(in.Request.Config, maxPart)
	if err != nil {
		return Objects{}, fmt.Errorf("make Job of MachineOSBuild %s: %w", in.name(), err)
	}
	if len(parts) > maxParts {
		return Objects{},
			fmt.Errorf(
				"make Job of MachineOSBuild %s: rendered config %s has more than %d KiB when compressed; move large files out of the MachineConfigs into the Containerfile",
				in.name(), in.Request.Config.Name, maxParts*maxPart>>10)
	}
	m := maker{in: in}
	if err := m.inputs(parts); err != nil {
		return Objects{}, fmt.Errorf("make Job of MachineOSBuild %s: %w", in.name(), err)
	}
	m.out.Job = m.job()
	return m.out, nil
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

// maker collects the objects of one build.
type maker struct {
	in      Input
	out     Objects
	volumes []corev1.Volume
	mounts  []corev1.VolumeMount
}

// inputs makes what the pod reads. Only the Containerfile, mirrors and authorities are no secrets: a rendered config
// holds the node's pull secret, and addresses of proxies may hold a password.
func (m *maker) inputs(parts [][]byte) error {
	order := Order{MachineOSBuild: m.in.Build.Name, Request: m.in.Request, Parts: len(parts)}
	r := &order.Request
	r.Config, r.Containerfile, r.Registry = nil, "", build.Access{}
	r.Options.Mounts, r.Options.Secrets, r.Options.RegistriesConf = nil, nil, ""
	r.Options.Timeout = m.in.Options.BuilderDeadline
	for i, mount := range m.in.Mounts {
		order.Mounts = append(order.Mounts, OrderMount{Name: strconv.Itoa(i), Target: mount.Target})
	}
	raw, err := json.Marshal(order)
	if err != nil {
		return fmt.Errorf("encode order: %w", err)
	}
	if err := m.config(raw, parts); err != nil {
		return err
	}
	texts := map[string]string{FileContainerfile: m.in.Request.Containerfile}
	if m.in.RegistriesConf != "" {
		texts[FileRegistries] = m.in.RegistriesConf
	}
	if err := m.configMap("containerfile-", DirContainerfile, texts); err != nil {
		return err
	}
	if len(m.in.CA) > 0 {
		if err := m.configMap("additionaltrustbundle-", DirCA, map[string]string{FileCA: string(m.in.CA)}); err != nil {
			return err
		}
	}
	if len(m.in.PullSecret) > 0 {
		original := ""
		if s := m.in.Config.Spec.BaseImagePullSecret; s != nil {
			original = s.Name
		}
		if err := m.auth("base-", DirPull, m.in.PullSecret, original); err != nil {
			return err
		}
	}
	if err := m.auth("final-", DirPush, m.in.PushSecret, m.in.Config.Spec.RenderedImagePushSecret.Name); err != nil {
		return err
	}
	m.given()
	return nil
}

// config makes the Secrets with the order and the rendered config; one directory shows them all.
func (m *maker) config(order []byte, parts [][]byte) error {
	var sources []corev1.VolumeProjection
	for i, part := range parts {
		data := map[string][]byte{FilePart + strconv.Itoa(i): part}
		if i == 0 {
			data[FileOrder] = order
			if len(order)+len(part) > maxObject {
				return fmt.Errorf("the trust bundle and options have %d KiB; make the trust bundle smaller", len(order)>>10)
			}
		}
		s := &corev1.Secret{ObjectMeta: m.meta(objectName("config-"+strconv.Itoa(i)+"-", m.in.Build.Name)),
			Type: corev1.SecretTypeOpaque, Data: data}
		m.out.Secrets = append(m.out.Secrets, s)
		sources = append(sources,
			corev1.VolumeProjection{Secret: &corev1.SecretProjection{LocalObjectReference: corev1.LocalObjectReference{Name: s.Name}}})
	}
	m.volume(DirConfig, corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{Sources: sources,
		DefaultMode: ptr(secretMode)}})
	return nil
}

// secretMode lets the pod's own root read secrets and nobody else: not the user namespace in which RUN is root.
const secretMode = int32(0o400)

func (m *maker) auth(prefix, dir string, auth []byte, original string) error {
	s := &corev1.Secret{
		ObjectMeta: m.meta(objectName(prefix, m.in.Build.Name)), Type: corev1.SecretTypeDockerConfigJson,
		Data: map[string][]byte{corev1.DockerConfigJsonKey: auth},
	}
	if len(auth) > maxObject {
		return fmt.Errorf("registry Secret %s has more than 1 MiB", original)
	}
	s.Labels[manifests.LabelCanonicalizedSecret] = ""
	if original != "" {
		s.Labels[manifests.LabelOriginalSecretName] = machineosbuild.LabelValue(original)
	}
	m.out.Secrets = append(m.out.Secrets, s)
	m.volume(dir, corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: s.Name,
		DefaultMode: ptr(secretMode)}})
	return nil
}

func (m *maker) configMap(prefix, dir string, data map[string]string) error {
	size := 0
	for _, text := range data {
		size += len(text)
	}
	if size > maxObject {
		return fmt.Errorf("%s has %d KiB, and an object holds 1024; make it smaller", dir, size>>10)
	}
	c := &corev1.ConfigMap{ObjectMeta: m.meta(objectName(prefix, m.in.Build.Name)), Data: data}
	m.out.ConfigMaps = append(m.out.ConfigMaps, c)
	m.volume(dir, corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{LocalObjectReference: corev1.LocalObjectReference{Name: c.Name}}})
	return nil
}

// given mounts what others keep in the namespace.
func (m *maker) given() {
	for i, mount := range m.in.Mounts {
		source := corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: mount.Secret,
			DefaultMode: ptr(secretMode), Optional: ptr(true)}}
		if mount.Secret == "" {
			source = corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{LocalObjectReference: corev1.LocalObjectReference{Name: mount.ConfigMap}, Optional: ptr(true)}}
		}
		m.volumes = append(m.volumes, corev1.Volume{Name: "mount-" + strconv.Itoa(i), VolumeSource: source})
		m.mounts = append(m.mounts, corev1.VolumeMount{Name: "mount-" + strconv.Itoa(i), MountPath: DirInput + "/" +
			DirMounts + "/" + strconv.Itoa(i), ReadOnly: true})
	}
}

func (m *maker) volume(dir string, source corev1.VolumeSource) {
	m.volumes = append(m.volumes, corev1.Volume{Name: dir, VolumeSource: source})
	m.mounts = append(m.mounts, corev1.VolumeMount{Name: dir, MountPath: DirInput + "/" + dir, ReadOnly: true})
}

// meta names, labels and owns an object.
func (m *maker) meta(name string) metav1.ObjectMeta {
	b := m.in.Build
	labels := Labels(b, m.in.Config)
	return metav1.ObjectMeta{
		Name: name, Namespace: m.in.Options.Namespace, Labels: labels,
		Annotations: map[string]string{manifests.LabelMachineOSBuild: b.Name,
			manifests.LabelMachineOSConfig: m.in.Config.Name},
		OwnerReferences: []metav1.OwnerReference{{
			APIVersion: mcfgv1.GroupVersion.String(), Kind: "MachineOSBuild", Name: b.Name, UID: b.UID,
			Controller: ptr(true), BlockOwnerDeletion: ptr(true),
		}},
	}
}

// podMeta labels pods as the other objects; they are the Job's.
func (m *maker) podMeta() metav1.ObjectMeta {
	meta := m.meta("")
	meta.Namespace, meta.OwnerReferences = "", nil
	return meta
}

// Labels are on every object of a build.
func Labels(b *mcfgv1.MachineOSBuild, c *mcfgv1.MachineOSConfig) map[string]string {
	labels := machineosbuild.Labels(c.Spec.MachineConfigPool.Name, c.Name, b.Spec.MachineConfig.Name)
	labels[manifests.LabelEphemeralBuildObject] = ""
	labels[cluster.LabelManagedBy], labels[cluster.LabelPartOf] = cluster.ManagedBy, cluster.ManagedBy
	labels[manifests.LabelMachineOSBuild] = machineosbuild.LabelValue(b.Name)
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

func ptr[T any](v T) *T { return &v }
