// Package registrystatus reads how far the registries of the control plane are with the images that they must hold.
//
//	ConfigMaps of the registries' controller, reports of nodes -> wanted images, who has them, who lacks what
package registrystatus
