// Package hostjournal reads from the journal of a host what concerns its node: how the last shutdown finalized the
// staged deployment, and that somebody has logged in.
//
//	journalctl -> lines -> failure of the finalization, logins with their cursors
package hostjournal
