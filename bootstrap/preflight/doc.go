// Package preflight loads an install directory and refuses, before anything starts, whatever cannot work.
//
//	install directory -> sidecar + manifests + MachineOSConfigs + Secrets -> Input, or every refusal with file, path and rule
package preflight
