package gather

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	"dayone.dev/dayone/bootstrap/gather/pods"
	"dayone.dev/dayone/manifests/assets/cluster"
)

// Cluster gathers a cluster's view: objects in resources/, logs of dayone's pods and of builds in pods/. Secrets are
// never asked for.
type Cluster struct {
	// Config reaches the cluster.
	Config *rest.Config
	// Namespace of the controllers. Default: openshift-machine-config-operator.
	Namespace string
	// Limit bounds the whole: then the bundle ends with what has arrived. Default: 5 minutes.
	Limit time.Duration
	// RequestLimit bounds one request. Default: 30 seconds.
	RequestLimit time.Duration
}

// Bounds of one list and one log.
const (
	clusterLimit   = 5 * time.Minute
	requestLimit   = 30 * time.Second
	maxObjects     = 10_000
	objectsPerPage = 50 // rendered MachineConfigs have up to a megabyte each
	maxLogBytes    = 2 << 20
)

// clusterKind is one list of objects.
type clusterKind struct {
	// name is the file's in resources/.
	name     string
	resource schema.GroupVersionResource
	// namespaces are those of interest; none is the whole cluster.
	namespaces []string
}

// clusterKinds are what is listed, what explains most first: a bundle may become full, or its time run out.
func clusterKinds(namespace string) []clusterKind {
	of := func(group, resource string) schema.GroupVersionResource {
		return schema.GroupVersionResource{Group: group, Version: "v1", Resource: resource}
	}
	const mc, config = "machineconfiguration.openshift.io", "config.openshift.io"
	own := []string{namespace}
	return []clusterKind{
		{"machineconfigpools", of(mc, "machineconfigpools"), nil},
		{"machineosconfigs", of(mc, "machineosconfigs"), nil},
		{"machineosbuilds", of(mc, "machineosbuilds"), nil},
		{"nodes", of("", "nodes"), nil},
		{"machineconfignodes", of(mc, "machineconfignodes"), nil},
		{"pods", of("", "pods"), own},
		{"jobs", of("batch", "jobs"), own},
		{"deployments", of("apps", "deployments"), own},
		{"daemonsets", of("apps", "daemonsets"), own},
		// Events of nodes are in the namespace default.
		{"events", of("", "events"), []string{namespace, metav1.NamespaceDefault}},
		{"machineconfigurations", of("operator.openshift.io", "machineconfigurations"), nil},
		{"controllerconfigs", of(mc, "controllerconfigs"), nil},
		{"clusteroperators", of(config, "clusteroperators"), nil},
		{"clusterversions", of(config, "clusterversions"), nil},
		{"imagedigestmirrorsets", of(config, "imagedigestmirrorsets"), nil},
		{"poddisruptionbudgets", of("policy", "poddisruptionbudgets"), nil},
		{"certificatesigningrequests", of("certificates.k8s.io", "certificatesigningrequests"), nil},
		{"machineconfigs", of(mc, "machineconfigs"), nil},
	}
}

func (c Cluster) withDefaults() Cluster {
	c.Namespace = cmp.Or(c.Namespace, cluster.DefaultNamespace)
	if c.Limit <= 0 {
		c.Limit = clusterLimit
	}
	if c.RequestLimit <= 0 {
		c.RequestLimit = requestLimit
	}
	return c
}

// clusterGatherer gathers one cluster into an archive.
type clusterGatherer struct {
	Cluster
	options Options
	archive *archive
	objects dynamic.Interface
	running *pods.Client
}

// Gather writes the bundle; Write takes it in the place of Host. A cluster that answers slowly, not at all after
// a while, or only some questions gives a bundle with what came, and its gather.log says what is missing.
func (c Cluster) Gather(ctx context.Context, o Options, w io.Writer) error {
	o, c = o.withDefaults(), c.withDefaults()
	if err := o.Validate(); err != nil {
		return err
	}
	g := &clusterGatherer{Cluster: c, options: o,
		archive: newArchive(w, o, newScrubber(append(knownSecrets(o), connectionSecrets(c.Config)...)))}
	limited, cancel := context.WithTimeout(ctx, c.Limit)
	defer cancel()
	if err := g.connect(limited); err != nil {
		return err
	}
	for _, kind := range clusterKinds(c.Namespace) {
		if limited.Err() != nil {
			break
		}
		if err := g.list(limited, kind); err != nil {
			return err
		}
	}
	if err := g.logs(limited); err != nil {
		return err
	}
	if ctx.Err() != nil {
		return fmt.Errorf("gather: %w", ctx.Err())
	}
	if limited.Err() != nil {
		g.missing("gathering timed out after %s: what is missing here was not requested", c.Limit)
	}
	return g.archive.close()
}

