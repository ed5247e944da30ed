package registryimages

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/opencontainers/go-digest"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/retry"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	"dayone.dev/dayone/manifests/assets/cluster"
	"dayone.dev/dayone/rebase/rollout"
	"dayone.dev/dayone/registry/credentials"
	"dayone.dev/dayone/registry/dial"
	"dayone.dev/dayone/registry/route"
	"dayone.dev/dayone/registry/transfer"
)

const (
	// kept is how many images of one path stay listed: the present one and the one before, for a way back.
	kept = 2
	// tag names the image where it is pushed: some clients can push an index by tag only. Nothing pulls by it.
	tag = "added"
)

// Options of Add. All are required but Transfer and PullAuthFile.
type Options struct {
	// Registry is HOST:PORT in the names of the cluster's own images.
	Registry string
	// Namespace has the ConfigMap.
	Namespace string
	// From is where the image is, Path the name of its repository in the registries.
	From transfer.Endpoint
	Path string
	// CAFile is PEM of the registries' CA, AuthFile has an account that may push to them.
	CAFile, AuthFile string
	// PullAuthFile has the account that pulls, for a Secret that pods name. Default: no Secret is written.
	PullAuthFile string
	Transfer     transfer.Options
}

// Added is an image in the registries of the control plane.
type Added struct {
	// Image is its name by digest.
	Image string `json:"image"`
	// Nodes are the control-plane nodes whose registry has it.
	Nodes []string `json:"nodes"`
	// Missing says of the others why not. They fetch it when they are back.
	Missing map[string]string `json:"missing,omitempty"`
}

// Add copies an image with what is attached to it to the registry of every control-plane node that answers, by the
// nodes' addresses, and lists it as wanted. It may be repeated. It fails where no registry has the image then.
func Add(ctx context.Context, c client.Client, o Options) (*Added, error) {
	if !route.ValidName(o.Path) {
		return nil, fmt.Errorf("%q is no name of a repository: write it in lower case, without registry and tag, such as "+
			"dayone/dayone-controller", o.Path)
	}
	puller, err := o.puller()
	if err != nil {
		return nil, err
	}
	var nodes corev1.NodeList
	if err := c.List(ctx, &nodes); err != nil {
		return nil, fmt.Errorf("list nodes: %w", err)
	}
	added := &Added{Nodes: []string{}, Missing: map[string]string{}}
	var failed []error
	var d digest.Digest
	for _, m := range rollout.RegistryPeers(o.Registry, nodes.Items).Peers {
		got, err := o.push(ctx, m.Address)
		switch {
		case ctx.Err() != nil:
			return nil, ctx.Err()
		case err != nil:
			failed, added.Missing[m.Name] = append(failed, fmt.Errorf("registry of node %s: %w", m.Name, err)), err.Error()
			continue
		case d != "" && got != d:
			return nil, fmt.Errorf("%s was %s and is %s now: run the command again", o.From.Reference, d, got)
		}
		d, added.Nodes = got, append(added.Nodes, m.Name)
	}
	if len(added.Nodes) == 0 {
		return nil, fmt.Errorf("add image: no registry of a control-plane node has it: %w",
			errors.Join(append(failed, errNoNode(len(failed)))...))
	}
	added.Image = o.Registry + "/" + o.Path + "@" + string(d)
	if err := o.list(ctx, c, added.Image); err != nil {
		return added, err
	}
	return added, o.give(ctx, c, puller)
}

// errNoNode is for a cluster without any.
func errNoNode(tried int) error {
	if tried > 0 {
		return nil
	}
	return errors.New("no node with an InternalIP has the label node-role.kubernetes.io/control-plane or …/master")
}

// push copies the image to one registry.
func (o Options) push(ctx context.Context, address string) (digest.Digest, error) {
	if err := dial.Answers(ctx, address); err != nil {
		return "", fmt.Errorf("%w: see systemctl status dayone-registry on the node", err)
	}
	to := transfer.Endpoint{Reference: address + "/" + o.Path + ":" + tag, CAFile: o.CAFile}
	if err := to.UseAccountOf(o.AuthFile); err != nil {
		return "", err
	}
	res, err := transfer.Copy(ctx, o.From, to, o.Transfer)
	if errors.Is(err, transfer.ErrDenied) {
		err = fmt.Errorf("%w: give the account that may push, push-auth.json", err)
	}
	if err != nil {
		return "", err
	}
	if _, err := transfer.Attach(ctx, o.From, to, res.Digest, o.Transfer); err != nil {
		return "", fmt.Errorf("copy what is attached to the image: %w", err)
	}
	return res.Digest, nil
}

// puller is the account that pods pull with, in auth.json form; nil is none.
func (o Options) puller() ([]byte, error) {
	if o.PullAuthFile == "" {
		return nil, nil
	}
	accounts, err := credentials.Read(o.PullAuthFile)
	if err != nil {
		return nil, err
	}
	account, found, err := accounts.Find(o.Registry)
	if err == nil && !found {
		err = fmt.Errorf("it has none for %s: give pull-auth.json beside the registries' CA", o.Registry)
	}
	if err != nil {
		return nil, fmt.Errorf("read account of %s: %w", o.PullAuthFile, err)
	}
	return credentials.Encode(account, o.Registry)
}

// give writes the account into the Secret that pods name, and leaves what else is in it.
func (o Options) give(ctx context.Context, c client.Client, puller []byte) error {
	if puller == nil {
		return nil
	}
	s := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: o.Namespace, Name: cluster.RegistryImagesPull},
		Type: corev1.SecretTypeDockerConfigJson}
	_, err := controllerutil.CreateOrUpdate(ctx, c, s, func() error {
		merged, err := credentials.Merge(s.Data[corev1.DockerConfigJsonKey], puller)
		s.Data = map[string][]byte{corev1.DockerConfigJsonKey: merged}
		return err
	})
	if err != nil {
		return fmt.Errorf("write Secret %s: %w", s.Name, err)
	}
	return nil
}

// list names the image in the ConfigMap, before the one that was the last of its path.
func (o Options) list(ctx context.Context, c client.Client, image string) error {
	key := strings.ReplaceAll(o.Path, "/", "..")
	again := func(err error) bool { return apierrors.IsConflict(err) || apierrors.IsAlreadyExists(err) }
	err := retry.OnError(retry.DefaultRetry, again, func() error {
		m := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: o.Namespace, Name: cluster.RegistryImages}}
		err := c.Get(ctx, client.ObjectKeyFromObject(m), m)
		if client.IgnoreNotFound(err) != nil {
			return err
		}
		next := slices.DeleteFunc(strings.Fields(m.Data[key]), func(have string) bool { return have == image })
		next = slices.Insert(next, 0, image)
		data := maps.Clone(m.Data)
		if data == nil {
			data = map[string]string{}
		}
		data[key] = strings.Join(next[:min(len(next), kept)], "\n") + "\n"
		m.Data = data
		if err == nil {
			return c.Update(ctx, m)
		}
		// Before dayone is installed its namespace may be missing.
		ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: o.Namespace}}
		if err := c.Create(ctx, ns); err != nil && !apierrors.IsAlreadyExists(err) {
			return err
		}
		return c.Create(ctx, m)
	})
	if err != nil {
		return fmt.Errorf("list %s in ConfigMap %s: %w", image, cluster.RegistryImages, err)
	}
	return nil
}
