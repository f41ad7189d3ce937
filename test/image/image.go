package image

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/kemudi/kemudi/internal/ociimage"
)

// busyboxPath is where Debian's busybox-static puts its one program.
const busyboxPath = "/bin/busybox"

// ErrNoBusybox says which package is missing.
var ErrNoBusybox = errors.New("static busybox not found at " + busyboxPath + ": apt-get install busybox-static")

// BuildAgent compiles the agent program to path, statically. gocmd is the go
// command to use.
func BuildAgent(ctx context.Context, gocmd, path string) error {
	cmd := exec.CommandContext(ctx, gocmd, "build", "-trimpath", "-ldflags", "-s -w", "-o", path, "github.com/kemudi/kemudi/test/image/agent")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("build test agent: %w\n%s", err, out)
	}
	return nil
}

// Busybox describes the image with a shell and the usual tools.
func Busybox() (ociimage.Image, error) {
	tools, err := busyboxFiles()
	if err != nil {
		return ociimage.Image{}, err
	}
	return ociimage.Image{Names: []string{"kemudi.local/busybox:1"}, Files: tools, Cmd: []string{"sh"}}, nil
}

// All describes every image, with the agent program at the given path.
func All(agent string) ([]ociimage.Image, error) {
	busybox, err := Busybox()
	if err != nil {
		return nil, err
	}
	tools := busybox.Files
	crt, key, err := localhostCertificate()
	if err != nil {
		return nil, err
	}
	images := []ociimage.Image{busybox}
	for _, version := range []string{"1", "2"} {
		images = append(images, ociimage.Image{
			Names: []string{"kemudi.local/agnhost:" + version},
			Files: append([]ociimage.File{
				{Path: "/agnhost", Source: agent, Mode: 0o755},
				{Path: "/agnhost-2", Link: "/agnhost"},
				{Path: "/usr/local/bin/curl", Link: "/agnhost"},
				{Path: "/localhost.crt", Content: crt},
				{Path: "/localhost.key", Content: key},
				{Path: "/uploads", Mode: fs.ModeDir | fs.ModeSticky | 0o777},
			}, tools...),
			Entrypoint: []string{"/agnhost"},
			Cmd:        []string{"pause"},
			Labels:     map[string]string{"version": version},
		}, ociimage.Image{
			Names:      []string{"kemudi.local/web:" + version},
			Files:      append([]ociimage.File{{Path: "/web", Source: agent, Mode: 0o755}}, tools...),
			Entrypoint: []string{"/web", "web"},
			Cmd:        []string{"--version=" + version},
			Ports:      []string{"8080/tcp"},
			User:       "65534:65534",
			Labels:     map[string]string{"version": version},
		})
	}
	return images, nil
}

// Write writes one archive per image to dir, such as web-1.tar, and returns
// their paths.
func Write(dir string, images []ociimage.Image) (paths []string, err error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, fmt.Errorf("write test images: %w", err)
	}
	for _, im := range images {
		path := filepath.Join(dir, archiveName(im.Names[0]))
		if err := writeArchive(path, im); err != nil {
			return nil, fmt.Errorf("write test image %s: %w", im.Names[0], err)
		}
		paths = append(paths, path)
	}
	return paths, nil
}

func writeArchive(path string, im ociimage.Image) error {
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	err = ociimage.Write(f, im)
	return errors.Join(err, f.Close())
}

// archiveName turns kemudi.local/web:1 into web-1.tar.
func archiveName(name string) string {
	return strings.ReplaceAll(name[strings.LastIndexByte(name, '/')+1:], ":", "-") + ".tar"
}

// busyboxFiles is a small system: busybox under all its names, the folders
// that programs expect, root and nobody.
func busyboxFiles() ([]ociimage.File, error) {
	out, err := exec.Command(busyboxPath, "--list-full").Output()
	if err != nil {
		return nil, fmt.Errorf("%w (%w)", ErrNoBusybox, err)
	}
	files := []ociimage.File{
		{Path: "/bin/busybox", Source: busyboxPath, Mode: 0o755},
		{Path: "/etc/passwd", Content: []byte("root:x:0:0:root:/root:/bin/sh\nnonroot:x:65532:65532:nonroot:/home/nonroot:/bin/sh\nnobody:x:65534:65534:nobody:/:/bin/sh\n")},
		{Path: "/etc/group", Content: []byte("root:x:0:\nnonroot:x:65532:\nnogroup:x:65534:\n")},
		{Path: "/etc/nsswitch.conf", Content: []byte("hosts: files dns\n")},
		{Path: "/tmp", Mode: fs.ModeDir | fs.ModeSticky | 0o777},
		{Path: "/var/tmp", Mode: fs.ModeDir | fs.ModeSticky | 0o777},
		{Path: "/root", Mode: fs.ModeDir | 0o700},
		{Path: "/home/nonroot", Mode: fs.ModeDir | 0o755, UID: 65532, GID: 65532},
	}
	for applet := range strings.FieldsSeq(string(out)) {
		if path := "/" + applet; path != busyboxPath {
			files = append(files, ociimage.File{Path: path, Link: busyboxPath})
		}
	}
	return files, nil
}
