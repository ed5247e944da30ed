// Package decide says what a pool that needs an image gets next: build, reuse, rebuild, retry, wait, give up or
// nothing.
//
//	Input (content address, known builds, requests, limits, time) -> chain of policies -> Decision with its reason
//
// It is pure. A build is known by the content address of its inputs, never by names: what does not reach the image
// changes nothing here.
package decide
