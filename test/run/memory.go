package main

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

const (
	shm = "/dev/shm" // the file system in memory that a Linux has
	// memoryForFiles is what tests that run side by side may write, and memoryBeside what they need
	// themselves beside it. The logs of two dozen stores take most of the former.
	memoryForFiles = 5 << 30
	memoryBeside   = 5 << 30
)

// inMemory has tests write to memory. Dozens of stores that wait for one disk wait so long that
// their members take each other for dead; and those who test on the machine itself have the disk to
// themselves. A process that is killed leaves the same behind on either.
func (r *runner) inMemory() (remove func()) {
	dir := filepath.Join(shm, "kt"+strconv.Itoa(os.Getpid()))
	err := enoughMemory()
	if err == nil {
		removeLeft()
		err = os.Mkdir(dir, 0o755)
	}
	if err != nil {
		r.say("     ...  tests write to the disk: %v\n", err)
		return func() {}
	}
	r.scratch = dir
	return func() { _ = os.RemoveAll(dir) } // the next run tries again
}

// removeLeft removes what runs that were killed have left.
func removeLeft() {
	dirs, _ := filepath.Glob(filepath.Join(shm, "kt*"))
	for _, dir := range dirs {
		pid := strings.TrimPrefix(filepath.Base(dir), "kt")
		if _, err := os.Stat(filepath.Join("/proc", pid)); os.IsNotExist(err) {
			_ = os.RemoveAll(dir)
		}
	}
}

var available = regexp.MustCompile(`(?m)^MemAvailable: +(\d+) kB$`)

func enoughMemory() error {
	var fs unix.Statfs_t
	if err := unix.Statfs(shm, &fs); err != nil {
		return fmt.Errorf("look at %s: %w", shm, err)
	}
	if room := fs.Bavail * uint64(fs.Bsize); fs.Type != unix.TMPFS_MAGIC || room < memoryForFiles {
		return fmt.Errorf("%s is not in memory, or takes %d MiB only", shm, room>>20)
	}
	text, err := os.ReadFile("/proc/meminfo")
	if err != nil {
		return fmt.Errorf("ask for the memory there is: %w", err)
	}
	found := available.FindSubmatch(text)
	if found == nil {
		return fmt.Errorf("the kernel does not say how much memory there is")
	}
	if kib, err := strconv.ParseUint(string(found[1]), 10, 64); err != nil || kib<<10 < memoryForFiles+memoryBeside {
		return fmt.Errorf("of memory, %s KiB are left", found[1])
	}
	return nil
}
