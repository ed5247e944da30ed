package nodedisk

// The certificates of a node that the agent keeps as the ControllerConfig says, without a restart of anything. Source:
// MCO, the certificate writer of its daemon, and its server, which gives them to new nodes.
const (
	// KubeletCA signs the certificates with which the API server comes to the kubelet, which reads the file anew when it
	// changes. What a rendered config says at this path does not count.
	KubeletCA = "/etc/kubernetes/kubelet-ca.crt"
	// CloudCA signs a private cloud's API. What a rendered config says at this path does not count.
	CloudCA = "/etc/kubernetes/static-pod-resources/configmaps/cloud-config/ca-bundle.pem"
	// RegistryCerts holds HOST[:PORT]/ca.crt; every pull reads it anew. A file that a rendered config has there is the
	// config's. Source: containers-certs.d(5).
	RegistryCerts = "/etc/docker/certs.d"
)

// OSTreeAuth has the credentials with which the host pulls its own images. Source: ostree-ext.
const OSTreeAuth = "/etc/ostree/auth.json"
