// Package storageprotection keeps claims that pods use, volumes that are bound, and classes of
// attributes that claims or volumes have: who deletes one has to wait until nobody needs it. A finalizer holds it up, which
// admission gives to new ones; here it is given to others, and taken away in the end. Of claims that are not deleted it tells
// whether a pod refers to them, and since when (unused.go).
package storageprotection
