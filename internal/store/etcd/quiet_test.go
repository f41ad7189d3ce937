package etcd

import (
	"testing"
	"time"
)

// TestQuietensTheEtcdOfThisVersion fails when etcd does not have the variables any
// more that quieten sets: they are then ours alone, and zero.
func TestQuietensTheEtcdOfThisVersion(t *testing.T) {
	if etcdResync != 100*time.Millisecond || etcdBuffer != 128 {
		t.Errorf("etcd's own: got a look at late watches every %s and a buffer of %d, want 100ms and 128", etcdResync, etcdBuffer)
	}
	quieten()
	if watchResyncPeriod != resyncPeriod || chanBufLen != watchBuffer {
		t.Errorf("set: got %s and %d, want %s and %d", watchResyncPeriod, chanBufLen, resyncPeriod, watchBuffer)
	}
}

// etcdResync and etcdBuffer are what etcd begins with.
var etcdResync, etcdBuffer = watchResyncPeriod, chanBufLen
