package nodesettings

import (
	"fmt"
	"slices"
	"strings"

	configv1 "github.com/openshift/api/config/v1"
	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"

	"dayone.dev/dayone/installconfig"
	"dayone.dev/dayone/installconfig/report"
	"dayone.dev/dayone/manifests"
	"dayone.dev/dayone/manifests/machineconfig"
)

// mirrorSetName is the name of the ImageDigestMirrorSet.
const mirrorSetName = "install-config"

// configName is the name of a pool's MachineConfig. It comes first in the order in which a pool's MachineConfigs are
// merged, so that the user's own count where both write a file.
func configName(pool string) string { return "00-" + pool + "-install-config" }

// worker is the pool whose MachineConfigs custom pools take over.
const worker = "worker"

// Objects are those that bring the settings to the nodes of these pools. A pool that takes over another one's
// MachineConfigs gets none of its own. A pool that no such MachineConfig can reach is in the findings.
func Objects(n installconfig.NodeSettings, pools []manifests.Item[*mcfgv1.MachineConfigPool]) (*manifests.Set,
	error) {
	set := &manifests.Set{}
	origin := manifests.Origin{File: installconfig.FileName}
	if m := mirrorSet(n.Mirrors); m != nil {
		set.IDMSs = append(set.IDMSs, manifests.Item[*configv1.ImageDigestMirrorSet]{Object: m, Origin: origin})
	}
	seen := map[string]bool{}
	for _, p := range pools {
		name := p.Object.Name
		config := settingsOf(n, name)
		if seen[name] || config.empty() {
			continue
		}
		seen[name] = true
		switch own, inherits := takes(p.Object, name), name != worker && takes(p.Object, worker); {
		case inherits && len(config.kernelArguments) == 0:
		case !own && !inherits:
			set.Findings = append(set.Findings, unreached(p))
		default:
			object, err := config.object(name)
			if err != nil {
				return nil, err
			}
			set.MachineConfigs = append(set.MachineConfigs,
				manifests.Item[*mcfgv1.MachineConfig]{Object: object, Origin: origin})
		}
	}
	return set, nil
}

// takes says whether a pool takes the MachineConfigs of a role.
func takes(p *mcfgv1.MachineConfigPool, role string) bool {
	selector, err := metav1.LabelSelectorAsSelector(p.Spec.MachineConfigSelector)
	return err == nil && selector.Matches(labels.Set{manifests.LabelRole: role})
}

func unreached(p manifests.Item[*mcfgv1.MachineConfigPool]) report.Finding {
	at := p.Origin.At("spec.machineConfigSelector", "settings-not-selected")
	at.Severity = report.Warning
	at.Message = fmt.Sprintf("pool %s gets neither pull secret nor other settings of %s: it selects MachineConfigs "+
		"neither of its own name nor of %s", p.Object.Name, installconfig.FileName, worker)
	at.Next = "select " + manifests.LabelRole + ": " + p.Object.Name + ", too"
	return at
}

// mirrorSet is nil without mirrors.
func mirrorSet(sources []installconfig.MirrorSource) *configv1.ImageDigestMirrorSet {
	if len(sources) == 0 {
		return nil
	}
	out := &configv1.ImageDigestMirrorSet{
		TypeMeta:   metav1.TypeMeta{APIVersion: configv1.GroupVersion.String(), Kind: "ImageDigestMirrorSet"},
		ObjectMeta: metav1.ObjectMeta{Name: mirrorSetName},
	}
	for _, s := range sources {
		m := configv1.ImageDigestMirrors{Source: s.Source}
		if s.Never {
			m.MirrorSourcePolicy = configv1.NeverContactSource
		}
		for _, mirror := range s.Mirrors {
			m.Mirrors = append(m.Mirrors, configv1.ImageMirror(mirror))
		}
		out.Spec.ImageDigestMirrors = append(out.Spec.ImageDigestMirrors, m)
	}
	return out
}

// object is the MachineConfig of a pool.
func (c config) object(pool string) (*mcfgv1.MachineConfig, error) {
	raw, err := machineconfig.Encode(c.ignition)
	if err != nil {
		return nil, fmt.Errorf("write MachineConfig %s: %w", configName(pool), err)
	}
	return &mcfgv1.MachineConfig{
		TypeMeta:   metav1.TypeMeta{APIVersion: mcfgv1.GroupVersion.String(), Kind: "MachineConfig"},
		ObjectMeta: metav1.ObjectMeta{Name: configName(pool), Labels: map[string]string{manifests.LabelRole: pool}},
		Spec: mcfgv1.MachineConfigSpec{Config: runtime.RawExtension{Raw: raw}, FIPS: c.fips,
			KernelArguments: c.kernelArguments},
	}, nil
}

// ProxyVariables are the variables of the environment that lead requests through the proxies, as NAME=value in order of
// names. Programs read one spelling or the other.
func ProxyVariables(p installconfig.Proxy) []string {
	var out []string
	for name, value := range map[string]string{"http_proxy": p.HTTP, "https_proxy": p.HTTPS, "no_proxy": p.No} {
		if value != "" {
			out = append(out, name+"="+value, strings.ToUpper(name)+"="+value)
		}
	}
	slices.Sort(out)
	return out
}
