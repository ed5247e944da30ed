package installconfig

import (
	"strconv"

	"go.yaml.in/yaml/v3"

	"dayone.dev/dayone/installconfig/report"
)

// sourceKeys are the present name of the field and the one before.
func sourceKeys() []string { return []string{"imageDigestSources", "imageContentSources"} }

// neverContactSource is a value of sourcePolicy.
const neverContactSource = "NeverContactSource"

// digestSources refuses mirrors of which one does not know what they are for.
func digestSources(f installerFile, rep *report.Report) {
	present := 0
	for _, key := range sourceKeys() {
		n := f.node(key)
		if n == nil || len(n.Content) == 0 {
			continue
		}
		if present++; present > 1 {
			rep.Errorf(f.at(n, key, "image-sources", "keep imageDigestSources: the other is its old name"),
				"imageDigestSources and imageContentSources are both set")
		}
		for i, e := range n.Content {
			path := key + "[" + strconv.Itoa(i) + "]"
			if source := child(e, "source"); source == nil || source.Value == "" {
				rep.Errorf(f.at(e, path+".source", "image-sources", "write host[:port][/path]"),
					"nothing says whose mirrors these are")
			}
			policy := child(e, "sourcePolicy")
			if policy != nil && policy.Value != "" && policy.Value != neverContactSource &&
				policy.Value != "AllowContactingSource" {
				rep.Errorf(f.at(policy, path+".sourcePolicy", "image-sources",
					"write AllowContactingSource or NeverContactSource"), "unknown policy %q", policy.Value)
			}
		}
	}
}

// mirrors are those of the field, in its order.
func mirrors(f installerFile) []MirrorSource {
	var out []MirrorSource
	for _, key := range sourceKeys() {
		n := f.node(key)
		if n == nil {
			continue
		}
		for _, e := range n.Content {
			out = append(out, mirrorSource(e))
		}
	}
	return out
}

func mirrorSource(e *yaml.Node) MirrorSource {
	var m MirrorSource
	if n := child(e, "source"); n != nil {
		m.Source = n.Value
	}
	if n := child(e, "sourcePolicy"); n != nil {
		m.Never = n.Value == neverContactSource
	}
	if list := child(e, "mirrors"); list != nil {
		for _, n := range list.Content {
			m.Mirrors = append(m.Mirrors, n.Value)
		}
	}
	return m
}
