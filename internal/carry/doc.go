// Package carry copies what comes by one connection to another: the one way of it. Who carries both
// ways, for how long, and what ends them, is for who calls.
package carry
