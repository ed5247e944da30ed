// Package storage keeps the registry's images on disk with distribution's registry/storage packages over a driver of
// ours that is durable, stays within a budget and never returns bytes that do not have their digest.
//
//	request -> distribution's blob writer, manifest and tag services -> driver -> files under Root
package storage
