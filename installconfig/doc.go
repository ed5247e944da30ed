// Package installconfig reads the user's words: the onClusterLayering field of install-config.yaml.
//
//	install-config.yaml -> Load (strict, findings with line and column) -> Config with defaults -> .dayone/layering.yaml
package installconfig
