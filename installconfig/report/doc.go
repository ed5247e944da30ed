// Package report collects what is wrong or doubtful in a user's input, each finding with its place, its rule and the
// next step.
//
//	reader or validator -> Finding … -> Report -> error (all refusals at once) or warnings
package report
