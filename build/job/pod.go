package job

import (
	"maps"
	"runtime"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
)

// Values of the builder's flag --user-namespace.
const (
	// UserNamespaceShift makes the builder run in a user namespace of its own, whose root is no user of the node.
	UserNamespaceShift = "shift"
	// UserNamespaceNone leaves it in the pod's.
	UserNamespaceNone = "none"
)

// Program is the builder's name in its image.
const Program = "machine-os-builder"

// Names of volumes for scratch space.
const (
	volumeWork = "work"
	volumeTmp  = "tmp"
)

// job makes the Job: one pod at a time, a user's fault ends it at once, a disrupted pod does not count.
func (in Input) job(inputs []input) *batchv1.Job {
	o := in.Options
	seconds := int64(o.Deadline.Seconds())
	return &batchv1.Job{
		ObjectMeta: in.meta(JobName(in.Build.Name)),
		Spec: batchv1.JobSpec{
			Completions: new(int32(1)), Parallelism: new(int32(1)),
			BackoffLimit: new(o.BackoffLimit), ActiveDeadlineSeconds: &seconds,
			PodReplacementPolicy: new(batchv1.Failed), // never two builders of one build
			PodFailurePolicy: &batchv1.PodFailurePolicy{Rules: []batchv1.PodFailurePolicyRule{
				{
					Action: batchv1.PodFailurePolicyActionFailJob,
					OnExitCodes: &batchv1.PodFailurePolicyOnExitCodesRequirement{ContainerName: new(Container),
						Operator: batchv1.PodFailurePolicyOnExitCodesOpIn, Values: []int32{ExitFinal}},
				},
				{
					Action: batchv1.PodFailurePolicyActionIgnore,
					OnPodConditions: []batchv1.PodFailurePolicyOnPodConditionsPattern{{Type: corev1.DisruptionTarget,
						Status: corev1.ConditionTrue}},
				},
			}},
			Template: corev1.PodTemplateSpec{ObjectMeta: in.podMeta(), Spec: in.pod(inputs)},
		},
	}
}

func (in Input) pod(inputs []input) corev1.PodSpec {
	o := in.Options
	selector := map[string]string{corev1.LabelOSStable: "linux",
		corev1.LabelArchStable: architecture(in.Request.Platform, runtime.GOARCH)}
	maps.Copy(selector, o.NodeSelector)
	var pulls []corev1.LocalObjectReference
	for _, name := range o.ImagePullSecrets {
		pulls = append(pulls, corev1.LocalObjectReference{Name: name})
	}
	volumes := make([]corev1.Volume, 0, len(inputs)+2)
	mounts := make([]corev1.VolumeMount, 0, len(inputs)+3)
	for _, i := range inputs {
		volumes = append(volumes, corev1.Volume{Name: i.name, VolumeSource: i.source})
		mounts = append(mounts, corev1.VolumeMount{Name: i.name, MountPath: DirInput + "/" + i.path, ReadOnly: true})
	}
	scratch := corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{SizeLimit: o.WorkLimit}}
	spec := corev1.PodSpec{
		RestartPolicy:                 corev1.RestartPolicyNever,
		ServiceAccountName:            o.ServiceAccount,
		AutomountServiceAccountToken:  new(false),
		EnableServiceLinks:            new(false),
		TerminationGracePeriodSeconds: new(int64(grace)),
		ImagePullSecrets:              pulls,
		NodeSelector:                  selector,
		PriorityClassName:             o.PriorityClass,
		Volumes: append(volumes, corev1.Volume{Name: volumeWork, VolumeSource: scratch},
			corev1.Volume{Name: volumeTmp, VolumeSource: scratch}),
	}
	if o.PodUserNamespace {
		spec.HostUsers = new(false)
	}
	userNamespace := UserNamespaceShift
	if o.Privileged || o.PodUserNamespace {
		userNamespace = UserNamespaceNone
	}
	spec.Containers = []corev1.Container{{
		Name: Container, Image: o.BuilderImage, ImagePullPolicy: corev1.PullIfNotPresent,
		Command:                  []string{Program},
		Args:                     []string{"build", "--user-namespace=" + userNamespace},
		TerminationMessagePolicy: corev1.TerminationMessageReadFile,
		TerminationMessagePath:   corev1.TerminationMessagePathDefault,
		Resources:                o.Resources,
		SecurityContext:          o.security(),
		VolumeMounts: append(mounts,
			corev1.VolumeMount{Name: volumeWork, MountPath: DirWork},
			corev1.VolumeMount{Name: volumeTmp, MountPath: "/tmp"},
			corev1.VolumeMount{Name: volumeTmp, MountPath: "/var/tmp"}, // buildah's library wants it
		),
	}}
	return spec
}

// security gives the least with which the builder works. Without more than that its root has two capabilities: to write
// the id mapping of a user namespace, in which everything else happens.
func (o Options) security() *corev1.SecurityContext {
	c := &corev1.SecurityContext{
		RunAsUser: new(int64(0)), RunAsGroup: new(int64(0)), ReadOnlyRootFilesystem: new(true),
	}
	if o.SELinuxType != "" {
		c.SELinuxOptions = &corev1.SELinuxOptions{Type: o.SELinuxType}
	}
	if o.SeccompLocalhost != "" {
		c.SeccompProfile = &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeLocalhost,
			LocalhostProfile: new(o.SeccompLocalhost)}
	}
	if o.AppArmorLocalhost != "" {
		c.AppArmorProfile = &corev1.AppArmorProfile{Type: corev1.AppArmorProfileTypeLocalhost,
			LocalhostProfile: new(o.AppArmorLocalhost)}
	}
	switch {
	case o.Privileged:
		c.Privileged = new(true)
		return c
	case o.PodUserNamespace:
		// The pod's root is no user of the node. RUN's capabilities, buildah's default set, must be within these; SYS_ADMIN
		// is for mounts.
		c.Capabilities = &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}, Add: []corev1.Capability{
			"SYS_ADMIN", "CHOWN", "DAC_OVERRIDE", "FOWNER", "FSETID", "SETUID", "SETGID", "SETFCAP", "SETPCAP", "SYS_CHROOT",
			"KILL", "NET_BIND_SERVICE"}}
		if o.SeccompLocalhost == "" {
			c.SeccompProfile = &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault}
		}
		return c
	}
	c.AllowPrivilegeEscalation = new(false)
	c.Capabilities = &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}, Add: []corev1.Capability{"SETUID", "SETGID"}}
	return c
}
