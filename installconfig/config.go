package installconfig

import (
	"strings"
	"time"
)

// Field is the top-level key of install-config.yaml that this package owns.
const Field = "onClusterLayering"

// Flow says who owns the bootstrap host.
type Flow string

const (
	// FlowStandalone: dayone owns the bootstrap host, renders, builds and serves Ignition itself.
	FlowStandalone Flow = "standalone"
	// FlowOpenShift: dayone is an add-on to an unmodified openshift-install.
	FlowOpenShift Flow = "openshift"
)

// Defaults of the fields that have one.
const (
	// DefaultLayeringDir is where MachineOSConfigs and their Secrets are read from. They must not lie in manifests/ or
	// openshift/: there the installer's own bootstrap would refuse a MachineOSConfig whose image is not built yet.
	DefaultLayeringDir = "layering"
	// defaultRegistryPort lies in the range 9000-9999 that OpenShift keeps open between hosts on every platform.
	defaultRegistryPort = 9500
	// defaultBuildTimeout bounds the build of one pool's image. It is half of the 60 minutes that the installer gives a
	// bare-metal bootstrap, so that a failed build still leaves time for a log bundle.
	defaultBuildTimeout = 30 * time.Minute
	// defaultConfigPort is the Machine Config Server's port, to which every node's pointer Ignition config leads.
	defaultConfigPort = 22623
	// DefaultHandOverDeadline is how long a hand-over with the policy deadline may take. With the build's limit it stays
	// below the 60 minutes of a bare-metal bootstrap.
	DefaultHandOverDeadline = 20 * time.Minute
	// defaultSpoolEvery bounds what is lost with a bootstrap host that vanishes; a bundle takes it about a second.
	defaultSpoolEvery = time.Minute
	// defaultBuildDisk is about four times a large OS image.
	defaultBuildDisk = Size(8 << 30)
)

// Config is the onClusterLayering field with defaults filled in.
type Config struct {
	// Enabled false keeps the field's words and installs a cluster without layering. Default: true.
	Enabled *bool `yaml:"enabled,omitempty" json:"enabled,omitempty"`
	// Flow is standalone or openshift. Default: openshift when the directory was made by openshift-install, else
	// standalone.
	Flow Flow `yaml:"flow,omitempty" json:"flow,omitempty"`
	// BaseImage names the OS image that every layered image starts from, host/namespace/name[:tag|@digest]. Required in
	// the standalone flow; in the openshift flow the release decides.
	BaseImage string `yaml:"baseImage,omitempty" json:"baseImage,omitempty"`
	// LayeringDir is the directory, relative to the install directory, of MachineOSConfigs and their Secrets. Default:
	// layering.
	LayeringDir string `yaml:"layeringDir,omitempty" json:"layeringDir,omitempty"`
	// Pools are the MachineConfigPools that get an image of their own. At least one.
	Pools []Pool `yaml:"pools" json:"pools" schema:"required,minItems=1"`
	// BootstrapRegistry says how nodes reach the registry on the bootstrap host.
	BootstrapRegistry BootstrapRegistry `yaml:"bootstrapRegistry,omitempty" json:"bootstrapRegistry"`
	// ConfigServer says how nodes reach the Ignition config server of the standalone flow.
	ConfigServer ConfigServer `yaml:"configServer,omitempty" json:"configServer,omitempty"`
	// StatusPage shows how far the bootstrap is over HTTPS.
	StatusPage StatusPage `yaml:"statusPage,omitempty" json:"statusPage,omitempty"`
	// LogSpool keeps the last log bundle of the bootstrap host on another machine, should that host vanish.
	LogSpool LogSpool `yaml:"logSpool,omitempty" json:"logSpool,omitempty"`
	// Registry is where images end up after the installation.
	Registry Registry `yaml:"registry,omitempty" json:"registry,omitempty"`
	// Build limits the image builds on the bootstrap host.
	Build Build `yaml:"build,omitempty" json:"build,omitempty"`
	// OnFailure says what a failed image build does to the installation: fail (no node of the pool gets a config, the
	// installation fails with the build's cause) or fallback (the nodes boot the base image, openshift flow only).
	// Default: fail.
	OnFailure OnFailure `yaml:"onFailure,omitempty" json:"onFailure,omitempty"`
	// SignaturePolicyFile is a containers-policy.json, relative to the install directory, that a node's image must satisfy
	// under its final name before the node boots it, whatever mirror it comes from. Keys are in it (keyData) or are files
	// that the node has (keyPath). For the standalone flow. Default: none, the digest in the node's config says enough.
	SignaturePolicyFile string `yaml:"signaturePolicyFile,omitempty" json:"signaturePolicyFile,omitempty"`
	// Signing says with which key the images that are built on the bootstrap host are signed.
	Signing Signing `yaml:"signing,omitempty" json:"signing,omitempty"`
	// FieldValidation says what becomes of keys and kinds in the manifests that nothing reads: strict (refused) or warn
	// (named; for objects of a newer API than this dayone knows). Default: strict.
	FieldValidation FieldValidation `yaml:"fieldValidation,omitempty" json:"fieldValidation,omitempty"`
	// HandOver says how the bootstrap host gives its images to the final registry before it goes.
	HandOver HandOver `yaml:"handOver,omitempty" json:"handOver,omitempty"`
}

