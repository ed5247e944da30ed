// Package quiet is the log of those who pass none.
//
//	nothing -> Log -> *logrus.Entry that drops every message
package quiet
