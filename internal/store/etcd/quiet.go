package etcd

import (
	"sync"
	"time"
	_ "unsafe" // for go:linkname

	_ "go.etcd.io/etcd/server/v3/storage/mvcc"
)

// etcd looks ten times a second whether a watch has fallen behind, which is more
// than a third of all that an idle node does, and offers no setting for it. These
// are its variables.
//
//go:linkname watchResyncPeriod go.etcd.io/etcd/server/v3/storage/mvcc.watchResyncPeriod
var watchResyncPeriod time.Duration

//go:linkname chanBufLen go.etcd.io/etcd/server/v3/storage/mvcc.chanBufLen
var chanBufLen int

const (
	// How often etcd looks for watches that have fallen behind: those that begin in
	// the past, and those whose buffer was full. A feed begins where its list ends,
	// so that the former are rare, and watchBuffer keeps the latter so.
	resyncPeriod = time.Second
	// So many transactions may be applied before the goroutine that sends them on
	// gets to run. A slot takes 64 bytes, in each feed.
	watchBuffer = 2048
)

// quieten makes the etcd of this process do less while nothing happens. It comes
// before the first server is started, and is not done again.
var quieten = sync.OnceFunc(func() { watchResyncPeriod, chanBufLen = resyncPeriod, watchBuffer })
