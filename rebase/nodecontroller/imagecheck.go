package nodecontroller

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"

	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"dayone.dev/dayone/manifests/assets/cluster"
	"dayone.dev/dayone/manifests/machineconfig"
	"dayone.dev/dayone/manifests/nodesettings"
	"dayone.dev/dayone/rebase/deploy"
	"dayone.dev/dayone/rebase/deploy/pull"
	"dayone.dev/dayone/rebase/firstboot"
	"dayone.dev/dayone/registry/credentials"
)

// ImageCheck inspects an image as the nodes of the pool will: through the mirrors, certificates and credentials of
// their rendered config and of the cluster, and by the same code. Nothing of its layers is fetched.
type ImageCheck struct {
	// Client reads rendered configs, the ControllerConfig and the cluster's pull secret.
	Client client.Reader
	// Limit bounds one check; default one minute.
	Limit time.Duration
}

// defaultCheckLimit is enough for manifest and configuration through two mirrors that do not answer.
const defaultCheckLimit = time.Minute

// nodeAuthFiles are where a rendered config brings credentials, the one that counts most last.
var nodeAuthFiles = []string{nodesettings.PullSecretPath, nodesettings.KubeletAuthPath, firstboot.AuthPath}

// Check is Preflight's. Its errors are Faults.
func (c ImageCheck) Check(ctx context.Context, q Question) error {
	limit := c.Limit
	if limit == 0 {
		limit = defaultCheckLimit
	}
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	var mc mcfgv1.MachineConfig
	if err := c.Client.Get(ctx, client.ObjectKey{Name: q.Target.Config}, &mc); err != nil {
		return fault(deploy.ClassInternal, fmt.Errorf("read rendered config %s: %w", q.Target.Config, err), "")
	}
	root, err := os.MkdirTemp("", "dayone-check-")
	if err != nil {
		return fault(deploy.ClassInternal, fmt.Errorf("make temporary directory: %w", err), "")
	}
	err = c.layOut(ctx, root, &mc)
	if err == nil {
		err = c.inspect(ctx, root, q, &mc)
	}
	return errors.Join(err, os.RemoveAll(root)) //nolint:wrapcheck // a Fault, nearly always alone
}

// inspect asks for the image once per architecture of the pool's nodes.
func (c ImageCheck) inspect(ctx context.Context, root string, q Question, mc *mcfgv1.MachineConfig) error {
	hash, err := machineconfig.ContentHash(mc.Spec)
	if err != nil {
		return fault(deploy.ClassConfig, err, "correct the MachineConfig that brings it")
	}
	for _, architecture := range q.Architectures {
		o := pull.Options{Root: root, Architecture: architecture, AuthFile: filepath.Join(root, firstboot.AuthPath),
			Policies: pull.Policies(root), SkipKeyFiles: true}
		found, err := pull.Inspect(ctx, q.Target.Image, o)
		if err != nil {
			return fmt.Errorf("for nodes with %s: %w", architecture, err)
		}
		if err := holdsConfig(found.Labels, hash, mc.Name, q.PreBuilt); err != nil {
			return err
		}
	}
	return nil
}

// holdsConfig refuses an image that was made from another config. An image that dayone did not build may say so by
// MCO's label; one that says nothing is taken only when the admin has named it as pre-built.
func holdsConfig(labels map[string]string, hash, config string, preBuilt bool) error {
	const mcoLabel = "machineconfig" // MCO, pkg/controller/build/buildrequest, the image's template
	have := labels[firstboot.LabelConfigHash]
	switch {
	case have == hash:
		return nil
	case have != "":
		return fault(deploy.ClassUnlike, fmt.Errorf("the image holds config %s (%.19s), the pool's is %s (%.19s)",
			labels[firstboot.LabelRenderedConfig], have, config, hash),
			"build the image again: annotation "+rebuildHint)
	case labels[mcoLabel] == config, labels[mcoLabel] == "" && preBuilt:
		return nil
	case labels[mcoLabel] != "":
		return fault(deploy.ClassUnlike, fmt.Errorf("the image holds config %s, the pool's is %s", labels[mcoLabel], config),
			"build the image again: annotation "+rebuildHint)
	}
	return fault(deploy.ClassUnlike, fmt.Errorf("the image has no label %s, so nothing says that it holds config %s",
		firstboot.LabelConfigHash, config),
		"build it with dayone, or name it as the pool's pre-built image")
}

const rebuildHint = "machineconfiguration.openshift.io/rebuild on the MachineOSConfig"

