package container

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/containerd/containerd/v2/plugins"
)

// repairBundles completes what an earlier process wrote about running
// containers, so that this one finds their shims again (invariant I2).
//
// containerd notes the path of a shim with the container it was started for,
// the sandbox, but not with those that joined it later. For them it would look
// in $PATH, where our shim is not, and give the container up for dead.
func repairBundles(o Options) error {
	dir := filepath.Join(o.stateDir(), string(plugins.RuntimePluginV2)+".task", Namespace)
	for _, id := range names(dir) {
		path := filepath.Join(dir, id, "shim-binary-path")
		if _, err := os.Stat(path); err == nil {
			continue
		}
		sandbox, err := os.ReadFile(filepath.Join(dir, id, "sandbox"))
		if err != nil {
			continue // half created: containerd cleans it up
		}
		shim, err := os.ReadFile(filepath.Join(dir, filepath.Base(strings.TrimSpace(string(sandbox))), "shim-binary-path"))
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err == nil {
			err = replaceFile(path, shim, 0o600)
		}
		if err != nil {
			return fmt.Errorf("find the shim of container %s: %w", id, err)
		}
	}
	return nil
}
