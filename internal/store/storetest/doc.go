// Package storetest is the suite that every implementation of store.Store must
// pass: it shows the invariants S1 to S5, paging, conditions, resuming feeds,
// compaction, expiry and behaviour under concurrency.
package storetest