// layOut writes what decides about pulls on the pool's nodes below root: /etc/containers and /etc/docker/certs.d of the
// rendered config, the certificates and credentials that the cluster distributes beside it.
func (c ImageCheck) layOut(ctx context.Context, root string, mc *mcfgv1.MachineConfig) error {
	config, err := machineconfig.ParseRendered(mc.Spec.Config.Raw)
	if err != nil {
		return fault(deploy.ClassConfig, fmt.Errorf("read rendered config %s: %w", mc.Name, err),
			"correct the MachineConfig that brings it")
	}
	files := map[string][]byte{}
	for _, f := range config.Storage.Files {
		if !strings.HasPrefix(f.Path, "/etc/containers/") && !strings.HasPrefix(f.Path, "/etc/docker/certs.d/") &&
			!slices.Contains(nodeAuthFiles, f.Path) {
			continue
		}
		// What is not in the config cannot be had here either; the node fetches it.
		if content, err := machineconfig.Contents(f.Contents); err == nil {
			files[path.Clean(f.Path)] = content
		}
	}
	auth, err := c.clusterFiles(ctx, files)
	if err != nil {
		return err
	}
	for _, name := range nodeAuthFiles {
		if auth, err = credentials.Merge(auth, files[name]); err != nil {
			return fault(deploy.ClassConfig, fmt.Errorf("%s of %s: %w", name, mc.Name, err), "correct the pull secret")
		}
		delete(files, name)
	}
	if auth, err = c.registryAccount(ctx, auth); err != nil {
		return err
	}
	files[firstboot.AuthPath] = auth
	for name, content := range files {
		if err := writeBelow(root, name, content); err != nil {
			return fault(deploy.ClassInternal, err, "")
		}
	}
	return nil
}

// registryAccount adds the account at the control plane's registries that nodes begin with: it may read what those may
// that agents bring, and no config has any.
func (c ImageCheck) registryAccount(ctx context.Context, auth []byte) ([]byte, error) {
	var secret corev1.Secret
	err := c.Client.Get(ctx, client.ObjectKey{Namespace: cluster.DefaultNamespace, Name: cluster.RegistryNewNodes},
		&secret)
	if client.IgnoreNotFound(err) != nil {
		return nil, fault(deploy.ClassInternal, fmt.Errorf("read Secret %s: %w", cluster.RegistryNewNodes, err), "")
	}
	if auth, err = credentials.Merge(auth, secret.Data[corev1.DockerConfigJsonKey]); err != nil {
		return nil, fault(deploy.ClassConfig, fmt.Errorf("secret %s: %w", cluster.RegistryNewNodes, err),
			"delete it: the controller makes it anew")
	}
	return auth, nil
}

// clusterFiles adds the certificates of the ControllerConfig and gives the credentials that every node has.
func (c ImageCheck) clusterFiles(ctx context.Context, files map[string][]byte) ([]byte, error) {
	var auth []byte
	var secret corev1.Secret
	err := c.Client.Get(ctx, client.ObjectKey{Namespace: cluster.PullSecretNamespace, Name: cluster.PullSecretName},
		&secret)
	if client.IgnoreNotFound(err) != nil {
		return nil, fault(deploy.ClassInternal, fmt.Errorf("read the cluster's pull secret: %w", err), "")
	}
	auth = secret.Data[corev1.DockerConfigJsonKey]
	var configs mcfgv1.ControllerConfigList
	if err := c.Client.List(ctx, &configs); err != nil {
		return nil, fault(deploy.ClassInternal, fmt.Errorf("list ControllerConfigs: %w", err), "")
	}
	for i := range configs.Items {
		spec := &configs.Items[i].Spec
		for _, bundle := range append(spec.ImageRegistryBundleData, spec.ImageRegistryBundleUserData...) {
			// The key is a host; ".." stands for the colon before its port (MCO, certificate writer).
			host := path.Base(strings.ReplaceAll(bundle.File, "..", ":"))
			files["/etc/docker/certs.d/"+host+"/ca.crt"] = bundle.Data
		}
		if auth, err = credentials.Merge(auth, spec.InternalRegistryPullSecret); err != nil {
			return nil, fault(deploy.ClassConfig, fmt.Errorf("internal registry's pull secret: %w", err),
				"correct the ControllerConfig")
		}
	}
	return auth, nil
}

func fault(class deploy.Class, err error, next string) error {
	return &deploy.Fault{Class: class, Op: "check image", Err: err, Next: next}
}

// writeBelow writes a file for this process alone. name is absolute and clean.
func writeBelow(root, name string, content []byte) error {
	at := filepath.Join(root, name)
	if err := os.MkdirAll(filepath.Dir(at), 0o700); err != nil {
		return fmt.Errorf("lay out %s: %w", name, err)
	}
	if err := os.WriteFile(at, content, 0o600); err != nil {
		return fmt.Errorf("lay out %s: %w", name, err)
	}
	return nil
}
