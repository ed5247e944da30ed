package releasecontroller

import (
	"crypto/rand"
	"fmt"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"dayone.dev/dayone/manifests/assets/cluster"
)

// prefix is the name of the ConfigMap which says how far a release is followed, and of the pods' ServiceAccount; the
// objects made for one state have it as their prefix.
const prefix = cluster.ReleaseName

// Keys of the Job's Secret.
const (
	keyObjects    = "objects.json"
	keyPullSecret = "pull-secret.json"
	keySeal       = "key"
)

// Containers of the Job's pod.
const (
	// containerRender runs the release's own program.
	containerRender = "render"
	// containerSend seals what that has left.
	containerSend = "send"
)

const (
	// attempts is how often the Job tries.
	attempts = 3
	// deadline bounds all attempts, with pulling the image: the operator's own images have about 1 GB. In seconds.
	deadline = 20 * 60
	// workLimit bounds what the program writes: the memory of a volume.
	workLimit = "128Mi"
	// unprivileged is the user of the pod, as dayone's other programs have it.
	unprivileged = 65532
)

// script runs in MCO's image. The program takes only a ControllerConfig that its own version has made, and tells that
// version first of all. Its log ends with the whole ControllerConfig, so it stays in the pod; what it died of goes into
// the termination message.
const script = `raw=$(machine-config-controller bootstrap 2>&1 | sed -n 's/^.*Version: \(.*\) (.*)$/\1/p' | head -n 1)
if [ -z "$raw" ]; then
  echo "machine-config-controller does not tell its version" > "$MESSAGE"
  exit 1
fi
mkdir -p "$WORK/in" "$WORK/out"
printf %s "$raw" > "$WORK/raw"
sed "s|` + rawMarker + `|$raw|" "$IN/` + keyObjects + `" > "$WORK/in/` + keyObjects + `"
if ! machine-config-controller bootstrap --manifest-dir="$WORK/in" --dest-dir="$WORK/out" \
  --pull-secret="$IN/` + keyPullSecret + `" --payload-version="$RELEASE" > "$WORK/log" 2>&1; then
  sed -n '/^[FE]/p;/^panic/p' "$WORK/log" | head -n 3 | head -c 2000 > "$MESSAGE"
  exit 1
fi
`

func labels() map[string]string {
	return map[string]string{cluster.LabelManagedBy: cluster.ManagedBy, cluster.LabelPartOf: cluster.ManagedBy}
}

// secret is what the Job is given; owned by it, so that it goes with it.
func (in inputs) secret(job *batchv1.Job) (*corev1.Secret, error) {
	key := make([]byte, keySize)
	if _, err := rand.Read(key); err != nil {
		return nil, fmt.Errorf("make key: %w", err)
	}
	yes := true
	return &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: job.Namespace, Name: job.Name, Labels: labels(),
		OwnerReferences: []metav1.OwnerReference{{APIVersion: "batch/v1", Kind: "Job", Name: job.Name, UID: job.UID,
			Controller: &yes}}},
		Immutable: &yes,
		Data: map[string][]byte{keyObjects: in.objects, keyPullSecret: in.pullSecret,
			keySeal: key}}, nil
}

// job renders with the release's image and seals with dayone's own. Its pods have no token; they wait for the Secret,
// which is made after the Job.
func (in inputs) job(namespace, image string) *batchv1.Job {
	tries, seconds, user, yes, no := int32(attempts-1), int64(deadline), int64(unprivileged), true, false
	limit := resource.MustParse(workLimit)
	confined := &corev1.SecurityContext{AllowPrivilegeEscalation: &no,
		Capabilities: &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}}}
	from := func(volume string, keys ...string) corev1.Volume {
		source := &corev1.SecretVolumeSource{SecretName: in.name()}
		for _, key := range keys {
			source.Items = append(source.Items, corev1.KeyToPath{Key: key, Path: key})
		}
		return corev1.Volume{Name: volume, VolumeSource: corev1.VolumeSource{Secret: source}}
	}
	work := corev1.VolumeMount{Name: "work", MountPath: "/work"}
	requests := corev1.ResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("20m"),
		corev1.ResourceMemory: resource.MustParse("100Mi")}}
	spec := corev1.PodSpec{
		RestartPolicy: corev1.RestartPolicyNever, ServiceAccountName: prefix, AutomountServiceAccountToken: &no,
		EnableServiceLinks: &no, PriorityClassName: "system-cluster-critical",
		SecurityContext: &corev1.PodSecurityContext{RunAsNonRoot: &yes, RunAsUser: &user, RunAsGroup: &user,
			SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault}},
		Tolerations: []corev1.Toleration{
			{Key: "node-role.kubernetes.io/control-plane", Operator: corev1.TolerationOpExists, Effect: "NoSchedule"},
			{Key: "node-role.kubernetes.io/master", Operator: corev1.TolerationOpExists, Effect: "NoSchedule"}},
		Volumes: []corev1.Volume{from("in", keyObjects, keyPullSecret), from("key", keySeal), {Name: "work",
			VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{Medium: corev1.StorageMediumMemory,
				SizeLimit: &limit}}}},
		InitContainers: []corev1.Container{{Name: containerRender, Image: in.release.operator,
			ImagePullPolicy: corev1.PullIfNotPresent, Command: []string{"/bin/sh", "-eu", "-c", script},
			Env: []corev1.EnvVar{{Name: "IN", Value: "/in"}, {Name: "WORK", Value: "/work"},
				{Name: "MESSAGE", Value: corev1.TerminationMessagePathDefault},
				{Name: "RELEASE", Value: in.release.version}},
			Resources: requests, SecurityContext: confined,
			VolumeMounts: []corev1.VolumeMount{{Name: "in", MountPath: "/in", ReadOnly: true}, work}}},
		Containers: []corev1.Container{{Name: containerSend, Image: image, ImagePullPolicy: corev1.PullIfNotPresent,
			Command:   []string{cluster.Controller, "release-result", "--dir=/work", "--key=/key/" + keySeal},
			Resources: requests, SecurityContext: confined,
			TerminationMessagePolicy: corev1.TerminationMessageFallbackToLogsOnError,
			VolumeMounts:             []corev1.VolumeMount{{Name: "key", MountPath: "/key", ReadOnly: true}, work}}},
	}
	return &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: in.name(), Labels: labels()},
		Spec: batchv1.JobSpec{BackoffLimit: &tries, ActiveDeadlineSeconds: &seconds,
			Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels()}, Spec: spec}}}
}
