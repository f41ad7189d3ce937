package container

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/containerd/containerd/v2/core/remotes/docker/config"
	"github.com/containerd/containerd/v2/core/transfer"
	"github.com/containerd/containerd/v2/core/transfer/registry"
	"github.com/containerd/containerd/v2/pkg/reference"
	"github.com/containerd/containerd/v2/plugins"
	"github.com/containerd/errdefs"
	"github.com/containerd/plugin"
)

// registries transfers images as containerd does, which looks for the settings of a
// registry in one directory only. That one holds links: before each transfer that of the
// registry is set to where its settings are now, in the first of several directories
// that has any.
type registries struct {
	transfer.Transferrer
	dirs  []string
	links string
}

// withRegistries has the transfer of images, if r is that, look in all directories.
func (o Options) withRegistries(r plugin.Registration) plugin.Registration {
	if r.Type != plugins.TransferPlugin {
		return r
	}
	load := r.InitFn
	r.InitFn = func(ic *plugin.InitContext) (any, error) {
		instance, err := load(ic)
		if err != nil {
			return nil, err
		}
		t, ok := instance.(transfer.Transferrer)
		if !ok {
			return nil, fmt.Errorf("it is a %T", instance)
		}
		return &registries{Transferrer: t, dirs: filepath.SplitList(o.RegistryConfigDir), links: o.registriesDir()}, nil
	}
	return r
}

func (r *registries) Transfer(ctx context.Context, source, destination any, opts ...transfer.Opt) error {
	for _, end := range []any{source, destination} {
		if image, ok := end.(*registry.OCIRegistry); ok {
			if err := r.link(image.Image()); err != nil {
				return fmt.Errorf("find settings of the registry of %s: %w", image.Image(), err)
			}
		}
	}
	return r.Transferrer.Transfer(ctx, source, destination, opts...)
}

// link has containerd find the settings of an image's registry, or none. It may be
// called for the same registry at the same time.
func (r *registries) link(image string) error {
	spec, err := reference.Parse(image)
	if err != nil {
		return err
	}
	host := spec.Hostname()
	if !filepath.IsLocal(host) || host == "." || strings.ContainsRune(host, filepath.Separator) {
		return fmt.Errorf("%q is no name of a registry", host)
	}
	dir, err := r.find(host)
	if err != nil {
		return err
	}
	link := filepath.Join(r.links, host)
	now, err := os.Readlink(link)
	switch {
	case err != nil && !errors.Is(err, fs.ErrNotExist):
		return err
	case now == dir:
		return nil
	case dir == "":
		if err := os.Remove(link); !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		return nil
	}
	beside, err := os.MkdirTemp(r.links, "..")
	if err != nil {
		return err
	}
	defer os.RemoveAll(beside)
	if err := os.Symlink(dir, filepath.Join(beside, host)); err != nil {
		return err
	}
	return os.Rename(filepath.Join(beside, host), link)
}

// find returns the directory with the settings of a registry; empty: there are none.
func (r *registries) find(host string) (string, error) {
	for _, root := range r.dirs {
		dir, err := config.HostDirFromRoot(root)(host)
		if errdefs.IsNotFound(err) {
			continue
		}
		if err != nil {
			return "", err
		}
		return filepath.Abs(dir)
	}
	return "", nil
}
