// Package takeover reads the store that another Kubernetes has left, the directory of an
// etcd that has ended or a snapshot of one, and makes one of ours of it. Each key stays as
// it is, with its revisions; what there is of history, members and users of the etcd does not
// come along.
//
// Start at [Open]. Nothing is written where the store is: all work is done on a copy. What
// keys mean is for who calls to know.
package takeover
