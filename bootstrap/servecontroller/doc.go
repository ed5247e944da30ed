// Package servecontroller keeps the config server in step with a running cluster, so that a new node gets its pool's
// config and image.
//
//	pools, nodes, rendered configs, images, ControllerConfig -> what each pool's new nodes get -> bootstrap/serve
package servecontroller
