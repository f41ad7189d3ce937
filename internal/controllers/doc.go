// Package controllers lists the controllers of the cluster; each is a package
// below.
package controllers
