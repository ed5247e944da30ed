package installconfig

import (
	"reflect"

	"go.yaml.in/yaml/v3"

	"dayone.dev/dayone/installconfig/report"
	"dayone.dev/dayone/installconfig/strict"
)

// installerForm is install-config.yaml as openshift-install reads it (openshift/installer, pkg/types), as far as dayone
// can judge it: what lies below one platform is the installer's.
type installerForm struct {
	APIVersion                  string              `json:"apiVersion"`
	Kind                        string              `json:"kind"`
	Metadata                    installerMetadata   `json:"metadata"`
	AdditionalTrustBundle       string              `json:"additionalTrustBundle"`
	AdditionalTrustBundlePolicy string              `json:"additionalTrustBundlePolicy"`
	SSHKey                      string              `json:"sshKey"`
	BaseDomain                  string              `json:"baseDomain"`
	Networking                  installerNetworking `json:"networking"`
	ControlPlane                installerPool       `json:"controlPlane"`
	Arbiter                     installerPool       `json:"arbiter"`
	Compute                     []installerPool     `json:"compute"`
	Platform                    installerPlatforms  `json:"platform"`
	PullSecret                  string              `json:"pullSecret"`
	Proxy                       struct {
		HTTPProxy  string `json:"httpProxy"`
		HTTPSProxy string `json:"httpsProxy"`
		NoProxy    string `json:"noProxy"`
	} `json:"proxy"`
	ImageContentSources        []installerSources `json:"imageContentSources"`
	ImageDigestSources         []installerSources `json:"imageDigestSources"`
	Publish                    string             `json:"publish"`
	OperatorPublishingStrategy struct {
		Ingress   string `json:"ingress"`
		APIServer string `json:"apiserver"`
	} `json:"operatorPublishingStrategy"`
	FIPS                bool   `json:"fips"`
	CPUPartitioningMode string `json:"cpuPartitioningMode"`
	CredentialsMode     string `json:"credentialsMode"`
	BootstrapInPlace    struct {
		InstallationDisk string `json:"installationDisk"`
	} `json:"bootstrapInPlace"`
	Capabilities struct {
		BaselineCapabilitySet         string   `json:"baselineCapabilitySet"`
		AdditionalEnabledCapabilities []string `json:"additionalEnabledCapabilities"`
	} `json:"capabilities"`
	FeatureSet        string   `json:"featureSet"`
	FeatureGates      []string `json:"featureGates"`
	OSImageStream     string   `json:"osImageStream"`
	OnClusterLayering any      `json:"onClusterLayering"`
}

type installerMetadata struct {
	Name              string            `json:"name"`
	Namespace         string            `json:"namespace"`
	Labels            map[string]string `json:"labels"`
	Annotations       map[string]string `json:"annotations"`
	CreationTimestamp any               `json:"creationTimestamp"`
}

type installerNetwork struct {
	CIDR             string `json:"cidr"`
	HostPrefix       int    `json:"hostPrefix"`
	HostSubnetLength int    `json:"hostSubnetLength"`
}

type installerNetworking struct {
	NetworkType    string `json:"networkType"`
	MachineNetwork []struct {
		CIDR string `json:"cidr"`
	} `json:"machineNetwork"`
	ClusterNetwork      []installerNetwork `json:"clusterNetwork"`
	ServiceNetwork      []string           `json:"serviceNetwork"`
	ClusterNetworkMTU   int                `json:"clusterNetworkMTU"`
	OVNKubernetesConfig struct {
		IPv4 struct {
			InternalJoinSubnet string `json:"internalJoinSubnet"`
		} `json:"ipv4"`
	} `json:"ovnKubernetesConfig"`
	MachineCIDR     string             `json:"machineCIDR"`
	Type            string             `json:"type"`
	ServiceCIDR     string             `json:"serviceCIDR"`
	ClusterNetworks []installerNetwork `json:"clusterNetworks"`
}

type installerPool struct {
	Name           string             `json:"name"`
	Replicas       *int               `json:"replicas"`
	Platform       installerPlatforms `json:"platform"`
	Hyperthreading string             `json:"hyperthreading"`
	Architecture   string             `json:"architecture"`
	Fencing        struct {
		Credentials []struct {
			HostName                string `json:"hostName"`
			Username                string `json:"username"`
			Password                string `json:"password"`
			Address                 string `json:"address"`
			CertificateVerification string `json:"certificateVerification"`
		} `json:"credentials"`
	} `json:"fencing"`
	DiskSetup []struct {
		Type        string `json:"type"`
		UserDefined any    `json:"userDefined"`
		Etcd        any    `json:"etcd"`
		Swap        any    `json:"swap"`
	} `json:"diskSetup"`
	OSImageStream string `json:"osImageStream"`
}

type installerPlatforms struct {
	AWS       map[string]any `json:"aws"`
	Azure     map[string]any `json:"azure"`
	BareMetal map[string]any `json:"baremetal"`
	External  map[string]any `json:"external"`
	GCP       map[string]any `json:"gcp"`
	IBMCloud  map[string]any `json:"ibmcloud"`
	None      struct{}       `json:"none"`
	Nutanix   map[string]any `json:"nutanix"`
	OpenStack map[string]any `json:"openstack"`
	Ovirt     map[string]any `json:"ovirt"`
	PowerVC   map[string]any `json:"powervc"`
	PowerVS   map[string]any `json:"powervs"`
	VSphere   map[string]any `json:"vsphere"`
}

type installerSources struct {
	Source       string   `json:"source"`
	Mirrors      []string `json:"mirrors"`
	SourcePolicy string   `json:"sourcePolicy"`
}

// misfits are the keys that the installer's types do not have, and values of another kind.
func misfits(root *yaml.Node) []report.Finding {
	return inFile(strict.Check(root, reflect.TypeFor[installerForm](), "", strict.Options{Null: true}))
}

// wrongKinds are the misfits that a decoder refuses, too.
func wrongKinds(root *yaml.Node) []report.Finding {
	var out []report.Finding
	for _, f := range misfits(root) {
		if f.Rule == strict.RuleType {
			out = append(out, f)
		}
	}
	return out
}

// form refuses misfits.
func form(f installerFile, rep *report.Report) {
	for _, found := range misfits(f.root) {
		if found.Rule != strict.RuleUnknown {
			rep.Add(found)
			continue
		}
		f.doubt(found, rep, found.Message)
	}
}