// connect asks for the version: a cluster that does not answer that is an error, since there would be nothing in the
// bundle.
func (g *clusterGatherer) connect(ctx context.Context) error {
	var err error
	if g.objects, err = dynamic.NewForConfig(g.Config); err != nil {
		return fmt.Errorf("reach the cluster: %w", err)
	}
	if g.running, err = pods.New(g.Config); err != nil {
		return fmt.Errorf("reach the cluster: %w", err)
	}
	ctx, cancel := context.WithTimeout(ctx, g.RequestLimit)
	defer cancel()
	raw, err := g.running.Version(ctx)
	var version struct {
		GitVersion string `json:"gitVersion"`
	}
	if err == nil {
		err = json.Unmarshal(raw, &version)
	}
	switch {
	case apierrors.IsUnauthorized(err):
		return fmt.Errorf("reach the cluster at %s: it refuses these credentials (log in again, or name another kubeconfig "+
			"with --kubeconfig): %w", g.Config.Host, err)
	case err != nil:
		return fmt.Errorf("reach the cluster at %s (is it the right kubeconfig, and is the API server up? on a bootstrap "+
			"host dayone gather without --cluster works): %w", g.Config.Host, err)
	}
	g.archive.note("cluster %s, version %s", g.Config.Host, version.GitVersion)
	return nil
}

// missing says that the bundle lacks something, in the bundle and to who makes it.
func (g *clusterGatherer) missing(format string, args ...any) {
	g.archive.note(format, args...)
	if g.options.Log != nil {
		g.options.Log.Warn(g.archive.scrub.text(fmt.Sprintf(format, args...)))
	}
}

// list writes the objects of one kind; a kind that the cluster does not have, or that this user may not see, is noted.
func (g *clusterGatherer) list(ctx context.Context, kind clusterKind) error {
	out := &objectList{limit: min(g.options.MaxFile, g.archive.left)}
	namespaces := kind.namespaces
	if len(namespaces) == 0 {
		namespaces = []string{""}
	}
	for _, namespace := range namespaces {
		err := g.pages(ctx, kind, namespace, out)
		switch {
		case err == nil:
		case apierrors.IsNotFound(err), meta.IsNoMatchError(err):
			g.archive.note("%s: the cluster does not have this kind", kind.name)
			return nil
		case errors.Is(err, errListFull):
			g.missing("%s: only the first %d are gathered", kind.name, out.count)
		case apierrors.IsForbidden(err):
			g.missing("%s: left out: this user may not list them: %v", kind.name, err)
		default:
			g.missing("%s: not all could be gathered (%d are): %v", kind.name, out.count, err)
		}
	}
	if out.count == 0 && out.full {
		return nil
	}
	return g.archive.add(path.Join("resources", kind.name+".json"), out.bytes())
}

var errListFull = errors.New("the list is full")

// pages asks for the objects of one namespace, some at a time.
func (g *clusterGatherer) pages(ctx context.Context, kind clusterKind, namespace string, out *objectList) error {
	options := metav1.ListOptions{Limit: objectsPerPage}
	for {
		page, err := g.page(ctx, kind, namespace, options)
		if err != nil {
			return err
		}
		for i := range page.Items {
			object := &page.Items[i]
			object.SetManagedFields(nil)
			// Everything of the cluster is looked through: any object may quote a MachineConfig.
			redactTree(object.Object, g.archive.mask)
			if err := out.add(object.Object); err != nil {
				return err
			}
		}
		if options.Continue = page.GetContinue(); options.Continue == "" {
			return nil
		}
	}
}

func (g *clusterGatherer) page(ctx context.Context, kind clusterKind, namespace string,
	options metav1.ListOptions) (*unstructured.UnstructuredList, error) {
	ctx, cancel := context.WithTimeout(ctx, g.RequestLimit)
	defer cancel()
	if namespace == "" {
		return g.objects.Resource(kind.resource).List(ctx, options)
	}
	return g.objects.Resource(kind.resource).Namespace(namespace).List(ctx, options)
}

// objectList is a list of objects as kubectl prints it, of a limited size in bytes.
type objectList struct {
	text  bytes.Buffer
	count int
	limit int64
	full  bool
}

func (l *objectList) add(object any) error {
	raw, err := json.MarshalIndent(object, "  ", " ")
	if err != nil {
		return fmt.Errorf("encode an object: %w", err)
	}
	if l.count >= maxObjects || int64(l.text.Len()+len(raw)) > l.limit {
		l.full = true
		return errListFull
	}
	if l.count > 0 {
		l.text.WriteString(",\n")
	}
	l.text.WriteString("  ")
	l.text.Write(raw)
	l.count++
	return nil
}

func (l *objectList) bytes() []byte {
	return []byte("{\n \"apiVersion\": \"v1\",\n \"kind\": \"List\",\n \"items\": [\n" + l.text.String() + "\n ]\n}\n")
}

// connectionSecrets are the credentials with which the cluster is reached.
func connectionSecrets(c *rest.Config) []string {
	out := []string{c.BearerToken, c.Password, string(c.KeyData)}
	for _, file := range []string{c.BearerTokenFile, c.KeyFile} {
		if file == "" {
			continue
		}
		if raw, err := os.ReadFile(file); err == nil {
			out = append(out, string(raw))
		}
	}
	return out
}
