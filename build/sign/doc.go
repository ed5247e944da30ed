// Package sign says whose an image is: keys, and signatures in the form that nodes read today, under the name that
// nodes know.
//
//	key file, passphrase file -> Key -> signature beside the image; public keys, image -> accepted or why not
package sign
