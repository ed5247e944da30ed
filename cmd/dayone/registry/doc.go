// Package registry holds the commands of dayone registry: the bootstrap host's registry on its own.
//
//	--root DIR -> serve | copy | ls | du | gc | verify | rm | status -> images
package registry
