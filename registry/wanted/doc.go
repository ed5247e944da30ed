// Package wanted is what a cluster's registries and its controllers say to each other in files and annotations: the
// list of images that each registry must hold, and how far one of them is.
//
//	controller -> List -> file of the registry -> Report -> annotation of the node -> controller
package wanted
