// Package coreuser keeps what the core user logs in with as a node's config says: SSH keys in a home directory, and a
// password. No image holds them.
//
//	config before, config after, root -> ApplyKeys, ApplyPassword -> ~core/.ssh, /etc/shadow -> VerifyKeys: mismatch
package coreuser
