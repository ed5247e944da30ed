package analyze

import (
	"encoding/json"
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"

	"sigs.k8s.io/yaml"

	"dayone.dev/dayone/bootstrap/gather/bundle"
)

// Directories of rendered configs, as gather writes them.
const (
	firstDir = renderedDir + "/rendered-first"
	finalDir = renderedDir + "/rendered"
)

// maxDifferences bounds the list; two renderings differ in a handful of fields.
const maxDifferences = 500

// differences compares the configs from which images were built with those that nodes get. Content is redacted alike in
// both, so that equal content compares equal.
func differences(b *bundle.Bundle) []Difference {
	first, final := rendered(b, at(b, firstDir)), rendered(b, at(b, finalDir))
	var out []Difference
	for _, pool := range slices.Sorted(maps.Keys(final)) {
		if first[pool] == nil {
			continue
		}
		fields := maps.Clone(first[pool])
		maps.Copy(fields, final[pool])
		for _, k := range slices.Sorted(maps.Keys(fields)) {
			if a, b := first[pool][k], final[pool][k]; a != b && len(out) < maxDifferences {
				out = append(out, Difference{Pool: pool, Field: k, First: a, Final: b})
			}
		}
	}
	return out
}

// rendered are the flattened configs of a directory by pool: the pool's file names its config. The openshift flow's
// first rendering has each config under its pool's name.
func rendered(b *bundle.Bundle, dir string) map[string]map[string]string {
	out := map[string]map[string]string{}
	for _, file := range b.Below(dir + "/machine-pools") {
		var pool struct {
			Status struct {
				Configuration struct {
					Name string `json:"name"`
				} `json:"configuration"`
			} `json:"status"`
		}
		if yaml.Unmarshal(file.Content, &pool) != nil {
			continue
		}
		if flat := flatConfig(b.Get(path.Join(dir, "machine-configs",
			path.Base(pool.Status.Configuration.Name)+".yaml"))); flat != nil {
			out[poolOf(file)] = flat
		}
	}
	for _, file := range b.Below(dir) {
		if path.Dir(file.Name) != dir {
			continue
		}
		if flat := flatConfig(file); flat != nil {
			out[poolOf(file)] = flat
		}
	}
	return out
}

func poolOf(file *bundle.File) string {
	return shorten(strings.TrimSuffix(path.Base(file.Name), ".yaml"))
}

// flatConfig is a rendered MachineConfig as paths and values; nil when the file has none.
func flatConfig(file *bundle.File) map[string]string {
	if file == nil || file.Truncated {
		return nil
	}
	var config struct {
		Metadata struct {
			Name string `json:"name"`
		} `json:"metadata"`
		Spec map[string]any `json:"spec"`
	}
	if yaml.Unmarshal(file.Content, &config) != nil {
		return nil
	}
	flat := map[string]string{"name": shorten(config.Metadata.Name)}
	flatten(config.Spec, "", flat, 0)
	return flat
}

// maxDepth bounds how deep a config is taken apart.
const maxDepth = 12

// flatten makes a map of paths to values. Elements of lists are named by what identifies them, so that one more file is
// one difference.
func flatten(tree any, at string, out map[string]string, depth int) {
	if depth > maxDepth || len(out) > 20_000 {
		return
	}
	switch v := tree.(type) {
	case map[string]any:
		for k, e := range v {
			flatten(e, strings.TrimPrefix(at+"."+k, "."), out, depth+1)
		}
	case []any:
		for i, e := range v {
			flatten(e, fmt.Sprintf("%s[%s]", at, identity(e, i)), out, depth+1)
		}
	default:
		raw, err := json.Marshal(v)
		if err == nil {
			out[shorten(at)] = shorten(strings.Trim(string(raw), `"`))
		}
	}
}

// identity is what tells an element of a list from the others: a file's path, a unit's or user's name, or its place.
func identity(e any, i int) string {
	switch v := e.(type) {
	case map[string]any:
		for _, key := range []string{"path", "name"} {
			if text, ok := v[key].(string); ok {
				return text
			}
		}
	case string:
		return v
	}
	return fmt.Sprint(i)
}