// Signing is about the keys of a cluster's images. All files are relative to the install directory.
type Signing struct {
	// KeyFile is a private key, ECDSA on P-256 and encrypted as cosign does it, mode 0600, with a name that ends in .key.
	// Default: dayone prepare makes one in .dayone/signing.
	KeyFile string `yaml:"keyFile,omitempty" json:"keyFile,omitempty"`
	// PassphraseFile has the passphrase of keyFile, mode 0600, with a name that ends in .passphrase. Required with
	// keyFile.
	PassphraseFile string `yaml:"passphraseFile,omitempty" json:"passphraseFile,omitempty"`
	// PublicKeyFiles are public keys (PEM) whose signatures count beside those of keyFile, such as the key before.
	// Default: none.
	PublicKeyFiles []string `yaml:"publicKeyFiles,omitempty" json:"publicKeyFiles,omitempty"`
	// BaseImagePolicy is a containers-policy.json that a base image must satisfy under its own name before anything is
	// built from it, on the bootstrap host and in the cluster; keys are in it (keyData). A ClusterImagePolicy for the
	// base's name counts in any case. Default: none, and the provenance says that nobody has vouched for the base.
	BaseImagePolicy string `yaml:"baseImagePolicy,omitempty" json:"baseImagePolicy,omitempty"`
	// RequireOnNodes lets nodes take images of the pools' repositories only if one of the keys has signed them, from the
	// first boot on: dayone manifests writes a ClusterImagePolicy. Images that the cluster builds later must be signed,
	// too, as dayone's builder does with the key that is handed over. Default: true in the standalone flow, false in the
	// openshift flow, where the Machine Config Operator builds images without signatures.
	RequireOnNodes *bool `yaml:"requireOnNodes,omitempty" json:"requireOnNodes,omitempty"`
}

// Required says that nodes take signed images only. A directory that an earlier version has prepared does not say it.
func (s Signing) Required() bool { return s.RequireOnNodes != nil && *s.RequireOnNodes }

// On says whether layering is switched on.
func (c Config) On() bool { return c.Enabled == nil || *c.Enabled }

// OnFailure says what a failed build does to the installation.
type OnFailure string

const (
	// OnFailureFail keeps the nodes waiting and lets the installation fail.
	OnFailureFail OnFailure = "fail"
	// OnFailureFallback boots the nodes on the base image.
	OnFailureFallback OnFailure = "fallback"
)

// FieldValidation says what becomes of what nothing reads, by the names of the Kubernetes API.
type FieldValidation string

const (
	// FieldValidationStrict refuses it.
	FieldValidationStrict FieldValidation = "strict"
	// FieldValidationWarn names it.
	FieldValidationWarn FieldValidation = "warn"
)

