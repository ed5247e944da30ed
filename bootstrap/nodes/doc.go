// Package nodes knows how far each node is on its way to its image, from what the bootstrap host sees of it.
//
//	config requests, pulls, reports -> Table (pure) -> STATE/nodes.json -> status, page, bundle, analyze
package nodes
