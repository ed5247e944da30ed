// Package places says where an image may be had.
//
//	registries.conf, name of an image -> its mirrors in their order, then its own registry, without what is blocked
package places
