// Package version says which build of Kemudi this is and which version of
// Kubernetes it presents to clients. The values are stamped by the linker (see
// the Makefile); nothing else lives here.
package version
