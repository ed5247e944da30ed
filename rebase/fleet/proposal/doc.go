// Package proposal reads what a user would apply to a cluster or delete from it, strictly: what an API server would
// drop in silence, and what no forecast covers, is refused or named.
//
//	files, KIND/NAME -> objects, each compared with its kind -> Proposal: snapshot.Dump, what is not forecast, hints
package proposal
