// Package build turns a rendered config, a Containerfile and a base image into an OS image with a content address.
//
//	Request -> Address -> reuse | base -> config layer -> append engine or container engine -> check -> tag -> Result
package build
