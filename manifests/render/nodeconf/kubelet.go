package nodeconf

import (
	"encoding/json"
	"fmt"
	"maps"

	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"

	"dayone.dev/dayone/installconfig/report"
	"dayone.dev/dayone/manifests"
)

// Paths of the kubelet's drop-ins. The directory is what --config-dir of the kubelet must name.
const (
	kubeletDropIn  = "/etc/kubernetes/kubelet.conf.d/99-kubeletconfig.conf"
	kubeletLogging = "/etc/systemd/system/kubelet.service.d/20-logging.conf"
	kubeletSizing  = "/etc/node-sizing-enabled.env"
)

// nodeSizing is the file that the unit kubelet-auto-node-size.service reads: whether it computes what the node keeps
// for the system, and what the node keeps where it does not (MCO, pkg/controller/kubelet-config/helpers.go).
const nodeSizing = "NODE_SIZING_ENABLED=%t\nSYSTEM_RESERVED_MEMORY=1Gi\nSYSTEM_RESERVED_CPU=500m\n" +
	"SYSTEM_RESERVED_ES=1Gi\n"

// maxLogLevel is the most verbose level of the kubelet's log (MCO, pkg/controller/kubelet-config/helpers.go).
const maxLogLevel = 10

// File is one file for the nodes, mode 0644.
type File struct {
	Path string
	Data []byte
}

// reservedFields are fields that the platform sets and a KubeletConfig must not (MCO,
// pkg/controller/kubelet-config/helpers.go).
func reservedFields() []string {
	return []string{"cgroupDriver", "clusterDNS", "clusterDomain", "failSwapOn", "featureGates", "memorySwap",
		"staticPodPath", "systemReservedCgroup"}
}

// placer makes a finding's place in one object: the path of the field, the rule, and what to do next.
type placer func(path, rule, next string) report.Finding

// Kubelet returns the drop-ins of one KubeletConfig. What is not supported is refused by name.
func Kubelet(item manifests.Item[*mcfgv1.KubeletConfig]) ([]File, []report.Finding, error) {
	var (
		bad  report.Report
		spec = item.Object.Spec
		out  []File
	)
	at := placer(func(path, rule, next string) report.Finding {
		place := item.Origin.At(path, rule)
		place.Next = next
		return place
	})
	fields, ok := kubeletSettings(spec, at, &bad)
	if !ok {
		return nil, bad.Findings, nil
	}
	out = append(out, sizing(spec, fields, at, &bad)...)
	if level := spec.LogLevel; level != nil {
		if *level < 0 || *level > maxLogLevel {
			bad.Errorf(at("spec.logLevel", "kubelet-log-level", "use 0 to 10"), "log level %d is out of range", *level)
		}
		out = append(out, File{kubeletLogging, fmt.Appendf(nil, "[Service]\nEnvironment=\"KUBELET_LOG_LEVEL=%d\"\n", *level)})
	}
	if spec.TLSSecurityProfile != nil {
		set, found := tlsSettings(spec.TLSSecurityProfile, at)
		bad.Add(found...)
		maps.Copy(set, fields) // the kubelet's own fields say more than the profile, as in MCO
		fields = set
	}
	if bad.Err() != nil || len(fields) == 0 {
		return out, bad.Findings, nil
	}
	file, err := dropIn(kubeletDropIn, fields)
	if err != nil {
		return nil, nil, err
	}
	return append(out, file), bad.Findings, nil
}

// kubeletSettings reads and checks spec.kubeletConfig; not ok: it is no object.
func kubeletSettings(spec mcfgv1.KubeletConfigSpec, at placer, bad *report.Report) (map[string]any, bool) {
	var fields map[string]any
	if spec.KubeletConfig == nil || len(spec.KubeletConfig.Raw) == 0 {
		return nil, true
	}
	if err := json.Unmarshal(spec.KubeletConfig.Raw, &fields); err != nil {
		bad.Errorf(at("spec.kubeletConfig", "type", "write it as an object with the kubelet's fields"), "is no object")
		return nil, false
	}
	delete(fields, "apiVersion")
	delete(fields, "kind")
	checkFields(spec.KubeletConfig.Raw, fields, at, bad)
	return fields, true
}

// sizing makes the file that lets nodes compute what they keep for the system. Who wants that and fixes the amounts,
// too, is refused, as by MCO.
func sizing(spec mcfgv1.KubeletConfigSpec, fields map[string]any, at placer, bad *report.Report) []File {
	if spec.AutoSizingReserved == nil {
		return nil
	}
	const path = "spec.autoSizingReserved"
	reserved, _ := fields["systemReserved"].(map[string]any)
	if *spec.AutoSizingReserved && len(reserved) > 0 {
		bad.Errorf(at(path, "kubelet-auto-sizing", "remove one of the two"),
			"autoSizingReserved and kubeletConfig.systemReserved cannot be set together")
		return nil
	}
	bad.Warnf(at(path, "kubelet-auto-sizing", "see that the nodes' OS or a MachineConfig has the unit"),
		"%s is read by the unit kubelet-auto-node-size.service alone: on nodes without that unit the field has no effect",
		kubeletSizing)
	return []File{{kubeletSizing, fmt.Appendf(nil, nodeSizing, *spec.AutoSizingReserved)}}
}

// dropIn writes fields of KubeletConfiguration as a drop-in.
func dropIn(path string, fields map[string]any) (File, error) {
	fields["apiVersion"], fields["kind"] = "kubelet.config.k8s.io/v1beta1", "KubeletConfiguration"
	raw, err := manifests.Marshal(fields)
	if err != nil {
		return File{}, fmt.Errorf("write kubelet drop-in: %w", err)
	}
	return File{path, raw}, nil
}
