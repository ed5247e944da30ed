package job

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"dayone.dev/dayone/manifests/registryauth"
)

// credential is one entry of an auth.json (containers-auth.json(5)).
type credential struct {
	Auth          string `json:"auth,omitempty"`
	Username      string `json:"username,omitempty"`
	Password      string `json:"password,omitempty"`
	IdentityToken string `json:"identitytoken,omitempty"`
}

type authFile struct {
	Auths map[string]credential `json:"auths"`
}

// Canonical reads a registry Secret, in today's form (.dockerconfigjson) or the old one (.dockercfg), into auth.json
// form. Equal credentials give equal bytes, whatever order, form and additions the Secret has. No error quotes the
// Secret's content.
func Canonical(secret *corev1.Secret) ([]byte, error) {
	if secret == nil {
		return nil, errors.New("read registry Secret: there is none")
	}
	fault := func(key, what string) error {
		return fmt.Errorf("read registry Secret %s/%s: key %s %s", secret.Namespace, secret.Name, key, what)
	}
	var file authFile
	switch raw, old := secret.Data[corev1.DockerConfigJsonKey], secret.Data[corev1.DockerConfigKey]; {
	case len(raw) > 0:
		if json.Unmarshal(raw, &file) != nil {
			return nil, fault(corev1.DockerConfigJsonKey, "is not in auth.json form")
		}
	case len(old) > 0:
		if json.Unmarshal(old, &file.Auths) != nil {
			return nil, fault(corev1.DockerConfigKey, "is not in dockercfg form")
		}
	default:
		return nil, fmt.Errorf(
			"read registry Secret %s/%s: it has neither key %s nor key %s; make it with type kubernetes.io/dockerconfigjson",
			secret.Namespace, secret.Name, corev1.DockerConfigJsonKey, corev1.DockerConfigKey)
	}
	if len(file.Auths) == 0 {
		return nil, fmt.Errorf("read registry Secret %s/%s: it has no credentials; add an entry for the registry",
			secret.Namespace, secret.Name)
	}
	for host, c := range file.Auths {
		plain, err := c.canonical()
		if err != nil {
			return nil, fmt.Errorf("read registry Secret %s/%s: entry %s: %w", secret.Namespace, secret.Name, host, err)
		}
		file.Auths[host] = plain
	}
	return json.Marshal(file)
}

// canonical has user and password in auth alone.
func (c credential) canonical() (credential, error) {
	if c.Auth == "" && c.Username != "" {
		c.Auth = base64.StdEncoding.EncodeToString([]byte(c.Username + ":" + c.Password))
	}
	if plain, err := base64.StdEncoding.DecodeString(c.Auth); err != nil || c.Auth != "" &&
		!strings.Contains(string(plain), ":") {
		return credential{}, errors.New("auth is not USER:PASSWORD in base64")
	}
	if c.Auth == "" && c.IdentityToken == "" {
		return credential{}, errors.New("it has neither auth nor username and password")
	}
	return credential{Auth: c.Auth, IdentityToken: c.IdentityToken}, nil
}

// MergeAuth joins credentials for pulls with those for the push to target (host:port/repository) into one auth.json:
// the target's repository uses the push credentials, everything else those for pulls where there are any. Both are in
// auth.json form; pull may be empty.
func MergeAuth(pull, push []byte, target string) ([]byte, error) {
	var from, to authFile
	if len(pull) > 0 {
		if json.Unmarshal(pull, &from) != nil {
			return nil, errors.New("read pull credentials: they are not in auth.json form")
		}
	}
	if json.Unmarshal(push, &to) != nil {
		return nil, errors.New("read push credentials: they are not in auth.json form")
	}
	merged := authFile{Auths: registryauth.ByKey(to.Auths)}
	c, ok := registryauth.Find(merged.Auths, target)
	if !ok {
		host, _, _ := strings.Cut(target, "/")
		return nil, fmt.Errorf("read push credentials: there is no entry for %s; add one to the push Secret", host)
	}
	maps.Copy(merged.Auths, registryauth.ByKey(from.Auths))
	merged.Auths[registryauth.Key(target)] = c
	return json.Marshal(merged)
}

// AuthFor takes the credentials for repository (host:port/path) out of an auth.json and files them under the name at,
// by which it is reached from here.
func AuthFor(auth []byte, repository, at string) ([]byte, error) {
	var file authFile
	if json.Unmarshal(auth, &file) != nil {
		return nil, errors.New("read credentials: they are not in auth.json form")
	}
	c, ok := registryauth.Find(registryauth.ByKey(file.Auths), repository)
	if !ok {
		return nil, fmt.Errorf("read credentials: there is no entry for %s", repository)
	}
	return json.Marshal(authFile{Auths: map[string]credential{at: c}})
}
