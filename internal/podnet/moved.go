package podnet

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
)

// DropMoved removes the CNI configuration if it was written when DataDir was
// elsewhere. It is to be called before the container runtime starts, which would
// give back the addresses of pods that are gone by it, and make the old directory
// anew. Ensure writes another one.
func DropMoved(o Options) error {
	o, err := o.withDefaults()
	if err != nil {
		return err
	}
	dir, err := json.Marshal(o.ipamDir())
	if err != nil {
		return err
	}
	conf, err := os.ReadFile(o.confFile())
	if errors.Is(err, fs.ErrNotExist) || err == nil && bytes.Contains(conf, dir) {
		return nil
	}
	if err == nil {
		err = os.Remove(o.confFile())
	}
	if err != nil {
		return fmt.Errorf("remove CNI configuration of another directory: %w", err)
	}
	return nil
}
