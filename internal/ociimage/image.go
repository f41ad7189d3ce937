package ociimage

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// Image describes an image of one layer.
type Image struct {
	// Names the image is loaded under, each with a registry and a tag, such
	// as kemudi.local/web:1. At least one.
	Names []string

	// Arch is the machine the programs are for. Default: this one's.
	Arch string

	// Files of the image. Folders on the way to a file need not be listed:
	// they belong to root and have mode 0755.
	Files []File

	// What a container of this image runs, as in a Dockerfile.
	Entrypoint, Cmd, Env []string

	// User as uid, uid:gid or a name in the image's /etc/passwd. Default root.
	User string

	// WorkDir is where the program starts. Default /.
	WorkDir string

	// Labels are kept in the image's configuration.
	Labels map[string]string

	// Ports the program listens on, such as 80/tcp; for information.
	Ports []string

	// StopSignal ends the program, such as SIGQUIT. Default SIGTERM.
	StopSignal string
}

// File is one entry of an image's layer. One of Content, Source and Link says
// what it is; a Mode with fs.ModeDir makes it a folder.
type File struct {
	Path    string      // absolute
	Content []byte      // the file's bytes, or
	Source  string      // a file on this machine whose bytes it has, or
	Link    string      // the target of a symbolic link
	Mode    fs.FileMode // permission bits with fs.ModeSetuid, fs.ModeSticky and fs.ModeDir; default 0644, for folders 0755
	UID     int
	GID     int
}

// Build makes the image.
func Build(im Image) (v1.Image, error) {
	if len(im.Names) == 0 {
		return nil, errors.New("build image: it has no name")
	}
	data, err := layer(im.Files)
	if err != nil {
		return nil, fmt.Errorf("build image %s: %w", im.Names[0], err)
	}
	l, err := tarball.LayerFromOpener(
		func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(data)), nil },
		tarball.WithMediaType(types.OCILayer), tarball.WithCompressionLevel(gzip.BestSpeed), tarball.WithCompressedCaching)
	if err != nil {
		return nil, fmt.Errorf("build image %s: %w", im.Names[0], err)
	}
	img := mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), types.OCIConfigJSON)
	if img, err = mutate.Append(img, mutate.Addendum{Layer: l, History: v1.History{CreatedBy: "kemudi"}}); err != nil {
		return nil, fmt.Errorf("build image %s: %w", im.Names[0], err)
	}
	if img, err = mutate.ConfigFile(img, config(im, img)); err != nil {
		return nil, fmt.Errorf("build image %s: %w", im.Names[0], err)
	}
	return img, nil
}

func config(im Image, img v1.Image) *v1.ConfigFile {
	c := &v1.ConfigFile{OS: "linux", Architecture: im.Arch, Created: v1.Time{Time: time.Unix(0, 0).UTC()}}
	if c.Architecture == "" {
		c.Architecture = runtime.GOARCH
	}
	if old, err := img.ConfigFile(); err == nil {
		c.RootFS, c.History = old.RootFS, old.History
	}
	c.Config = v1.Config{
		Entrypoint: im.Entrypoint, Cmd: im.Cmd, Env: im.Env, User: im.User, WorkingDir: im.WorkDir,
		Labels: im.Labels, StopSignal: im.StopSignal,
	}
	if len(im.Env) == 0 {
		c.Config.Env = []string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"}
	}
	for _, p := range im.Ports {
		if c.Config.ExposedPorts == nil {
			c.Config.ExposedPorts = map[string]struct{}{}
		}
		c.Config.ExposedPorts[p] = struct{}{}
	}
	return c
}

// layer returns the files as an uncompressed tar, in the order of their paths
// and with all times zero.
func layer(files []File) ([]byte, error) {
	byPath := map[string]File{}
	for _, f := range files {
		p := path.Clean(f.Path)
		if !path.IsAbs(f.Path) || p == "/" {
			return nil, fmt.Errorf("file path %q is not an absolute path below /", f.Path)
		}
		if _, twice := byPath[p]; twice {
			return nil, fmt.Errorf("file %s is listed twice", p)
		}
		byPath[p] = f
	}
	for _, f := range files {
		for dir := path.Dir(path.Clean(f.Path)); dir != "/"; dir = path.Dir(dir) {
			if above, ok := byPath[dir]; !ok {
				byPath[dir] = File{Mode: fs.ModeDir | 0o755}
			} else if !above.Mode.IsDir() {
				return nil, fmt.Errorf("file %s is below %s, which is not a folder", f.Path, dir)
			}
		}
	}
	paths := make([]string, 0, len(byPath))
	for p := range byPath {
		paths = append(paths, p)
	}
	slices.Sort(paths)
	var buf bytes.Buffer
	w := tar.NewWriter(&buf)
	for _, p := range paths {
		if err := writeFile(w, p, byPath[p]); err != nil {
			return nil, fmt.Errorf("add %s: %w", p, err)
		}
	}
	if err := w.Close(); err != nil {
		return nil, err
	}
	return buf.Bytes(), nil
}

func writeFile(w *tar.Writer, p string, f File) error {
	content := f.Content
	if f.Source != "" {
		var err error
		if content, err = os.ReadFile(f.Source); err != nil {
			return err
		}
	}
	h := &tar.Header{
		Name: strings.TrimPrefix(p, "/"), Mode: tarMode(f.Mode), Uid: f.UID, Gid: f.GID,
		Size: int64(len(content)), Typeflag: tar.TypeReg, ModTime: time.Unix(0, 0), Format: tar.FormatPAX,
	}
	switch {
	case f.Mode.IsDir():
		h.Typeflag, h.Size, h.Name = tar.TypeDir, 0, h.Name+"/"
	case f.Link != "":
		h.Typeflag, h.Linkname, h.Mode, h.Size = tar.TypeSymlink, f.Link, 0o777, 0
	}
	if err := w.WriteHeader(h); err != nil {
		return err
	}
	if h.Size == 0 {
		return nil
	}
	_, err := w.Write(content)
	return err
}

func tarMode(m fs.FileMode) int64 {
	mode := int64(m.Perm())
	switch {
	case mode == 0 && m.IsDir():
		mode = 0o755
	case mode == 0:
		mode = 0o644
	}
	for bit, value := range map[fs.FileMode]int64{fs.ModeSetuid: 0o4000, fs.ModeSetgid: 0o2000, fs.ModeSticky: 0o1000} {
		if m&bit != 0 {
			mode |= value
		}
	}
	return mode
}

// reference checks that n names one image in full.
func reference(n string) (name.Tag, error) {
	ref, err := name.NewTag(n, name.StrictValidation)
	if err != nil {
		return name.Tag{}, fmt.Errorf("image name %q: %w", n, err)
	}
	return ref, nil
}
