package preflight

import (
	"path"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"dayone.dev/dayone/installconfig"
	"dayone.dev/dayone/installconfig/report"
	"dayone.dev/dayone/manifests"
	"dayone.dev/dayone/manifests/assets/cluster"
	"dayone.dev/dayone/registry/credentials"
)

// Names of the Secrets that dayone makes from auth.json files.
const (
	GeneratedPushSecret = "dayone-push"
	GeneratedPullSecret = "dayone-base-pull"
)

// secretFile is where a generated Secret is written, in the layering directory.
func secretFile(dir, name string) string { return path.Join(dir, "99_dayone-secret-"+name+".yaml") }

// registrySecrets are the names of the Secrets of generated MachineOSConfigs; those that come from a file are made on
// the first call.
func (c *checker) registrySecrets() (push, pull string, ok bool) {
	r := c.in.Sidecar.Config.Registry
	push, pull, ok = r.PushSecret, r.BaseImagePullSecret, true
	if r.PushAuthFile != "" {
		push = GeneratedPushSecret
		ok = c.generateSecret(push, r.PushAuthFile, "pushAuthFile") && ok
	}
	if r.BaseImagePullAuthFile != "" {
		pull = GeneratedPullSecret
		ok = c.generateSecret(pull, r.BaseImagePullAuthFile, "baseImagePullAuthFile") && ok
	}
	return push, pull, ok
}

// generateSecret makes a Secret from an auth.json, once.
func (c *checker) generateSecret(name, file, key string) bool {
	to := secretFile(c.in.Sidecar.Config.LayeringDir, name)
	for _, s := range c.in.Set.Secrets {
		if s.Origin.File == to {
			return true
		}
	}
	at := report.Finding{File: installconfig.FileName, Path: installconfig.Field + ".registry." + key, Rule: "auth-file",
		Next: "make it with: podman login --authfile " + file + " REGISTRY"}
	raw, err := readInside(c.dir, file)
	if err != nil {
		c.rep.Errorf(at, "read credentials: %v", err)
		return false
	}
	accounts, err := credentials.Parse(raw)
	if err != nil || len(accounts) == 0 {
		c.rep.Errorf(at, "%s holds no registry credentials", file)
		return false
	}
	if host := accounts.WithoutPassword(); host != "" {
		c.rep.Errorf(at,
			"%s has no password for %s: it is kept by a credential helper of this machine, which no other machine can ask",
			file, host)
		return false
	}
	if plain, err := credentials.Normalize(raw); err == nil {
		raw = plain
	}
	object := &corev1.Secret{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Secret"},
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: cluster.DefaultNamespace},
		Type:       corev1.SecretTypeDockerConfigJson,
		Data:       map[string][]byte{corev1.DockerConfigJsonKey: raw},
	}
	c.in.Generated = append(c.in.Generated, Generated{File: to, Object: object})
	c.in.Set.Secrets = append(c.in.Set.Secrets, manifests.Item[*corev1.Secret]{Object: object,
		Origin: manifests.Origin{File: to, Document: 1}})
	return true
}
