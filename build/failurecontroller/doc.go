// Package failurecontroller watches the builds beside a running Machine Config Operator (MCO), its own or dayone's, and
// says why one failed. It keeps its log beyond its pod's life, and asks MCO for another attempt where that may help.
//
//	MachineOSBuilds, Jobs, pods, logs -> mcobuild.Explain -> ConfigMap dayone-build-NAME, event, metrics, rebuild request
//
// Of MCO's objects it changes one annotation of a MachineOSConfig, machineconfiguration.openshift.io/rebuild. It reads
// no Secret.
package failurecontroller
