package cluster

// Names of what is installed and of what the controllers make.
const (
	// DefaultNamespace is where the API demands the secrets that MachineOSConfigs name (openshift/api,
	// types_machineosconfig.go).
	DefaultNamespace = "openshift-machine-config-operator"
	// AdvisorNamespace is of an installation in mode Advisor.
	AdvisorNamespace = "dayone"
	// Controller names the operator's Deployment, ServiceAccount and lease.
	Controller = "dayone-controller"
	// Builder names the builder's Deployment, ServiceAccount and lease. The program is called machine-os-builder, as the
	// Machine Config Operator's is, whose objects have that name, too.
	Builder = "dayone-builder"
	// FormerBuilder is what earlier versions called Builder. One with dayone's mark ends before a Builder starts.
	FormerBuilder = "machine-os-builder"
	// SigningKey names the Secret with the key that signs images, in DefaultNamespace: files as of build/sign. Only the
	// builder uses it; dayone-controller may read it, as all Secrets of that namespace.
	SigningKey = "dayone-signing-key"
	// ImagePolicy names the ClusterImagePolicy by which nodes take signed images of their pools only; dayone manifests
	// writes it at the installation.
	ImagePolicy = "dayone-node-images"
	// Daemon names the node agent's DaemonSet and ServiceAccount.
	Daemon = "dayone-daemon"
	// ConfigServer names the DaemonSet, ServiceAccount and Secret of what serves new nodes.
	ConfigServer = "dayone-config-server"
	// ConfigServerToken and ConfigServerURL are keys of that Secret, beside ca.crt and ca.key: what new nodes must send,
	// and where to.
	ConfigServerToken = "token"
	// ConfigServerURL is described with ConfigServerToken.
	ConfigServerURL = "url"
	// NodeBootstrap names the ServiceAccount whose tokens new nodes join with, and the Secret in which an admin may give a
	// kubeconfig instead.
	NodeBootstrap = "dayone-node-bootstrap"
	// BuildServiceAccount is what build pods run as: no token, no rights.
	BuildServiceAccount = "dayone-build"
	// BuildPriorityClass is for build pods: they wait for room.
	BuildPriorityClass = "dayone-build"
	// StatusName names the ConfigMap that says how dayone as a whole is.
	StatusName = "dayone-status"
	// RegistryName names the ConfigMap with the images that the control plane's registries must hold.
	RegistryName = "dayone-registry"
	// RegistryPeersName names the ConfigMap with the addresses of these registries. It is one of its own because each node
	// reads it, and the list may have a megabyte.
	RegistryPeersName = "dayone-registry-peers"
	// RegistryImages names the ConfigMap with images of pods that the control plane's registries must hold, too: lines
	// NAME/PATH@DIGEST under any key. An administrator writes it, and dayone-controller reads it.
	RegistryImages = "dayone-registry-images"
	// RegistryImagesPull names the Secret for imagePullSecrets with the account that pulls images from these registries.
	// An administrator has it made where the images are added.
	RegistryImagesPull = "dayone-images"
	// RegistryAccounts names the Secret with the accounts of pools and builders at the control plane's registries. Only
	// dayone-controller writes it.
	RegistryAccounts = "dayone-registry-accounts"
	// RegistryShared names the Secret with what these registries share: their CA with its key, and the installation's
	// accounts as hashes. The hand-over or an administrator writes it, and dayone-controller, which replaces the CA.
	RegistryShared = "dayone-registry-shared"
	// RegistryNewNodes names the Secret with the account that nodes begin with, from dayone-controller for the config
	// server.
	RegistryNewNodes = "dayone-registry-new-nodes"
	// RegistryPush names the Secret for renderedImagePushSecret with which builds push to these registries.
	RegistryPush = "dayone-registry-push"
	// StatusConditions is StatusName's key with a list of metav1.Condition; other ConfigMaps of dayone may have it, too.
	StatusConditions = "conditions.json"
	// ReleaseName names the ConfigMap that says how far an OpenShift release is followed in mode full, and the
	// ServiceAccount of the pods that render it; their Jobs and Secrets have it as a prefix.
	ReleaseName = "dayone-release"
	// MachineConfiguration is the name of the operator's singleton, whose status carries the controllers' conditions.
	MachineConfiguration = "cluster"
)

// Secrets that the opt-in controller copies into the namespace of the builds, by MCO's names (pkg/operator/sync.go).
const (
	// PullSecretNamespace and PullSecretName are the cluster-wide pull secret's place.
	PullSecretNamespace = "openshift-config"
	// PullSecretName is also a resourceName in the controller's Role.
	PullSecretName = "pull-secret"
	// PullSecretCopy is what a MachineOSConfig without baseImagePullSecret uses.
	PullSecretCopy = "global-pull-secret-copy"
	// EntitlementNamespace and EntitlementName are the subscription certificates' place.
	EntitlementNamespace = "openshift-config-managed"
	// EntitlementName is also a resourceName in the controller's Role.
	EntitlementName = "etc-pki-entitlement"
)

// EntitlementCopy is the name of a pool's copy of the subscription certificates.
func EntitlementCopy(pool string) string { return EntitlementName + "-" + pool }

// Labels and annotations of installed objects.
const (
	// LabelManagedBy with ManagedBy marks what dayone installed or made; nothing without it is ever removed.
	LabelManagedBy = "app.kubernetes.io/managed-by"
	// ManagedBy is LabelManagedBy's value.
	ManagedBy = "dayone"
	// LabelPartOf with ManagedBy as value is on every object and pod of dayone.
	LabelPartOf = "app.kubernetes.io/part-of"
	// LabelVersion holds the version that installed the object.
	LabelVersion = "app.kubernetes.io/version"
	// AnnotationCreateOnly marks what is created when it is missing and belongs to the cluster from then on.
	AnnotationCreateOnly = "dayone.dev/create-only"
)
