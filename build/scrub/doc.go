// Package scrub takes secrets out of text.
//
//	config -> Config -> secrets -> New -> Replace(text) -> text with ***** in their places
package scrub
