package volume

import (
	"errors"
	"fmt"
	"io/fs"
	"os"

	v1 "k8s.io/api/core/v1"
)

// checkHostPath makes sure that the path is what its type says, and makes it
// where the type allows that.
func checkHostPath(h *v1.HostPathVolumeSource) error {
	t := v1.HostPathUnset
	if h.Type != nil {
		t = *h.Type
	}
	if t == v1.HostPathUnset {
		return nil
	}
	info, err := os.Stat(h.Path)
	if errors.Is(err, fs.ErrNotExist) {
		switch t {
		case v1.HostPathDirectoryOrCreate:
			return makeHostDir(h.Path)
		case v1.HostPathFileOrCreate:
			return makeHostFile(h.Path)
		}
		return fmt.Errorf("hostPath type check failed: %s %s", h.Path, wrongType(t))
	}
	if err != nil {
		return fmt.Errorf("hostPath type check failed: %w", err)
	}
	ok := false
	switch mode := info.Mode(); t {
	case v1.HostPathDirectory, v1.HostPathDirectoryOrCreate:
		ok = mode.IsDir()
	case v1.HostPathFile, v1.HostPathFileOrCreate:
		ok = mode.IsRegular()
	case v1.HostPathSocket:
		ok = mode&fs.ModeSocket != 0
	case v1.HostPathCharDev:
		ok = mode&fs.ModeCharDevice != 0
	case v1.HostPathBlockDev:
		ok = mode&fs.ModeDevice != 0 && mode&fs.ModeCharDevice == 0
	default:
		return fmt.Errorf("hostPath type %q is not known", t)
	}
	if !ok {
		return fmt.Errorf("hostPath type check failed: %s %s", h.Path, wrongType(t))
	}
	return nil
}

func wrongType(t v1.HostPathType) string {
	switch t {
	case v1.HostPathDirectory, v1.HostPathDirectoryOrCreate:
		return "is not a directory"
	case v1.HostPathSocket:
		return "is not a socket file"
	case v1.HostPathCharDev:
		return "is not a character device"
	case v1.HostPathBlockDev:
		return "is not a block device"
	}
	return "is not a file"
}

func makeHostDir(path string) error {
	if err := os.MkdirAll(path, 0o755); err != nil {
		return fmt.Errorf("make hostPath directory: %w", err)
	}
	return os.Chmod(path, 0o755)
}

// makeHostFile makes a file in a directory that must be there.
func makeHostFile(path string) error {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY, 0o644)
	if err != nil {
		return fmt.Errorf("make hostPath file: %w", err)
	}
	return f.Close()
}
