// Package layout is the registry's storage on disk, in the file layout of distribution v3: either can serve what the
// other wrote.
//
//	upload -> file, hashed while written -> fsync, rename to its digest -> link in a repository -> manifest -> tag
package layout
