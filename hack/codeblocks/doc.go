// Package codeblocks reads the code blocks of Markdown pages, for tests that run them.
//
//	page.md -> Of -> blocks -> Commands
package codeblocks
