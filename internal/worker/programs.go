package worker

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// checkPrograms makes sure that programs in the data directory can run: the container
// runtime unpacks its own there.
func checkPrograms(dataDir string) error {
	var fs unix.Statfs_t
	if err := unix.Statfs(dataDir, &fs); err != nil {
		return fmt.Errorf("look at data directory %s: %w", dataDir, err)
	}
	if fs.Flags&unix.ST_NOEXEC != 0 {
		return fmt.Errorf("data directory %s is on a file system that runs no programs (mounted noexec), and the container runtime's are in it; choose another one with --data-dir", dataDir)
	}
	return nil
}
