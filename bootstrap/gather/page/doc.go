// Package page writes a report of analyze as one HTML file: no script, no font and no picture is fetched from anywhere.
//
//	analyze.Report -> bars over time, tables -> report.html
package page
