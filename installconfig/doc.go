// Package installconfig reads the user's words: the onClusterLayering field of install-config.yaml.
//
//	install-config.yaml -> Load (strict, every refusal with line and column) -> Config with defaults -> Strip -> sidecar .dayone/layering.yaml
package installconfig
