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
	// reserveBytes is what writes leave of the disk: the next segment of the log, and
	// what the database grows by at one time. etcd ends the process when it cannot
	// have these.
	reserveBytes = 2 * logSegmentBytes
	// backBytes is how much may be written before the database's file is looked at.
	backBytes = 1 << 20
	// commitBytes is how much may be written before it is committed, however few
	// writes it was: until then all of it is in memory.
	commitBytes = 16 << 20
)

// room refuses writes in time when the disk fills up, whoever fills it, so that
// reads go on and nothing that etcd has taken on is left over that needs room.
type room struct {
	dir, db string
	log     *slog.Logger
	reserve uint64
	commit  func() // brings the database up to the log

	unsettled atomic.Uint64 // bytes written since the last commit of ours
	unbacked  atomic.Uint64 // bytes written since the file was looked at
	refusing  atomic.Bool

	// One commit at a time: the others wait for it and need none. One at a time looks
	// whether to tell the operator, too.
	settling sync.Mutex
}

// take makes sure that there is room for n bytes, or says in a store.ErrDisk why not.
func (r *room) take(n int) error {
	size := uint64(n)
	// What is not committed yet is in the log and goes to the database as well.
	err := r.check(2 * (r.unsettled.Load() + size))
	if err != nil {
		r.settle()
		err = r.check(2 * size)
	}
	if (err != nil) != r.refusing.Load() {
		r.turn()
	}
	if err != nil {
		return err
	}
	if r.unsettled.Add(size) > commitBytes {
		r.settle()
	}
	if r.unbacked.Add(size) > backBytes {
		r.back()
	}
	return nil
}

// turn tells the operator when writes begin or cease to be refused. It looks anew: others
// may have told already, by what was found out later than by this one.
func (r *room) turn() {
	r.settling.Lock()
	defer r.settling.Unlock()
	err := r.check(0)
	switch refused := err != nil; {
	case refused == r.refusing.Swap(refused):
	case refused:
		r.log.Error("writes are refused, reads go on", "err", err)
	default:
		r.log.Info("writes are possible again")
	}
}

// check says why the disk does not take n bytes.
func (r *room) check(n uint64) error {
	var fs unix.Statfs_t
	if err := unix.Statfs(r.dir, &fs); err != nil {
		return fmt.Errorf("%w: look at %s: %w", store.ErrDisk, r.dir, err)
	}
	if fs.Flags&unix.ST_RDONLY != 0 {
		return fmt.Errorf("%w: the file system of %s is read-only; the kernel's log may say why", store.ErrDisk, r.dir)
	}
	if free := fs.Bavail * uint64(fs.Bsize); free < r.reserve+n {
		return fmt.Errorf("%w: %d MiB are left on the disk of %s, and %d MiB must be; free some space there", store.ErrDisk, free>>20, r.dir, (r.reserve+n)>>20)
	}
	return nil
}

// settle commits what has been written, while there is still room for it.
func (r *room) settle() {
	r.settling.Lock()
	defer r.settling.Unlock()
	if r.unsettled.Swap(0) == 0 {
		return
	}
	r.back()
	r.commit()
	r.back()
}

// back has the disk set aside what the database's file claims to have: it grows in
// large steps, most of which are holes at first, and etcd goes on to write a
// little by itself, such as the end of leases. Where this does not work, a full disk
// may end the process, which loses nothing.
func (r *room) back() {
	r.unbacked.Store(0)
	f, err := os.OpenFile(r.db, os.O_RDWR, 0)
	if err != nil {
		return
	}
	defer f.Close()
	var st unix.Stat_t
	if unix.Fstat(int(f.Fd()), &st) == nil && st.Blocks*512 < st.Size {
		_ = unix.Fallocate(int(f.Fd()), unix.FALLOC_FL_KEEP_SIZE, 0, st.Size)
	}
}
