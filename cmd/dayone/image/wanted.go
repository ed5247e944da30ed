package image

import (
	"cmp"
	"context"
	"encoding/pem"
	"errors"
	"fmt"
	"strings"

	configv1 "github.com/openshift/api/config/v1"
	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"dayone.dev/dayone/build/sign"
	"dayone.dev/dayone/cmd/internal/connect"
	"dayone.dev/dayone/manifests"
	"dayone.dev/dayone/manifests/machineconfig"
)

// namedKey is a key and where it is from.
type namedKey struct {
	from string
	key  sign.PublicKey
}

// fromFiles reads keys.
func fromFiles(files []string) (keys []namedKey, err error) {
	for _, file := range files {
		key, err := sign.ReadPublicKey(file)
		if err != nil {
			return nil, err
		}
		keys = append(keys, namedKey{file, key})
	}
	return keys, nil
}

// fromCluster adds what a cluster says to what the flags say, and the keys that count there if the flags give none.
func fromCluster(ctx context.Context, at connect.Flags, pool, repository string, keys []namedKey, o origin) (
	[]namedKey, origin, error) {
	c, _, err := at.Client()
	if err != nil {
		return nil, o, err
	}
	if len(keys) == 0 {
		if keys, err = keysOf(ctx, c, repository); err != nil {
			return nil, o, err
		}
	}
	o, err = o.wantedBy(ctx, c, pool)
	return keys, o, err
}

// keysOf are the keys that a cluster's ClusterImagePolicies name for a repository.
func keysOf(ctx context.Context, c client.Reader, repository string) (keys []namedKey, err error) {
	var policies configv1.ClusterImagePolicyList
	if err := c.List(ctx, &policies); err != nil && !meta.IsNoMatchError(err) {
		return nil, fmt.Errorf("list ClusterImagePolicies: %w", err)
	}
	for _, p := range policies.Items {
		root := p.Spec.Policy.RootOfTrust.PublicKey
		if root == nil || !covers(p.Spec.Scopes, repository) {
			continue
		}
		var block *pem.Block
		for rest := root.KeyData; ; {
			if block, rest = pem.Decode(rest); block == nil {
				break
			}
			key, err := sign.ParsePublicKey(pem.EncodeToMemory(block))
			if err != nil {
				return nil, fmt.Errorf("read ClusterImagePolicy %s: %w", p.Name, err)
			}
			keys = append(keys, namedKey{p.Name, key})
		}
	}
	if len(keys) == 0 {
		return nil, fmt.Errorf("no ClusterImagePolicy has a key for %s: give --key", repository)
	}
	return keys, nil
}

// covers says that one of the scopes is about a repository (containers-policy.json(5)).
func covers(scopes []configv1.ImageScope, repository string) bool {
	for _, s := range scopes {
		scope := string(s)
		if repository == scope || strings.HasPrefix(repository, scope+"/") {
			return true
		}
		host, _, _ := strings.Cut(repository, "/")
		if domain, wild := strings.CutPrefix(scope, "*"); wild && strings.HasSuffix(host, domain) {
			return true
		}
	}
	return false
}

// wantedBy adds what a pool wants of its image now: the rendered config, and the address of the build for it.
func (o origin) wantedBy(ctx context.Context, c client.Reader, pool string) (origin, error) {
	var p mcfgv1.MachineConfigPool
	if err := c.Get(ctx, client.ObjectKey{Name: pool}, &p); err != nil {
		return o, fmt.Errorf("read MachineConfigPool %s: %w", pool, err)
	}
	name := p.Spec.Configuration.Name
	if name == "" {
		return o, errors.New("pool " + pool + " has no rendered config yet: nothing is wanted of its image")
	}
	var config mcfgv1.MachineConfig
	err := c.Get(ctx, client.ObjectKey{Name: name}, &config)
	if err == nil && o.config == "" {
		o.config, err = machineconfig.ContentHash(config.Spec)
	}
	if err != nil {
		return o, fmt.Errorf("read rendered config %s: %w", name, err)
	}
	var builds mcfgv1.MachineOSBuildList
	if err := c.List(ctx, &builds); err != nil {
		return o, fmt.Errorf("list MachineOSBuilds: %w", err)
	}
	var newest mcfgv1.MachineOSBuild
	for _, b := range builds.Items {
		if b.Spec.MachineConfig.Name == name && b.Annotations[manifests.AnnotationBuildAddress] != "" &&
			newest.CreationTimestamp.Before(&b.CreationTimestamp) {
			newest = b
		}
	}
	o.address = cmp.Or(o.address, newest.Annotations[manifests.AnnotationBuildAddress])
	return o, nil
}
