// Package build turns a rendered config, a Containerfile and a base image into an OS image with a content address.
//
//	Request -> Address -> (same address in the registry: reuse) | config layer -> append engine | container engine -> seal -> check -> Result
package build
