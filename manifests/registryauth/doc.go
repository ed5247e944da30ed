// Package registryauth says which entry of a pull secret counts for a repository.
//
//	auths of an auth.json → ByKey → Find(repository) → the entry
package registryauth
