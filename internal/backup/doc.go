// Package backup writes backups of a cluster, archives of its store and its keys: one when it is told to, or by a schedule, of
// which the newest ones are kept.
//
// Where the store comes from is its caller's business. How a cluster goes on from a backup is known to internal/store/takeover
// and internal/cluster, which know nothing of backups: they take the two parts of one as they take any other store.
package backup
