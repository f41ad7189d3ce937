package image

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// upstreamRoot is where the documents have the node's files.
const upstreamRoot = "/var/lib/kubelet"

// NodeKeyring reads the credentials that the node itself has from the first of the
// docker config files that is there and whole, in upstream's order: below root
// (the agent's directory, and where upstream's is), in the working directory, the
// home directory and /, each as config.json; then as .dockercfg. An error tells of
// broken files before it.
func NodeKeyring(root string) (*Keyring, error) {
	home := os.Getenv("HOME")
	legacy := []string{root, upstreamRoot, ".", "/"}
	paths := []string{filepath.Join(root, "config.json"), filepath.Join(upstreamRoot, "config.json"), "config.json"}
	if home != "" {
		paths = append(paths, filepath.Join(home, ".docker/config.json"))
		legacy = []string{root, upstreamRoot, ".", home, "/"}
	}
	paths = append(paths, "/.docker/config.json")
	current := len(paths)
	for _, dir := range legacy {
		paths = append(paths, filepath.Join(dir, ".dockercfg"))
	}
	var errs []error
	for i, path := range paths {
		data, err := os.ReadFile(path)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		k := &Keyring{}
		switch {
		case err != nil:
		case i < current:
			err = k.AddConfig(data)
		default:
			err = k.AddLegacy(data)
		}
		if err == nil {
			return k, errors.Join(errs...)
		}
		errs = append(errs, fmt.Errorf("read %s: %w", path, err))
	}
	return &Keyring{}, errors.Join(errs...)
}