// HandOver limits the hand-over.
type HandOver struct {
	// Policy is wait (the bootstrap host stays until every image is in its final registry), skip (nothing is copied: the
	// images must already be there, or the installation's end is refused) or deadline (as wait, and fails after the
	// deadline). Default: wait.
	Policy HandOverPolicy `yaml:"policy,omitempty" json:"policy,omitempty"`
	// Deadline is a Go duration such as 20m, for the policy deadline only. Default: 20m.
	Deadline Duration `yaml:"deadline,omitempty" json:"deadline,omitempty"`
}

// HandOverPolicy says how long the bootstrap host waits for the hand-over.
type HandOverPolicy string

const (
	// HandOverWait waits until the hand-over is done.
	HandOverWait HandOverPolicy = "wait"
	// HandOverSkip copies nothing.
	HandOverSkip HandOverPolicy = "skip"
	// HandOverDeadline waits until a deadline and then fails.
	HandOverDeadline HandOverPolicy = "deadline"
)

// Pool is one MachineConfigPool to layer.
type Pool struct {
	// Name of the MachineConfigPool and of its MachineOSConfig.
	Name string `yaml:"name" json:"name" schema:"required,pattern=^[a-z0-9]([-a-z0-9]*[a-z0-9])?$"`
	// Containerfile, written here, asks for a generated MachineOSConfig. At most 4096 characters, as in the API.
	Containerfile string `yaml:"containerfile,omitempty" json:"containerfile,omitempty" schema:"maxLength=4096"`
	// ContainerfilePath does the same with a file relative to the install directory.
	ContainerfilePath string `yaml:"containerfilePath,omitempty" json:"containerfilePath,omitempty"`
	// BuildAt is bootstrap (the image is built before the pool's first node boots) or cluster (by the in-cluster builder).
	// Default: bootstrap for master and arbiter, cluster for every other pool.
	BuildAt BuildAt `yaml:"buildAt,omitempty" json:"buildAt,omitempty"`
	// PushSpec is where the image of a generated MachineOSConfig ends up, host[:port][/namespace]/name:tag. Default:
	// registry.repository (registry.name with type cluster), the pool's name and -os:latest.
	PushSpec string `yaml:"pushSpec,omitempty" json:"pushSpec,omitempty"`
}

// BuildAt says where a pool's first image is built.
type BuildAt string

const (
	// BuildAtBootstrap builds on the bootstrap host.
	BuildAtBootstrap BuildAt = "bootstrap"
	// BuildAtCluster leaves the build to the cluster.
	BuildAtCluster BuildAt = "cluster"
)

// Generated says that the pool's MachineOSConfig is to be written by dayone.
func (p Pool) Generated() bool { return p.Containerfile != "" || p.ContainerfilePath != "" }

// BootstrapRegistry is the embedded registry as nodes see it.
type BootstrapRegistry struct {
	// Host is a dotted DNS name or an IPv4 address: the API's reference form needs a dot. Nodes must reach it, so it is
	// no loopback address. Required in the standalone flow;
	// in the openshift flow the default is the bootstrap node's own address, found when it runs.
	Host string `yaml:"host,omitempty" json:"host,omitempty"`
	// Port is 10-65535, as in image references. Default: 9500.
	Port int `yaml:"port,omitempty" json:"port,omitempty" schema:"minimum=10,maximum=65535"`
}

// ConfigServer is the Ignition config server as nodes see it.
type ConfigServer struct {
	// Host is the name or address in the nodes' pointer config. Default: the bootstrap registry's host.
	Host string `yaml:"host,omitempty" json:"host,omitempty"`
	// Port is 1-65535. Default: 22623.
	Port int `yaml:"port,omitempty" json:"port,omitempty" schema:"minimum=1,maximum=65535"`
}

// StatusPage is an HTTPS page on the bootstrap host. Clients need the token that the host keeps in
// STATE/identity.
type StatusPage struct {
	// Port is 1-65535 on every address of the bootstrap host. Default: no page, only the socket on the host itself.
	Port int `yaml:"port,omitempty" json:"port,omitempty" schema:"minimum=1,maximum=65535"`
}

