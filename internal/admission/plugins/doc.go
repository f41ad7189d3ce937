// Package plugins has the plugins of admission in the order in which they are
// asked, list.go, and those of them that are small. Larger ones have folders beside
// this one. What a plugin is says package admission.
package plugins
