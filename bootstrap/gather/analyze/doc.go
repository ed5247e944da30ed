// Package analyze says what happened on a bootstrap host from its log bundle alone: the verdict first, then the times.
//
//	bundle -> facts (journal, outcome, records, logs) -> rules -> verdict + timeline + builds + differences
package analyze