// LogSpool is where the bootstrap host sends a log bundle again and again while it works, and a last time when it ends.
// Any HTTPS server that takes a PUT will do; dayone gather --receive is one that also notices when nothing comes any
// more.
type LogSpool struct {
	// URL is https://HOST[:PORT][/PATH/]; the bundle is put to URL/log-bundle-spool.tar.gz. Default: bundles stay on the
	// bootstrap host.
	URL string `yaml:"url,omitempty" json:"url,omitempty"`
	// TokenFile, relative to the install directory and with a name that ends in .token, holds the bearer token that may
	// write there. Required with a URL. It needs no other right: the bootstrap host has it, and so has bootstrap.ign.
	TokenFile string `yaml:"tokenFile,omitempty" json:"tokenFile,omitempty"`
	// CAFile is a PEM file, relative to the install directory, with the CA that signs that server's certificate.
	// Default: the CAs that the host trusts.
	CAFile string `yaml:"caFile,omitempty" json:"caFile,omitempty"`
	// Every is the time between two bundles, 10s-1h, as a Go duration. Default: 1m.
	Every Duration `yaml:"every,omitempty" json:"every,omitempty"`
}

// RegistryType says whose the final registry is.
type RegistryType string

const (
	// RegistryExternal is a registry of the user's.
	RegistryExternal RegistryType = "external"
	// RegistryCluster are the registries of the cluster's own control-plane nodes.
	RegistryCluster RegistryType = "cluster"
)

// Registry is the final registry.
type Registry struct {
	// Type is cluster (each control-plane node has a registry; dayone makes its accounts and its CA, and no other
	// registry is needed) or external (a registry of yours). Default: cluster where a MachineOSConfig is generated and
	// neither pushSpec, repository, pushSecret nor pushAuthFile says where its image goes, else external.
	Type RegistryType `yaml:"type,omitempty" json:"type,omitempty"`
	// Name is HOST:PORT in the names of images, for type cluster: a DNS name with a dot that leads to the control plane.
	// Each of its nodes listens on the port. Default: api-int.CLUSTER.DOMAIN:22626.
	Name string `yaml:"name,omitempty" json:"name,omitempty"`
	// Repository is host[:port][/namespace]; a pool's image is pushed to REPOSITORY/POOL-os:latest.
	Repository string `yaml:"repository,omitempty" json:"repository,omitempty"`
	// PushSecret names the Secret (type kubernetes.io/dockerconfigjson, in the layering directory) that may push there.
	PushSecret string `yaml:"pushSecret,omitempty" json:"pushSecret,omitempty"`
	// PushAuthFile is an auth.json (as podman login writes it) relative to the install directory, from which dayone
	// generates the push Secret. Give it or pushSecret, not both.
	PushAuthFile string `yaml:"pushAuthFile,omitempty" json:"pushAuthFile,omitempty"`
	// BaseImagePullSecret names the Secret that may pull the base image. Default: none, the base is pulled anonymously.
	BaseImagePullSecret string `yaml:"baseImagePullSecret,omitempty" json:"baseImagePullSecret,omitempty"`
	// BaseImagePullAuthFile is an auth.json relative to the install directory, from which dayone generates the base
	// image's pull Secret. Give it or baseImagePullSecret, not both.
	BaseImagePullAuthFile string `yaml:"baseImagePullAuthFile,omitempty" json:"baseImagePullAuthFile,omitempty"`
	// CAFile is a PEM file, relative to the install directory, with the CA that signs the final registry's
	// certificate. Default: the CAs that the host trusts.
	CAFile string `yaml:"caFile,omitempty" json:"caFile,omitempty"`
}

