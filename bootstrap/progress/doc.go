// Package progress shows people what runs: one live line on a terminal, plain lines elsewhere.
//
//	phase events, build events, steps, log lines -> View -> terminal or file
package progress
