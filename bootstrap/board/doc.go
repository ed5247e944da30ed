// Package board is what status shows of a bootstrap and of a cluster: one value for terminal, page and programs.
//
//	journal, nodes, build output | objects of a cluster -> Board -> Lines, Changes, page, JSON
package board
