package cluster

import (
	"bytes"
	"cmp"
	"embed"
	"errors"
	"fmt"
	"io"
	"net/url"
	"path"
	"regexp"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/validation"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/yaml"
)

//go:embed scc objects shared builds advisor buildermode builder agent courier registries daemon approval
//go:embed monitoring monitoringfull
var objectFiles embed.FS

// Images are references of the programs' images.
type Images struct {
	// Controller holds dayone-controller.
	Controller string
	// Builder holds machine-os-builder, which is also what build pods run.
	Builder string
	// Daemon holds dayone-daemon.
	Daemon string
}

// Options shape the installed objects. Images.Controller and, but for an advisor, Images.Builder are required; the rest
// has defaults.
type Options struct {
	// Mode decides which objects there are; empty: Full.
	Mode Mode `json:",omitempty"`
	// Namespace of the controllers and builds; empty: the mode's.
	Namespace string
	// Version labels the objects; empty: no label.
	Version string
	// Images are required for the programs that are installed.
	Images Images
	// ImagePullSecret names the Secret of the namespace with which the nodes pull Images; empty: none.
	ImagePullSecret string
	// BaseImage is the OS image of a cluster without a ControllerConfig, by digest; empty: none.
	BaseImage string
	// Replicas of dayone-controller; 0: 2. One is enough for a cluster of one node.
	Replicas int32
	// BuilderArgs are further arguments of machine-os-builder start, each --NAME or --NAME=VALUE.
	BuilderArgs []string `json:",omitempty"`
	// NodeAgent adds the DaemonSet of dayone-daemon and what it needs.
	NodeAgent bool
	// Registry is HOST:PORT in the names of the images that the control plane's own registries hold, with NodeAgent or in
	// mode Building; empty: there are none.
	Registry string `json:",omitempty"`
	// APIServer is where new nodes reach the API server, with NodeAgent; empty: the cluster says it.
	APIServer string
	// ApproveNodes lets the cluster's own approver sign new nodes' certificates without a person, with NodeAgent.
	ApproveNodes bool
	// Constrained says that the cluster admits pods by OpenShift's SecurityContextConstraints; the installation finds out.
	Constrained bool `json:"-"`
	// PrivilegedBuilds lets the namespace run privileged pods, for builds that need them.
	PrivilegedBuilds bool
}

func (o Options) withDefaults() Options {
	o.Mode = cmp.Or(o.Mode, Full)
	o.Namespace = cmp.Or(o.Namespace, o.Mode.Namespace())
	o.Replicas = cmp.Or(o.Replicas, 2)
	return o
}

// imageReference accepts what a container runtime does, roughly: it only keeps out what cannot be one.
var imageReference = regexp.MustCompile(`^[a-zA-Z0-9][a-zA-Z0-9._:/@-]*$`)

// digested is the end of a reference by digest: builds take no base image that a tag could exchange.
var digested = regexp.MustCompile(`@sha256:[0-9a-f]{64}$`)

// registryHost is HOST:PORT with a dot in its name: without one, clients take it for a part of a name on Docker Hub.
var registryHost = regexp.MustCompile(`^[a-z0-9-]+(\.[a-z0-9-]+)+:[0-9]{1,5}$`)

// builderArg is a long flag; installedArg are those that the installation decides. What the others mean is the
// builder's affair.
var (
	builderArg   = regexp.MustCompile(`^--[a-z][a-z-]*(=.*)?$`)
	installedArg = regexp.MustCompile(
		`^--(image|namespace|kubeconfig|no-leader-election|metrics-address|probe-address)(=|$)`)
)

func checkBuilderArg(arg string) error {
	switch {
	case !builderArg.MatchString(arg):
		return fmt.Errorf("argument %q of %s: write --NAME or --NAME=VALUE", arg, Builder)
	case installedArg.MatchString(arg):
		return fmt.Errorf("argument %q of %s: the installation sets it", arg, Builder)
	}
	return nil
}

// checkRegistry names what the control plane's registries lack.
func (o Options) checkRegistry() (bad []error) {
	if o.Registry != "" && o.Namespace != DefaultNamespace {
		bad = append(bad, fmt.Errorf("namespace %q: the control plane's registries need %s", o.Namespace, DefaultNamespace))
	}
	if o.Registry != "" && (!o.RunsDaemon() || !registryHost.MatchString(o.Registry)) {
		bad = append(bad, fmt.Errorf("registry %q of the control plane: give HOST:PORT as names of images have it, and "+
			"choose mode builder, or mode full with the node agent, which brings the registries what they work by", o.Registry))
	}
	return bad
}

