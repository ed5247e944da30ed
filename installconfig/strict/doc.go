// Package strict compares YAML with Go types and says where it has keys that a type does not know, keys that occur
// twice, and values of another kind: all at once, each with its line, its column and the word that was probably meant.
// Decoders stop at the first fault, know neither its column nor what was meant, and some of them ignore unknown keys.
//
//	YAML node, Go type -> Check -> findings; path -> Place -> line and column
package strict
