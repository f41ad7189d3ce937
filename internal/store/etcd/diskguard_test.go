package etcd

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/kemudi/kemudi/internal/store"
)

// smallDisk mounts a file system of its own.
func smallDisk(t *testing.T, mib int) string {
	t.Helper()
	dir := t.TempDir()
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, fmt.Sprintf("size=%dm", mib)); err != nil {
		t.Skipf("a small file system needs root: %v", err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(dir, unix.MNT_DETACH); err != nil {
			t.Errorf("unmount %s: %v", dir, err)
		}
	})
	return dir
}

// fill takes all that is left of a disk.
func fill(t *testing.T, path string) {
	t.Helper()
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for size := 1 << 20; size > 0; {
		if _, err := f.Write(make([]byte, size)); errors.Is(err, syscall.ENOSPC) {
			size /= 2
		} else if err != nil {
			t.Fatal(err)
		}
	}
}

// TestAFullDiskLosesNothingAndHoldsUpWritesAlone fills the disk in the middle of
// writes: etcd by itself would end the process.
func TestAFullDiskLosesNothingAndHoldsUpWritesAlone(t *testing.T) {
	disk := smallDisk(t, 160)
	dir, filler := filepath.Join(disk, "data"), filepath.Join(disk, "filler")
	var log bytes.Buffer
	s, stop := run(t, Options{Dir: dir, Log: slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelInfo}))})
	var acknowledged struct {
		sync.Mutex
		keys []string
	}
	// put writes until it is refused, at the latest after some 10,000 writes of 4 KiB.
	put := func(name string) error {
		for i := range 10_000 {
			key := fmt.Sprintf("/%s/%d", name, i)
			op := store.Op{Key: key, Value: bytes.Repeat([]byte("x"), 4<<10)}
			if i%100 == 0 {
				op.TTL = time.Hour
			}
			if _, err := s.Txn(t.Context(), store.Txn{Ops: []store.Op{op}}); err != nil {
				return err
			}
			acknowledged.Lock()
			acknowledged.keys = append(acknowledged.keys, key)
			acknowledged.Unlock()
		}
		return nil
	}
	complete := func(when string) {
		p, err := s.List(t.Context(), "/", store.ListOptions{})
		if err != nil || len(p.KVs) != len(acknowledged.keys) {
			t.Errorf("%s: got %d keys, %v; want the %d acknowledged", when, len(p.KVs), err, len(acknowledged.keys))
		}
	}
	for round := range 2 {
		var wg sync.WaitGroup
		for i := range 4 {
			wg.Go(func() {
				err := put(fmt.Sprintf("%d-%d", round, i))
				if !errors.Is(err, store.ErrDisk) || !strings.Contains(err.Error(), disk) || !strings.Contains(err.Error(), "free some space") {
					t.Errorf("write to a full disk: got %v, want ErrDisk with the directory and what to do", err)
				}
			})
		}
		eventually(t, "some writes", func() bool {
			acknowledged.Lock()
			defer acknowledged.Unlock()
			return len(acknowledged.keys) > 500*(round+1)
		})
		fill(t, filler)
		wg.Wait()
		if err := s.Writable(t.Context()); !errors.Is(err, store.ErrDisk) {
			t.Errorf("health with a full disk: got %v, want ErrDisk", err)
		}
		complete("disk is full")
		if err := os.Remove(filler); err != nil {
			t.Fatal(err)
		}
		if err := s.Writable(t.Context()); err != nil {
			t.Errorf("health with room again: got %v", err)
		}
		key := fmt.Sprintf("/after/%d", round)
		write(t, s, key, "x")
		acknowledged.keys = append(acknowledged.keys, key)
	}
	stop()
	for _, want := range []string{"writes are refused, reads go on", "writes are possible again"} {
		// Each round once; more often if etcd gives up an old log in the meantime.
		if n := strings.Count(log.String(), want); n < 2 || n > 4 {
			t.Errorf("got %d times %q in the log, want 2:\n%s", n, want, log.String())
		}
	}
	// A server can also be started on a full disk, to see what is there.
	fill(t, filler)
	s, stop = run(t, Options{Dir: dir})
	complete("started on a full disk")
	if err := put("never"); !errors.Is(err, store.ErrDisk) {
		t.Errorf("write after a start on a full disk: got %v, want ErrDisk", err)
	}
	stop()
	if err := os.Remove(filler); err != nil {
		t.Fatal(err)
	}
	s, _ = run(t, Options{Dir: dir})
	write(t, s, "/last", "x")
	acknowledged.keys = append(acknowledged.keys, "/last")
	complete("after all")
}

// TestWhatWasWrittenIsLetGoAtRest from the buffers of etcd, and is there afterwards.
func TestWhatWasWrittenIsLetGoAtRest(t *testing.T) {
	s, stop := run(t, Options{Dir: t.TempDir(), NoSync: true})
	const writes, size = 10, 1 << 20
	for i := range writes {
		if _, err := s.Txn(t.Context(), store.Txn{Ops: []store.Op{{Key: fmt.Sprint("/large/", i), Value: bytes.Repeat([]byte{byte('a' + i)}, size)}}}); err != nil {
			t.Fatal(err)
		}
	}
	live := func() int64 {
		runtime.GC()
		runtime.GC() // what pools hold goes with the second
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return int64(m.HeapAlloc)
	}
	before := live()
	s.Scavenge()
	if after := live(); before-after < writes*size/2 {
		t.Errorf("of %d bytes %d were let go, want most of the %d written", before, before-after, writes*size)
	}
	m, leave, err := s.here(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	leave()
	if held, left := m.disk.held.Load(), m.disk.unsettled.Load(); held != 0 || left != 0 {
		t.Errorf("held %d, not committed %d, want none", held, left)
	}
	page, err := s.List(t.Context(), "/large/", store.ListOptions{})
	if err != nil || len(page.KVs) != writes || !bytes.Equal(page.KVs[3].Value, bytes.Repeat([]byte("d"), size)) {
		t.Errorf("afterwards: got %d values, %v", len(page.KVs), err)
	}
	stop()
	s.Scavenge() // does nothing
}
