// Package pressure keeps a node from running out of memory and disk: it measures what
// is left, tells the API when that is little, and lets pods go, one after another, until
// there is more again. Start at [Watch.Run].
//
// What is little, and which pod goes, is decided by package evict.
package pressure
