package preflight

import (
	"slices"
	"strings"

	ign35 "github.com/coreos/ignition/v2/config/v3_5/types"
	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"dayone.dev/dayone/manifests"
	"dayone.dev/dayone/manifests/machineconfig"
)

// templateFiles are the files that MCO's own MachineConfigs write, some on one platform only, by path or, where it ends
// in a slash, by folder. Source: MCO 7ff337a4, templates/ and the files of its kubelet and runtime controllers.
func templateFiles() []string {
	return []string{
		"/etc/NetworkManager/", "/etc/audit/rules.d/mco-audit-quiet-containers.rules", "/etc/containers/policy.json",
		"/etc/containers/registries.conf", "/etc/containers/registries.d/sigstore-registries.yaml",
		"/etc/containers/storage.conf", "/etc/crio/crio.conf.d/00-default", "/etc/dnsmasq.conf",
		"/etc/docker/certs.d/.create", "/etc/keepalived/monitor.conf", "/etc/kubernetes/",
		"/etc/machine-config-daemon/", "/etc/mco/proxy.env", "/etc/modules-load.d/iptables.conf", "/etc/nmstate/",
		"/etc/node-sizing-enabled.env", "/etc/pki/ca-trust/source/anchors/openshift-config-user-ca-bundle.crt",
		"/etc/sudoers.d/hacluster-taint", "/etc/sysctl.d/arp.conf", "/etc/sysctl.d/enable-userfaultfd.conf",
		"/etc/sysctl.d/gc-thresh.conf", "/etc/sysctl.d/inotify.conf", "/etc/sysctl.d/vm-max-map.conf",
		"/etc/systemd/system.conf.d/10-default-env-godebug.conf", "/etc/systemd/system.conf.d/10-default-timeout-stop.conf",
		"/etc/systemd/system.conf.d/kubelet-cgroups.conf", "/etc/systemd/system/kubelet.service.d/20-logging.conf",
		"/etc/tmpfiles.d/cleanup-cni.conf", "/opt/libexec/", "/usr/local/bin/", "/usr/local/sbin/",
		"/var/lib/kubelet/config.json", "/var/lib/mco/", "/var/lib/pacemaker/alerts/",
	}
}

// brought stand for the MachineConfigs that MCO brings itself for every pool: its templates by role, which custom pools
// have from the worker, and its kubelet configs by pool. Of these, only names and labels are known here, and which
// files they write: a user's MachineConfig may change such a file without giving contents.
func brought(set *manifests.Set) []manifests.Item[*mcfgv1.MachineConfig] {
	var out []manifests.Item[*mcfgv1.MachineConfig]
	add := func(name, role string, config []byte) {
		out = append(out, manifests.NewItem(&mcfgv1.MachineConfig{TypeMeta: metav1.TypeMeta{
			APIVersion: mcfgv1.GroupVersion.String(), Kind: "MachineConfig"},
			ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{manifests.LabelRole: role}},
			Spec:       mcfgv1.MachineConfigSpec{Config: runtime.RawExtension{Raw: config}}}))
	}
	files := changedTemplates(set)
	for _, role := range []string{"master", "worker"} {
		add("00-"+role, role, files)
	}
	for _, p := range set.Pools {
		add("97-"+p.Object.Name+"-generated-kubelet", p.Object.Name, nil)
	}
	return out
}

// changedTemplates is a config with those of MCO's files that users change without giving contents, nil without any.
func changedTemplates(set *manifests.Set) []byte {
	config := ign35.Config{Ignition: ign35.Ignition{Version: machineconfig.Version}}
	for _, item := range set.MachineConfigs {
		users, err := machineconfig.Parse(item.Object.Spec.Config.Raw)
		if err != nil {
			continue // invalidIgnition reports it
		}
		for _, f := range users.Storage.Files {
			known := slices.ContainsFunc(config.Storage.Files, func(have ign35.File) bool { return have.Path == f.Path })
			if f.Contents.Source != nil || known || !isTemplate(f.Path) {
				continue
			}
			config.Storage.Files = append(config.Storage.Files, ign35.File{Node: ign35.Node{Path: f.Path},
				FileEmbedded1: ign35.FileEmbedded1{Contents: machineconfig.Inline(nil)}})
		}
	}
	raw, err := machineconfig.Encode(config)
	if err != nil || len(config.Storage.Files) == 0 {
		return nil
	}
	return raw
}

func isTemplate(path string) bool {
	return slices.ContainsFunc(templateFiles(), func(known string) bool {
		return path == known || strings.HasSuffix(known, "/") && strings.HasPrefix(path, known)
	})
}
