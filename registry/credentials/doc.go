// Package credentials reads, merges, looks up and writes registry credentials: auth files (containers-auth.json(5)),
// which Kubernetes calls pull secrets.
//
//	auth file, Secret -> Merge, Remove, Canonical -> Parse -> Accounts.Find(repository) -> Account
//
// No error quotes the content of a file.
package credentials
