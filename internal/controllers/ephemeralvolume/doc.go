// Package ephemeralvolume makes the claims of volumes that live as long as their
// pod. The pod owns them, so that the garbage collector deletes them with it.
package ephemeralvolume
