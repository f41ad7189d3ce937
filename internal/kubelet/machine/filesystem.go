package machine

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"

	"golang.org/x/sys/unix"
)

// FileSystem is what a file system has, in bytes, and for whom it counts them, in inodes (0 of 0: it does not).
type FileSystem struct {
	Capacity, Available, Used int64
	Inodes, InodesFree        int64
}

// FileSystemOf looks at the file system that a file is on.
func FileSystemOf(path string) (FileSystem, error) {
	var fs unix.Statfs_t
	if err := unix.Statfs(path, &fs); err != nil {
		return FileSystem{}, fmt.Errorf("look at the file system of %s: %w", path, err)
	}
	return FileSystem{
		Capacity: int64(fs.Blocks) * fs.Bsize, Available: int64(fs.Bavail) * fs.Bsize, Used: int64(fs.Blocks-fs.Bfree) * fs.Bsize,
		Inodes: int64(fs.Files), InodesFree: int64(fs.Ffree),
	}, nil
}

// BlockDevice is the file of a device of which the kernel knows the numbers ("8:0"), or else these.
func BlockDevice(numbers string) string {
	path, err := os.Readlink(filepath.Join("/sys/dev/block", numbers))
	if err != nil {
		return numbers
	}
	return "/dev/" + filepath.Base(path)
}

// Files is what files hold on disk together.
type Files struct{ Bytes, Inodes int64 }

// blockSize is the unit in which the kernel counts what files hold.
const blockSize = 512

// FilesBelow is what a directory holds, itself included. Files with several names
// count once; other file systems below it do not count. What vanishes meanwhile
// holds nothing.
func FilesBelow(dir string) (sum Files) {
	type inode struct{ dev, ino uint64 }
	seen := map[inode]bool{}
	var device uint64
	_ = filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error { // errors are skipped one by one
		if err != nil {
			return nil
		}
		info, err := d.Info()
		if err != nil {
			return nil
		}
		st, ok := info.Sys().(*syscall.Stat_t)
		if !ok {
			return nil
		}
		if path == dir {
			device = st.Dev
		}
		if st.Dev != device {
			if d.IsDir() {
				return filepath.SkipDir
			}
			return nil
		}
		if st.Nlink > 1 && !d.IsDir() {
			id := inode{st.Dev, st.Ino}
			if seen[id] {
				return nil
			}
			seen[id] = true
		}
		sum.Bytes += st.Blocks * blockSize
		sum.Inodes++
		return nil
	})
	return sum
}
