// Package noderestriction is the plugin NodeRestriction: what node agents may
// write. Which objects they may read or write at all, by name, is decided before, in
// package auth/node.
package noderestriction
