// Package image builds the images that the tests and the example application
// run: agnhost (which imitates the conformance tests' image), web and busybox,
// each under kemudi.local and for this machine. They are made of the agent
// program beside it and of Debian's busybox-static; no registry is asked.
package image
