// Package analyze says what happened on a bootstrap host from its log bundle alone: the verdict first, then the times.
//
//	bundle -> journal, outcome, service records, logs -> verdict (phase, cause, evidence, next step) + timeline + builds + differences
package analyze
