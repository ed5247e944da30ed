// Package program runs the host's programs and turns what they say into faults.
//
//	command line -> rpm-ostree, bootc, ostree, systemctl -> output | deploy.Fault (class, what to do next)
package program
