// Package pages has the test that runs the examples of all help pages and the console blocks of the documentation as
// they stand, on one machine of its own: with registries, a bootstrap and a cluster.
//
//	dayone COMMAND --help, docs/*.md -> acts -> bash, in namespaces -> exit codes, what pages show
package pages
