package image

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
)

// NodeKeyring reads the credentials that the node itself has, from the docker
// config files in upstream's order: those below root (the agent's directory) come
// first, then the working directory, the home directory and /. Broken files are
// reported, and the others used.
func NodeKeyring(root string) (*Keyring, error) {
	dirs := []string{root, "."}
	home := os.Getenv("HOME")
	k := &Keyring{}
	var errs []error
	read := func(path string, add func([]byte) error) {
		data, err := os.ReadFile(path)
		if errors.Is(err, fs.ErrNotExist) {
			return
		}
		if err == nil {
			err = add(data)
		}
		if err != nil {
			errs = append(errs, err)
		}
	}
	for _, dir := range dirs {
		read(filepath.Join(dir, "config.json"), k.AddConfig)
	}
	if home != "" {
		read(filepath.Join(home, ".docker/config.json"), k.AddConfig)
	}
	read("/.docker/config.json", k.AddConfig)
	for _, dir := range append(dirs, home, "/") {
		if dir != "" {
			read(filepath.Join(dir, ".dockercfg"), k.AddLegacy)
		}
	}
	return k, errors.Join(errs...)
}
