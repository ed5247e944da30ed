// Package decide says what is to be done for a pool that asks for an image: build, reuse, rebuild, retry, wait, give up
// or nothing.
//
//	Input (content address, known builds, wishes, limits, time) -> first policy of the chain that has an opinion -> Decision with its reason
//
// It is pure. A build is known by the content address of its inputs, never by names: what does not reach the image
// changes nothing here.
package decide
