// Package buildlog keeps the log of a build in the registry, beside the image that it made, for when the pod is gone.
//
//	log text -> Push -> manifest (artifactType, subject = image, tag = build) -> Read -> log text
//
// A failed build has no image: its log has the tag alone.
package buildlog
