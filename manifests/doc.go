// Package manifests reads a directory of cluster objects into a typed Set and writes objects as deterministic YAML.
//
//	directory of YAML and JSON -> documents -> Set (typed objects, each with its place) -> Marshal -> YAML
package manifests
