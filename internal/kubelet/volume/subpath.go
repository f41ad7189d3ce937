package volume

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"
)

// Part is a part of a volume that a container mounts.
type Part struct {
	Volume    *v1.Volume
	Container string
	Mount     int    // number of the mount in the container
	Path      string // within the volume
}

// SubPath makes a part of a volume available and returns where. The part is
// bound by its file handle, so that a link that a container puts in its place
// meanwhile leads nowhere (V4). A part that does not exist becomes a directory. What has failed is said
// without why, which would tell of the machine's files; the log has that.
func (m *Manager) SubPath(pod *v1.Pod, p Part) (string, error) {
	v, container, part := p.Volume, p.Container, p.Path
	if filepath.IsAbs(part) {
		return "", fmt.Errorf("error SubPath `%s` must not be an absolute path", part)
	}
	if slices.Contains(strings.Split(part, "/"), "..") {
		return "", fmt.Errorf("unable to provision SubPath `%s`: must not contain '..'", part)
	}
	source := m.Path(pod, v)
	if source == "" {
		return "", fmt.Errorf("volume %s has no path on the node", v.Name)
	}
	target := filepath.Join(m.PodDir(pod.UID), "volume-subpaths", v.Name, container, strconv.Itoa(p.Mount))
	err := bindPart(source, filepath.Clean(part), target)
	if err == nil {
		return target, nil
	}
	m.log.Warn("prepare part of a volume", "pod", pod.Namespace+"/"+pod.Name, "container", container, "volume", v.Name, "err", err)
	if errors.Is(err, errNotMade) {
		return "", fmt.Errorf("failed to create subPath directory for volumeMount %q of container %q", v.Name, container)
	}
	return "", fmt.Errorf("failed to prepare subPath for volumeMount %q of container %q", v.Name, container)
}

// errNotMade is why a part is not there.
var errNotMade = errors.New("make directory")

func bindPart(volume, part, target string) error {
	root, err := os.OpenRoot(volume)
	if err != nil {
		return err
	}
	defer root.Close()
	f, err := openPart(root, part)
	if err != nil {
		return err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return err
	}
	// What an earlier container had mounted there may be something else by now.
	if err := unmountBelow(target); err != nil {
		return err
	}
	if err := makeTarget(target, info.IsDir()); err != nil {
		return err
	}
	source := fmt.Sprintf("/proc/self/fd/%d", f.Fd())
	if err := unix.Mount(source, target, "", unix.MS_BIND|unix.MS_REC, ""); err != nil {
		return fmt.Errorf("bind mount: %w", err)
	}
	return nil
}

// openPart opens the part, making directories that are missing with the mode of
// the volume.
func openPart(root *os.Root, part string) (*os.File, error) {
	f, err := find(root, part)
	if errors.Is(err, unix.EXDEV) { // a link that begins at the machine's root may lead to where it may
		if inside, ok := resolve(root, part); ok {
			return find(root, inside)
		}
	}
	if !errors.Is(err, fs.ErrNotExist) {
		return f, err
	}
	info, err := root.Stat(".")
	if err != nil {
		return nil, err
	}
	path := ""
	for _, name := range strings.Split(part, "/") {
		path = filepath.Join(path, name)
		err := root.Mkdir(path, 0o755)
		if errors.Is(err, fs.ErrExist) {
			continue
		}
		if err == nil {
			err = root.Chmod(path, info.Mode().Perm()|info.Mode()&fs.ModeSetgid)
		}
		if err != nil {
			return nil, fmt.Errorf("%w: %w", errNotMade, err)
		}
	}
	return find(root, part)
}

// find opens the part only as a place (V4): what lies there is not touched, as sockets and devices must not be.
func find(root *os.Root, part string) (*os.File, error) {
	dir, err := root.Open(".")
	if err != nil {
		return nil, err
	}
	defer dir.Close()
	fd, err := unix.Openat2(int(dir.Fd()), part, &unix.OpenHow{
		Flags: unix.O_PATH | unix.O_CLOEXEC, Resolve: unix.RESOLVE_BENEATH | unix.RESOLVE_NO_MAGICLINKS,
	})
	if err != nil {
		return nil, &fs.PathError{Op: "open", Path: filepath.Join(root.Name(), part), Err: err}
	}
	return os.NewFile(uintptr(fd), part), nil
}

// resolve is the part within the volume to which links lead from one, as it is now.
func resolve(root *os.Root, part string) (inside string, ok bool) {
	base, err := filepath.EvalSymlinks(root.Name())
	if err != nil {
		return "", false
	}
	path, err := filepath.EvalSymlinks(filepath.Join(root.Name(), part))
	if err != nil {
		return "", false
	}
	inside, err = filepath.Rel(base, path)
	return inside, err == nil && filepath.IsLocal(inside)
}

// maxFile is how large a file may be that is read whole, in bytes.
const maxFile = 1 << 20

// ReadFile reads a file of the volume, of at most 1 MiB. The error is
// fs.ErrNotExist if there is none. A container may have made it: neither links
// (V4) nor pipes lead astray.
func (m *Manager) ReadFile(pod *v1.Pod, v *v1.Volume, path string) ([]byte, error) {
	root, err := os.OpenRoot(m.Path(pod, v))
	if err != nil {
		return nil, err
	}
	defer root.Close()
	f, err := root.OpenFile(path, os.O_RDONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	switch info, err := f.Stat(); {
	case err != nil:
		return nil, err
	case !info.Mode().IsRegular():
		return nil, errors.New("it is not a file")
	case info.Size() > maxFile:
		return nil, fmt.Errorf("it has more than %d bytes", maxFile)
	}
	return io.ReadAll(io.LimitReader(f, maxFile))
}

func makeTarget(target string, dir bool) error {
	info, err := os.Lstat(target)
	if err == nil && info.IsDir() != dir {
		if err := os.Remove(target); err != nil {
			return err
		}
	}
	if dir {
		return os.MkdirAll(target, 0o750)
	}
	if err := os.MkdirAll(filepath.Dir(target), 0o750); err != nil {
		return err
	}
	f, err := os.OpenFile(target, os.O_CREATE|os.O_WRONLY, 0o640)
	if err != nil {
		return err
	}
	return f.Close()
}
