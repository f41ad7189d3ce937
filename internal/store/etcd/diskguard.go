package etcd

import (
	"fmt"
	"log/slog"
	"os"
	"sync"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"github.com/kemudi/kemudi/internal/store"
)

const (
	// reserveBytes is what writes leave of the disk, for the next segment of the log and
	// for the next growth of the database. etcd ends the process when it cannot have
	// these.
	reserveBytes = 2 * logSegmentBytes
	// backBytes is how much may be written before the disk must back the database's file.
	backBytes = 1 << 20
	// commitBytes is how much may be written before it is committed, in however few
	// writes. What is not committed is in memory.
	commitBytes = 16 << 20
	// scavengeBytes is how much must have been written to be worth the commits of scavenge.
	scavengeBytes = 4 << 20
)

// diskGuard refuses writes in time when the disk fills up, whoever fills it. Reads go on,
// and what etcd has accepted still fits.
type diskGuard struct {
	dir, db string
	log     *slog.Logger
	reserve uint64
	commit  func() // brings the database up to the log

	unsettled atomic.Uint64 // bytes written since the last commit of ours
	held      atomic.Uint64 // bytes written since etcd let go of what was
	unbacked  atomic.Uint64 // bytes written since the disk backed the file
	refusing  atomic.Bool

	// settling is held by the one commit at a time: a writer that waited for it finds its
	// own bytes committed. turn holds it, too.
	settling sync.Mutex
}

// take makes sure that there is room for n bytes, or says in a store.ErrDisk why not.
func (g *diskGuard) take(n int) error {
	size := uint64(n)
	// What is not committed yet is in the log and goes to the database as well.
	err := g.check(2 * (g.unsettled.Load() + size))
	if err != nil {
		g.settle()
		err = g.check(2 * size)
	}
	if (err != nil) != g.refusing.Load() {
		g.turn()
	}
	if err != nil {
		return err
	}
	g.held.Add(size)
	if g.unsettled.Add(size) > commitBytes {
		g.settle()
	}
	if g.unbacked.Add(size) > backBytes {
		g.back()
	}
	return nil
}

// turn tells the operator when writes begin or cease to be refused. It checks again: since
// the caller's check, another writer may have found the disk changed, and told.
func (g *diskGuard) turn() {
	g.settling.Lock()
	defer g.settling.Unlock()
	err := g.check(0)
	switch refused := err != nil; {
	case refused == g.refusing.Swap(refused):
	case refused:
		g.log.Error("writes are refused, reads go on", "err", err)
	default:
		g.log.Info("writes are possible again")
	}
}

// check says why the disk does not take n bytes.
func (g *diskGuard) check(n uint64) error {
	var fs unix.Statfs_t
	if err := unix.Statfs(g.dir, &fs); err != nil {
		return fmt.Errorf("%w: look at %s: %w", store.ErrDisk, g.dir, err)
	}
	if fs.Flags&unix.ST_RDONLY != 0 {
		return fmt.Errorf("%w: the file system of %s is read-only; the kernel's log may say why", store.ErrDisk, g.dir)
	}
	if free := fs.Bavail * uint64(fs.Bsize); free < g.reserve+n {
		return fmt.Errorf("%w: %d MiB are left on the disk of %s, and %d MiB must be; free some space there", store.ErrDisk, free>>20, g.dir, (g.reserve+n)>>20)
	}
	return nil
}

// settle commits what has been written, while the disk still takes it.
func (g *diskGuard) settle() {
	g.settling.Lock()
	defer g.settling.Unlock()
	if g.unsettled.Swap(0) == 0 {
		return
	}
	g.back()
	g.commit()
	g.back()
}

// scavenge has etcd let go of what was written, if it is much. Its buffers hold on to what they
// had after a commit, until they are written to again or there is one more.
func (g *diskGuard) scavenge() {
	if g.held.Load() < scavengeBytes {
		return
	}
	g.settling.Lock()
	defer g.settling.Unlock()
	g.held.Store(0)
	g.unsettled.Store(0)
	g.back()
	g.commit()
	g.commit()
	g.back()
}

// back has the disk set aside blocks for the whole of the database's file. The file grows
// in large steps, most of which are holes at first, and etcd writes into the holes by
// itself, such as the end of leases. Where the file system cannot set blocks aside, a full
// disk may end the process, which loses no acknowledged write.
func (g *diskGuard) back() {
	g.unbacked.Store(0)
	f, err := os.OpenFile(g.db, os.O_RDWR, 0)
	if err != nil {
		return
	}
	defer f.Close()
	var st unix.Stat_t
	if unix.Fstat(int(f.Fd()), &st) == nil && st.Blocks*512 < st.Size {
		_ = unix.Fallocate(int(f.Fd()), unix.FALLOC_FL_KEEP_SIZE, 0, st.Size)
	}
}
