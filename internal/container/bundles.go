package container

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/kemudi/kemudi/internal/wholefile"
)

// repairBundles completes what an earlier process wrote about running
// containers, so that this one finds their shims again (invariant I2).
//
// containerd notes the path of a shim with the container it was started for,
// the sandbox, but not with those that joined it later. For them it would look
// in $PATH, where our shim is not, and give the container up for dead.
func repairBundles(o Options) error {
	dir := o.bundles()
	for _, id := range names(dir) {
		path := filepath.Join(dir, id, "shim-binary-path")
		if _, err := os.Stat(path); err == nil {
			continue
		}
		sandbox := sandboxOf(o, id)
		if sandbox == "" {
			continue // half created: containerd cleans it up
		}
		shim, err := os.ReadFile(filepath.Join(dir, sandbox, "shim-binary-path"))
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err == nil {
			err = wholefile.Write(path, shim, 0o600)
		}
		if err != nil {
			return fmt.Errorf("find the shim of container %s: %w", id, err)
		}
	}
	return nil
}
