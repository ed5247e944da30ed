// Package pods reads pods and their logs. Kubernetes' typed client does the same and more, and is a megabyte of each
// program that links it.
//
//	rest.Config -> Client -> pods of a namespace, the log of a container
package pods
