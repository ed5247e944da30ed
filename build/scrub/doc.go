// Package scrub takes secrets out of text.
//
//	secrets -> New -> Replace(text) -> text with ***** in their places
package scrub
