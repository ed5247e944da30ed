// Package browser drives a real Chromium without a screen, for tests of what people see.
//
//	test -> DevTools protocol over two pipes -> chromium-headless-shell -> what the page shows, a picture
package browser
