package installconfig

import (
	"encoding/base64"
	"encoding/json"
	"maps"
	"slices"
	"strings"

	"dayone.dev/dayone/installconfig/report"
)

// pullSecret refuses credentials that no program on a node could read. It never quotes them.
func pullSecret(f installerFile, rep *report.Report) {
	n := f.node("pullSecret")
	if n == nil {
		return
	}
	at := f.at(n, "pullSecret", "pull-secret",
		`write it as your registry gives it: '{"auths":{"HOST":{"auth":"BASE64 OF USER:PASSWORD"}}}'`)
	if n.Value == "" {
		if f.config.Flow != FlowStandalone {
			rep.Errorf(at, "the pull secret is empty")
		} else {
			rep.Warnf(at, "the pull secret is empty: nodes pull without an account")
		}
		return
	}
	var secret struct {
		Auths map[string]struct {
			Auth       *string `json:"auth"`
			CredsStore *string `json:"credsStore"`
		} `json:"auths"`
	}
	if err := json.Unmarshal([]byte(n.Value), &secret); err != nil {
		rep.Errorf(at, "the pull secret is not JSON of the form {\"auths\": …}") // the cause may quote it
		return
	}
	if len(secret.Auths) == 0 {
		rep.Errorf(at, "the pull secret has no entry in auths")
	}
	for _, host := range slices.Sorted(maps.Keys(secret.Auths)) {
		entry := secret.Auths[host]
		switch {
		case entry.Auth == nil && entry.CredsStore == nil:
			rep.Errorf(at, "the entry for %s has no auth", host)
		case entry.Auth == nil:
		case !userAndPassword(*entry.Auth):
			rep.Errorf(at, "auth of %s is not USER:PASSWORD in base64", host)
		}
	}
}

func userAndPassword(auth string) bool {
	raw, err := base64.StdEncoding.DecodeString(auth)
	user, _, ok := strings.Cut(string(raw), ":")
	return err == nil && ok && user != ""
}
