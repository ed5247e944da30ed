// Package journal makes work resumable: it runs named phases and keeps their results in a file of the state directory,
// so that a process goes on where the one before was cut off. It knows nothing of what the phases do.
//
//	step + inputs -> recorded result that still holds, or a run -> journal.json -> observers
package journal