// Validate names every wrong option.
func (o Options) Validate() error {
	o = o.withDefaults()
	var bad []error
	for _, text := range validation.IsDNS1123Label(o.Namespace) {
		bad = append(bad, fmt.Errorf("namespace %q: %s", o.Namespace, text))
	}
	if o.Replicas < 0 {
		bad = append(bad, fmt.Errorf("replicas %d: must not be negative", o.Replicas))
	}
	if o.ImagePullSecret != "" {
		for _, text := range validation.IsDNS1123Subdomain(o.ImagePullSecret) {
			bad = append(bad, fmt.Errorf("image pull secret %q: %s", o.ImagePullSecret, text))
		}
	}
	if o.BaseImage != "" && !(imageReference.MatchString(o.BaseImage) && digested.MatchString(o.BaseImage)) {
		bad = append(bad, fmt.Errorf("base image %q is no reference by digest, such as "+
			"registry.example.com/os/base@sha256:…", o.BaseImage))
	}
	for _, arg := range o.BuilderArgs {
		bad = append(bad, checkBuilderArg(arg))
	}
	if u, err := url.Parse(o.APIServer); o.APIServer != "" && (err != nil || u.Scheme != "https" || u.Host == "") {
		bad = append(bad, fmt.Errorf("API server %q is no address such as https://api.example.com:6443", o.APIServer))
	}
	bad = append(bad, o.checkRegistry()...)
	if (o.ApproveNodes || o.APIServer != "") && !o.NodeAgent {
		bad = append(bad, errors.New("new nodes are served with the node agent only: ask for it, too"))
	}
	bad = append(bad, o.checkMode()...)
	for _, p := range o.programs() {
		if !imageReference.MatchString(p.image) {
			bad = append(bad, fmt.Errorf("image of %s: %q is no reference", p.name, p.image))
		}
	}
	return errors.Join(bad...)
}

// Objects are what an installation in this mode applies besides the CRDs, in this order. The builder's Deployment is
// not among them: the opt-in controller makes it.
func Objects(o Options) ([]*unstructured.Unstructured, error) {
	o = o.withDefaults()
	if err := o.Validate(); err != nil {
		return nil, err
	}
	return o.shaped(o.folders())
}

// shaped are the objects of embedded folders, with the options in them.
func (o Options) shaped(folders []string) ([]*unstructured.Unstructured, error) {
	files, err := filesIn(folders)
	if err != nil {
		return nil, err
	}
	var objects []*unstructured.Unstructured
	for _, file := range files {
		read, err := readObjects(file, o.Namespace)
		if err != nil {
			return nil, err
		}
		objects = append(objects, read...)
	}
	for _, object := range objects {
		if err := o.shape(object); err != nil {
			return nil, fmt.Errorf("shape %s %s: %w", object.GetKind(), object.GetName(), err)
		}
	}
	return objects, nil
}

// BuilderDeployment is the Deployment of machine-os-builder. It needs Images.Builder only.
func BuilderDeployment(o Options) (*unstructured.Unstructured, error) {
	o = o.withDefaults()
	o.Images.Controller = o.Images.Builder
	if err := o.Validate(); err != nil {
		return nil, err
	}
	read, err := readObjects("builder/deployment.yaml", o.Namespace)
	if err != nil {
		return nil, err
	}
	if err := o.shape(read[0]); err != nil {
		return nil, fmt.Errorf("shape Deployment %s: %w", Builder, err)
	}
	return read[0], nil
}

// readObjects reads one embedded file; the namespace is written in it as DefaultNamespace, which is nowhere a part of
// another word. In an advisor's own files that name means the Machine Config Operator's namespace.
func readObjects(file, namespace string) ([]*unstructured.Unstructured, error) {
	raw, err := objectFiles.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("read embedded %s: %w", file, err)
	}
	if path.Dir(file) == advisorFolder {
		const account = "system:serviceaccount:"
		raw = bytes.ReplaceAll(raw, []byte(account+AdvisorNamespace+":"), []byte(account+namespace+":"))
	} else {
		raw = bytes.ReplaceAll(raw, []byte(DefaultNamespace), []byte(namespace))
	}
	documents := utilyaml.NewYAMLReader(newReader(raw))
	var out []*unstructured.Unstructured
	for {
		document, err := documents.Read()
		if errors.Is(err, io.EOF) {
			return out, nil
		}
		if err != nil {
			return nil, fmt.Errorf("read embedded %s: %w", file, err)
		}
		object := &unstructured.Unstructured{}
		if err := yaml.UnmarshalStrict(document, &object.Object); err != nil {
			return nil, fmt.Errorf("read embedded %s: %w", file, err)
		}
		if path.Dir(file) == advisorFolder {
			moveAdvisor(object, namespace)
		}
		out = append(out, object)
	}
}
