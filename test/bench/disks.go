package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/kemudi/kemudi/internal/task"
)

// disks measures what one disk is to blame for where three servers share it: how long it takes
// to write for one and for three, and the servers' writes if each had a disk of its own, which
// memory stands for.
func (b *bench) disks(ctx context.Context) error {
	one, err := b.syncs(ctx, 1)
	if err := b.set(syncOne, syncOne.unit.of(one), err); err != nil {
		return err
	}
	three, err := b.syncs(ctx, serversJoined)
	if err := b.set(syncThree, syncThree.unit.of(three), err); err != nil {
		return err
	}
	return errors.Join(b.serversApart(ctx), b.etcdApart(ctx))
}

// syncs is how long half of the writes take at most that are appended to a file and brought to the disk, as a
// store does it, while so many do that.
func (b *bench) syncs(ctx context.Context, writers int) (time.Duration, error) {
	took := make([]time.Duration, writers)
	g := task.NewGroup(ctx)
	for w := range writers {
		g.Go("write", func(context.Context) (err error) {
			took[w], err = syncsOf(filepath.Join(b.dir, fmt.Sprintf("sync-%d-%d", writers, w)))
			return err
		})
	}
	err := g.Wait()
	return quantile(took, 0.5), err
}

func syncsOf(file string) (_ time.Duration, err error) {
	f, err := os.Create(file)
	if err != nil {
		return 0, fmt.Errorf("write a file: %w", err)
	}
	defer func() { err = errors.Join(err, f.Close(), os.Remove(file)) }()
	record := []byte(strings.Repeat("x", 500))
	if _, err := f.Write(make([]byte, writesTimed*len(record))); err != nil { // a log has its room before
		return 0, fmt.Errorf("write a file: %w", err)
	}
	if err := f.Sync(); err != nil {
		return 0, fmt.Errorf("write a file: %w", err)
	}
	return each(writesTimed, func(i int) error {
		if _, err := f.WriteAt(record, int64(i*len(record))); err != nil {
			return err
		}
		return unix.Fdatasync(int(f.Fd()))
	})
}

// serversApart measures writes of one server, and of three, each with memory for a disk.
func (b *bench) serversApart(ctx context.Context) (err error) {
	var at []string
	for i := range serversJoined {
		at = append(at, filepath.Dir(memberPlace(b.dir, i).data))
	}
	unmount, err := inMemory(at)
	defer func() { err = errors.Join(err, unmount()) }()
	if err != nil {
		return err
	}
	c := &several{b: b}
	defer func() { err = errors.Join(err, c.remove(ctx)) }()
	if err := c.start(ctx, 0); err != nil {
		return err
	}
	one, err := c.write(ctx, 0, apartOne)
	if err != nil {
		return err
	}
	for i := 1; i < serversJoined; i++ {
		if err := c.start(ctx, i); err != nil {
			return err
		}
	}
	three, err := c.write(ctx, serversJoined-1, apartThree)
	if err := b.set(apartRatio, float64(three)/float64(one), err); err != nil {
		return err
	}
	if err := c.writeToLeader(ctx, apartLeader); err != nil {
		return err
	}
	still, err := c.writeBesideOne(ctx, apartStill)
	return b.set(apartStillRatio, float64(still)/float64(one), err)
}

// etcdApart measures the same of an etcd with its own settings.
func (b *bench) etcdApart(ctx context.Context) (err error) {
	dir := memoryDir(b.dir)
	unmount, err := inMemory([]string{dir})
	defer func() { err = errors.Join(err, unmount()) }()
	if err != nil {
		return err
	}
	one, err := b.plainWrites(ctx, dir, 1)
	if err := b.set(plainApartOne, plainApartOne.unit.of(one), err); err != nil {
		return err
	}
	three, err := b.plainWrites(ctx, dir, serversJoined)
	return errors.Join(b.set(plainApartThree, plainApartThree.unit.of(three), err), b.set(plainApartRatio, float64(three)/float64(one), err))
}

// memoryDir is where an etcd has its data in memory.
func memoryDir(dir string) string { return filepath.Join(dir, "memory") }

// inMemory makes directories whose files are in memory, until unmount is called, after an
// error too.
func inMemory(dirs []string) (unmount func() error, err error) {
	var mounted []string
	unmount = func() (err error) {
		for _, dir := range mounted {
			err = errors.Join(err, forgetMemory(dir))
		}
		return err
	}
	for _, dir := range dirs {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return unmount, fmt.Errorf("make directory: %w", err)
		}
		if err := unix.Mount("kemudi-bench", dir, "tmpfs", 0, "size=1g"); err != nil {
			return unmount, fmt.Errorf("mount memory on %s: %w", dir, err)
		}
		mounted = append(mounted, dir)
	}
	return unmount, nil
}

// forgetMemory undoes inMemory.
func forgetMemory(dir string) error {
	if err := unix.Unmount(dir, unix.MNT_DETACH); err != nil && !errors.Is(err, unix.EINVAL) && !errors.Is(err, unix.ENOENT) {
		return fmt.Errorf("unmount memory of %s: %w", dir, err)
	}
	return nil
}
