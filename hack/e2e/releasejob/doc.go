// Package releasejob stands in for the node on which a release's MachineConfigs are rendered, where no image can run.
//
//	pods of the API server -> containers as processes of this machine -> their status and logs
package releasejob
