// Package rotation replaces the accounts and the CA that the registries of a control plane share, in steps between
// which nothing fails: every registry accepts what any client has, and the reverse, while nodes are between two steps.
//
//	directory of accounts and CA -> Next -> the same files: old and new beside each other, then the new ones alone
package rotation
