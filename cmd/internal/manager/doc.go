// Package manager runs a program's controllers: flags, cluster access, leader election, health, metrics and logs.
//
//	Program (name, cache, controllers) + flags -> Run -> controllers work until ctx ends or the lease is lost
package manager
