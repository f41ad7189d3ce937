package volume

import (
	"errors"
	"io/fs"
	"os"
	"path"

	v1 "k8s.io/api/core/v1"
)

// Written reports whether a volume is of a kind that the node writes, from objects of the API.
func Written(v *v1.Volume) bool {
	return v.ConfigMap != nil || v.Secret != nil || v.Projected != nil || v.DownwardAPI != nil
}

// MakePlace makes a directory at a path below dir, or an empty file if source is one, unless there is something: source is to be
// mounted there. It stays in dir whatever links there are.
func MakePlace(dir, at, source string) error {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	defer root.Close()
	if _, err := root.Lstat(at); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	file := false
	if info, err := os.Stat(source); err == nil {
		file = !info.IsDir()
	}
	if !file {
		return root.MkdirAll(at, 0o755)
	}
	if parent := path.Dir(at); parent != "." {
		if err := root.MkdirAll(parent, 0o755); err != nil {
			return err
		}
	}
	f, err := root.OpenFile(at, os.O_CREATE|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	return f.Close()
}
