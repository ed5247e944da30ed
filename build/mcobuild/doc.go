// Package mcobuild explains builds of the Machine Config Operator's own builder and keeps what is known of them.
//
//	build, Job, pod, log -> Explain -> Failure -> Record -> ConfigMap -> dayone cluster logs
//
// It is pure. What it knows of that builder: the Job build-NAME makes up to four pods, in which the init container
// image-build runs buildah with MCO's Containerfile and the user's text below it, and the container
// create-digest-configmap tells the digest of the image.
package mcobuild
