package render

import (
	"path"
	"slices"
	"strings"

	ign35 "github.com/coreos/ignition/v2/config/v3_5/types"
	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"dayone.dev/dayone/installconfig/report"
	"dayone.dev/dayone/manifests"
	"dayone.dev/dayone/manifests/machineconfig"
	"dayone.dev/dayone/manifests/render/mirrors"
)

// imagePolicies refuses the kind by which MCO has CRI-O verify the images of a namespace: nothing is made of it here,
// and nodes that verify nothing are not what its user wants.
func imagePolicies(set *manifests.Set) []report.Finding {
	var out report.Report
	for _, item := range set.Skipped {
		o := item.Object
		if !strings.HasPrefix(o.APIVersion, "config.openshift.io/") || o.Kind != "ImagePolicy" {
			continue
		}
		at := item.Origin.At("", "image-policy")
		at.Next = "write a ClusterImagePolicy, which holds for all namespaces"
		out.Errorf(at, "ImagePolicy %s is not supported: no node would verify its images", o.Name)
	}
	return out.Findings
}

// registriesName is the component with a pool's mirrors and policies (MCO).
func registriesName(pool string) string { return "99-" + pool + "-generated-registries" }

const registriesDir = "/etc/containers/registries.d/"

// ownFile is a file of a MachineConfig.
type ownFile struct {
	of   component
	path string
	data []byte
	late bool // it comes after the generated component, and replaces what that has
}

// ownFiles are a pool's policy.json and files of registries.d, in the order in which they are merged.
func ownFiles(set *manifests.Set, p pool) (out []ownFile) {
	generated := component{Object: &mcfgv1.MachineConfig{ObjectMeta: metav1.ObjectMeta{
		Name: registriesName(p.Object.Name), Labels: map[string]string{manifests.LabelRole: p.Object.Name}}}}
	all, err := matching(p.Object, append(slices.Clone(set.MachineConfigs), generated))
	if err != nil {
		return nil // the selection says why
	}
	late := false
	for _, c := range all {
		if c.Object == generated.Object {
			late = true
		}
		config, err := machineconfig.Parse(c.Object.Spec.Config.Raw)
		if err != nil || c.Object.Name == generated.Object.Name {
			continue // the merge says why
		}
		for _, f := range config.Storage.Files {
			if at := path.Clean(f.Path); at == mirrors.PolicyPath || strings.HasPrefix(at, registriesDir) {
				out = append(out, ownFile{c, at, contentsOf(f), late})
			}
		}
	}
	return out
}

// place says of which MachineConfig findings are that name no file.
func (f ownFile) place(found []report.Finding) []report.Finding {
	for i := range found {
		if found[i].File == "" {
			at := f.of.Origin.At("spec.config.storage.files", found[i].Rule)
			found[i].File, found[i].Document, found[i].Line, found[i].Path = at.File, at.Document, at.Line, at.Path
		}
	}
	return found
}

// contentsOf is nil for a file that the node fetches: the merge says what is wrong with others.
func contentsOf(f ign35.File) []byte {
	data, err := machineconfig.Contents(f.Contents)
	if err != nil {
		return nil
	}
	return data
}

// policyOf gives the policy.json that image policies are merged into. It refuses files that would undo the generated
// ones, or that break every pull on the nodes.
func policyOf(own []ownFile, generated []mirrors.File) (policy ownFile, found []report.Finding) {
	var out report.Report
	var namespaces []string
	for _, f := range generated {
		if f.Path == mirrors.AttachmentsPath {
			namespaces, _ = mirrors.Namespaces(f.Data) // it was written by this program
		}
	}
	for _, f := range own {
		at := f.of.Origin.At("spec.config.storage.files", "image-policy")
		switch {
		case f.path == mirrors.PolicyPath && f.late, f.path == mirrors.AttachmentsPath:
			at.Next = "give the MachineConfig a name that comes before 99-POOL-generated-registries; the policies are merged " +
				"into its policy.json then"
			out.Errorf(at, "MachineConfig %s replaces %s, which is made of ClusterImagePolicies", f.of.Object.Name, f.path)
		case f.path == mirrors.PolicyPath:
			policy = f
		case strings.HasSuffix(f.path, ".yaml"):
			names, err := mirrors.Namespaces(f.data)
			if err != nil {
				continue // as without image policies
			}
			for _, n := range names {
				if slices.Contains(namespaces, n) {
					at.Next = "remove it from that file: the ClusterImagePolicy sets use-sigstore-attachments for it"
					out.Errorf(at, "MachineConfig %s: %s is about %s, and so is %s: nodes could pull nothing", f.of.Object.Name,
						f.path, n, mirrors.AttachmentsPath)
				}
			}
		}
	}
	return policy, out.Findings
}