// Build limits image builds.
type Build struct {
	// Timeout bounds the build of one image, as a Go duration such as 30m. Default: 30m.
	Timeout Duration `yaml:"timeout,omitempty" json:"timeout,omitempty"`
	// Disk bounds what new layers may take on the bootstrap host while they are built, in bytes or with the unit Ki, Mi,
	// Gi or Ti. The host must have as much free when the bootstrap begins. Default: 8Gi; less free is a warning then.
	Disk Size `yaml:"disk,omitempty" json:"disk,omitempty"`
	// Attempts bounds how often a transient fault, such as a registry that does not answer, is tried, 1-20. Default: 3.
	Attempts int `yaml:"attempts,omitempty" json:"attempts,omitempty" schema:"minimum=1,maximum=20"`
	// Offline runs the Containerfile's commands without network. Default: false.
	Offline bool `yaml:"offline,omitempty" json:"offline,omitempty"`
}

// InCluster says that the images end up in the registries of the cluster's own control plane.
func (c Config) InCluster() bool { return c.Registry.Type == RegistryCluster }

// BaseRepository is where the base image ends up.
func (c Config) BaseRepository() string {
	repository := Repository(c.BaseImage)
	if c.InCluster() {
		return c.Registry.Name + "/" + RepositoryPath(repository)
	}
	return repository
}

// DiskChosen says that the user has set another limit than the default one.
func (b Build) DiskChosen() bool { return b.Disk != defaultBuildDisk }

// Cluster is what other rooms need of the rest of install-config.yaml.
type Cluster struct {
	// Name is metadata.name.
	Name string `yaml:"name" json:"name"`
	// BaseDomain is baseDomain.
	BaseDomain string `yaml:"baseDomain" json:"baseDomain"`
	// ControlPlane is controlPlane.replicas; 0: not set.
	ControlPlane int `yaml:"controlPlane,omitempty" json:"controlPlane,omitempty"`
	// Platform is the key below platform, such as aws or none; empty: not set.
	Platform string `yaml:"platform,omitempty" json:"platform,omitempty"`
	// UserProvisionedDNS is set by platform.aws.userProvisionedDNS: Enabled; the installer waits longer then.
	UserProvisionedDNS bool `yaml:"userProvisionedDNS,omitempty" json:"userProvisionedDNS,omitempty"`
	// InstallationDisk is bootstrapInPlace.installationDisk: the only node bootstraps itself and installs this disk;
	// empty: it does not.
	InstallationDisk string `yaml:"installationDisk,omitempty" json:"installationDisk,omitempty"`
	// Agent says that AgentConfig lies beside install-config.yaml: the agent-based installer makes one live image for all
	// hosts. One of them, the rendezvous host, is the bootstrap node, and reboots into a master.
	Agent bool `yaml:"agent,omitempty" json:"agent,omitempty"`
}

// AgentConfig is the agent-based installer's own input.
const AgentConfig = "agent-config.yaml"

// Files in which openshift-install has the Ignition config of the bootstrap node: one of its own, or the only node's.
// AgentIgnition is the live image's, which coreos-installer iso ignition show prints.
const (
	BootstrapIgnition = "bootstrap.ign"
	InPlaceIgnition   = "bootstrap-in-place-for-live-iso.ign"
	AgentIgnition     = "agent.ign"
)

// IgnitionFile is the one of this cluster.
func (c Cluster) IgnitionFile() string {
	switch {
	case c.InPlace():
		return InPlaceIgnition
	case c.Agent:
		return AgentIgnition
	}
	return BootstrapIgnition
}

// InPlace says that the cluster's only node is its own bootstrap node.
func (c Cluster) InPlace() bool { return c.InstallationDisk != "" }

// FullName is NAME.DOMAIN, as far as install-config.yaml has them.
func (c Cluster) FullName() string { return strings.Trim(c.Name+"."+c.BaseDomain, ".") }

// Document is a loaded install-config.yaml.
type Document struct {
	// Config is the layering field with defaults; nil when the file has no such field.
	Config  *Config
	Cluster Cluster
	// raw is the file as it was read, for Strip.
	raw []byte
	// at leads from a key of the field to its place in the file.
	at locator
}
