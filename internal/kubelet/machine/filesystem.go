package machine

import (
	"fmt"
	"os"
	"path/filepath"

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
