// Package mem is the store in memory: all of package store's promises but
// durability. It serves the simulated cluster and tests.
//
// It runs no goroutine of its own and holds no lock across a wait, so that it
// works on virtual time (testing/synctest). Keys expire by one timer for the
// earliest of them; old history is dropped by the writes that follow.
package mem
