package nodeconf

import (
	"maps"
	"reflect"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"dayone.dev/dayone/installconfig/report"
	"dayone.dev/dayone/installconfig/strict"
)

// kubeletShape is what is inside of those kubeletFields that hold more than text or truth (kubelet.config.k8s.io/
// v1beta1).
type kubeletShape struct {
	AllowedUnsafeSysctls   []string `json:"allowedUnsafeSysctls"`
	EnforceNodeAllocatable []string `json:"enforceNodeAllocatable"`
	TLSCipherSuites        []string `json:"tlsCipherSuites"`

	CPUManagerPolicyOptions      map[string]string `json:"cpuManagerPolicyOptions"`
	TopologyManagerPolicyOptions map[string]string `json:"topologyManagerPolicyOptions"`
	EvictionHard                 map[string]string `json:"evictionHard"`
	EvictionMinimumReclaim       map[string]string `json:"evictionMinimumReclaim"`
	EvictionSoft                 map[string]string `json:"evictionSoft"`
	EvictionSoftGracePeriod      map[string]string `json:"evictionSoftGracePeriod"`
	KubeReserved                 map[string]string `json:"kubeReserved"`
	SystemReserved               map[string]string `json:"systemReserved"`
	ReservedMemory               []struct {
		NUMANode int32                        `json:"numaNode"`
		Limits   map[string]resource.Quantity `json:"limits"`
	} `json:"reservedMemory"`

	CPUCFSQuotaPeriod                metav1.Duration `json:"cpuCFSQuotaPeriod"`
	CPUManagerReconcilePeriod        metav1.Duration `json:"cpuManagerReconcilePeriod"`
	EvictionPressureTransitionPeriod metav1.Duration `json:"evictionPressureTransitionPeriod"`
	ImageMinimumGCAge                metav1.Duration `json:"imageMinimumGCAge"`
	NodeStatusReportFrequency        metav1.Duration `json:"nodeStatusReportFrequency"`
	NodeStatusUpdateFrequency        metav1.Duration `json:"nodeStatusUpdateFrequency"`
	ShutdownGracePeriod              metav1.Duration `json:"shutdownGracePeriod"`
	ShutdownGracePeriodCriticalPods  metav1.Duration `json:"shutdownGracePeriodCriticalPods"`
	StreamingConnectionIdleTimeout   metav1.Duration `json:"streamingConnectionIdleTimeout"`
	SyncFrequency                    metav1.Duration `json:"syncFrequency"`
	VolumeStatsAggPeriod             metav1.Duration `json:"volumeStatsAggPeriod"`

	ContainerLogMaxFiles        int32 `json:"containerLogMaxFiles"`
	EventBurst                  int32 `json:"eventBurst"`
	EventRecordQPS              int32 `json:"eventRecordQPS"`
	EvictionMaxPodGracePeriod   int32 `json:"evictionMaxPodGracePeriod"`
	ImageGCHighThresholdPercent int32 `json:"imageGCHighThresholdPercent"`
	ImageGCLowThresholdPercent  int32 `json:"imageGCLowThresholdPercent"`
	KubeAPIBurst                int32 `json:"kubeAPIBurst"`
	KubeAPIQPS                  int32 `json:"kubeAPIQPS"`
	MaxOpenFiles                int64 `json:"maxOpenFiles"`
	MaxParallelImagePulls       int32 `json:"maxParallelImagePulls"`
	MaxPods                     int32 `json:"maxPods"`
	NodeStatusMaxImages         int32 `json:"nodeStatusMaxImages"`
	PodPidsLimit                int64 `json:"podPidsLimit"`
	PodsPerCore                 int32 `json:"podsPerCore"`
	RegistryBurst               int32 `json:"registryBurst"`
	RegistryPullQPS             int32 `json:"registryPullQPS"`
}

// kubeletKeys are the keys of those maps of which the kubelet takes no others: it would not start.
func kubeletKeys() map[string][]string {
	reserved := []string{"cpu", "ephemeral-storage", "memory", "pid"}
	signals := []string{"allocatableMemory.available", "containerfs.available", "containerfs.inodesFree",
		"imagefs.available", "imagefs.inodesFree", "memory.available", "nodefs.available", "nodefs.inodesFree",
		"pid.available"}
	return map[string][]string{"kubeReserved": reserved, "systemReserved": reserved, "evictionHard": signals,
		"evictionMinimumReclaim": signals, "evictionSoft": signals, "evictionSoftGracePeriod": signals}
}

// checkShapes refuses what the kubelet could not read inside of its fields: it would not start.
func checkShapes(raw []byte, fields map[string]any, at placer, bad *report.Report) {
	var root yaml.Node
	if yaml.Unmarshal(raw, &root) != nil || len(root.Content) != 1 { // JSON is YAML
		return
	}
	for _, f := range strict.Check(root.Content[0], reflect.TypeFor[kubeletShape](), "", strict.Options{}) {
		if f.Rule != strict.RuleUnknown || strings.ContainsAny(f.Path, ".[") { // the fields themselves are checked already
			bad.Errorf(at("spec.kubeletConfig."+f.Path, "kubelet-field", f.Next), "%s", f.Message)
		}
	}
	keys := kubeletKeys()
	for _, name := range slices.Sorted(maps.Keys(keys)) {
		have, _ := fields[name].(map[string]any)
		for _, key := range slices.Sorted(maps.Keys(have)) {
			if !slices.Contains(keys[name], key) {
				next := report.DidYouMean(key, keys[name], "known here: "+strings.Join(keys[name], ", "))
				bad.Errorf(at("spec.kubeletConfig."+name+"["+key+"]", "kubelet-field", next), "the kubelet knows no %s", key)
			}
		}
	}
}
