// Package transfer reaches images in registries.
//
//	credentials.Accounts -> Keychain -> registry
package transfer
