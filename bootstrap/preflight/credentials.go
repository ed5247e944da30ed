package preflight

import (
	"encoding/json"
	"strings"
)

// pushCredentials warns when the push Secret has nothing for the repository: the build would succeed, and the hand-over of its image
// fail when the masters are up. It is no refusal: a registry may let anybody push from where it is reached.
func (c *checker) pushCredentials(item mosc, raw []byte, repository string) {
	if raw == nil || repository == "" || covers(raw, repository) {
		return
	}
	host, _, _ := strings.Cut(repository, "/")
	at := item.Origin.At("spec.renderedImagePushSecret.name", "push-secret-host")
	at.Next = "add an entry for " + host + " to its auths"
	c.rep.Warnf(at, "Secret %q has no credentials for %s", item.Object.Spec.RenderedImagePushSecret.Name, repository)
}

// covers tells whether auth.json content has an entry for the repository: keys are HOST or HOST/PATH (containers-auth.json(5)).
func covers(raw []byte, repository string) bool {
	var content struct {
		Auths map[string]json.RawMessage `json:"auths"`
	}
	if json.Unmarshal(raw, &content) != nil {
		return true // refused elsewhere
	}
	for key := range content.Auths {
		key = strings.TrimPrefix(strings.TrimPrefix(key, "https://"), "http://")
		key = strings.TrimSuffix(strings.TrimSuffix(strings.TrimSuffix(key, "/"), "/v1"), "/v2")
		if key != "" && (key == repository || strings.HasPrefix(repository, key+"/")) {
			return true
		}
	}
	return false
}
