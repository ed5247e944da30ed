// Package route takes the paths of the OCI distribution API apart, for all that serve it.
//
//	/v2/NAME/blobs/DIGEST -> Route{End, Name, Ref}
package route
