// Package arch holds the tests that keep the house in order: which package may
// import which, which third-party code is allowed and why, package comments,
// size caps, names in comments, and the few Go constructs that are kept to one place. The rules
// are explained in docs/STYLE.md.
//
// Each rule is a function from the parsed source tree to violations, so that it
// is tried on small bad examples (bite_test.go) before it is applied to the
// tree (arch_test.go). Policy is in layers_test.go, allowed_test.go and
// exceptions_test.go: change it on purpose, in a commit of its own.
//
// It has no code outside tests, and nothing may import it.
package arch
