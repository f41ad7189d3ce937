package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/kemudi/kemudi/internal/container"
	"github.com/kemudi/kemudi/internal/up"
)

func newImage() *cobra.Command {
	c := &cobra.Command{
		Use:     "image",
		Short:   "Import, list, pull and remove container images of this node",
		Example: "  kemudi image import web.tar\n  kemudi image ls\n  kemudi image pull 127.0.0.1:5000/web:1\n  kemudi image rm web:1",
	}
	c.AddCommand(newImageImport(), newImageList(), newImagePull(), newImageRemove())
	return group(c)
}

// withImages runs f with the runtime of the running server. The context ends with
// the server, too.
func withImages(c *cobra.Command, o *up.Options, f func(context.Context, *container.Images) error) error {
	images, err := container.DialImages(container.Options{DataDir: o.DataDir, RunDir: o.RunDir}.Socket())
	if err != nil {
		if pid, look := up.Running(o.RunDir); look == nil && pid != 0 {
			return fmt.Errorf("%w; the server runs, so it is still starting, or it uses another runtime (--container-runtime-endpoint): that one's own program keeps its images, such as ctr --namespace k8s.io images import FILE", err)
		}
		return fmt.Errorf("%w; is the server running? (kemudi status)", err)
	}
	err = images.WhileConnected(c.Context(), func(ctx context.Context) error { return f(ctx, images) })
	return errors.Join(err, images.Close())
}

func newImageImport() *cobra.Command {
	var o up.Options
	c := &cobra.Command{
		Use:     "import FILE...",
		Short:   "Import image archives (docker save, OCI layout); - reads standard input",
		Example: "  kemudi image import web.tar\n  docker save web:1 | kemudi image import -",
		Args:    someArgs,
		RunE: func(c *cobra.Command, files []string) error {
			return withImages(c, &o, func(ctx context.Context, images *container.Images) error {
				for _, file := range files {
					names, err := importFile(ctx, images, c.InOrStdin(), file)
					if err != nil {
						return err
					}
					for _, name := range names {
						fmt.Println(name)
					}
				}
				return nil
			})
		},
	}
	addDirs(c, &o)
	return c
}

func importFile(ctx context.Context, images *container.Images, stdin io.Reader, file string) ([]string, error) {
	r, path := stdin, file
	if file == "-" && waits(stdin) {
		path = "/proc/self/fd/0" // standard input, opened so that to close it ends a read
	}
	if path != "-" {
		f, err := os.Open(path)
		if err != nil {
			return nil, fmt.Errorf("open image: %w", err)
		}
		defer f.Close()
		defer context.AfterFunc(ctx, func() { f.Close() })()
		r = f
	}
	names, err := images.Import(ctx, r)
	if ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	if err != nil {
		return nil, fmt.Errorf("import %s: %w", file, err)
	}
	return names, nil
}

// waits says whether standard input may keep a reader waiting for ever.
func waits(stdin io.Reader) bool {
	f, ok := stdin.(*os.File)
	if !ok || f.Fd() != 0 {
		return false
	}
	info, err := f.Stat()
	return err == nil && info.Mode()&(os.ModeNamedPipe|os.ModeCharDevice) != 0
}

func newImageList() *cobra.Command {
	var o up.Options
	var output outputFlag
	c := &cobra.Command{
		Use:     "ls",
		Aliases: []string{"list"},
		Short:   "List images",
		Example: "  kemudi image ls\n  kemudi image ls -o json",
		Args:    noArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			return withImages(c, &o, func(ctx context.Context, images *container.Images) error {
				list, err := images.List(ctx)
				if err != nil {
					return err
				}
				if output == "json" {
					return printJSON(list)
				}
				w := tabwriter.NewWriter(c.OutOrStdout(), 0, 0, 2, ' ', 0)
				fmt.Fprintln(w, "NAME\tID\tSIZE")
				for _, im := range list {
					for _, name := range im.Names {
						fmt.Fprintf(w, "%s\t%.19s\t%s\n", name, im.ID, sizeText(im.Size))
					}
				}
				return w.Flush()
			})
		},
	}
	addDirs(c, &o)
	addOutput(c, &output)
	return c
}

// sizeText is a number of bytes for people.
func sizeText(bytes int64) string {
	size, units := float64(bytes), []string{"B", "KiB", "MiB", "GiB"}
	for size >= 1024 && len(units) > 1 {
		size, units = size/1024, units[1:]
	}
	if bytes < 1024 {
		return fmt.Sprintf("%d B", bytes)
	}
	return fmt.Sprintf("%.1f %s", size, units[0])
}

func newImagePull() *cobra.Command {
	var o up.Options
	c := &cobra.Command{
		Use:   "pull NAME...",
		Short: "Pull images from their registries",
		Long: `Pulls images by their registries' names, as this node does for its pods: by the mirrors of
--registry-config-dir, with the credentials that the machine has, which is config.json, as docker login
writes it, in the node agent's directory (/var/lib/kemudi/kubelet) or ~/.docker.`,
		Example: "  kemudi image pull 127.0.0.1:5000/web:1",
		Args:    someArgs,
		RunE: func(c *cobra.Command, names []string) error {
			return withImages(c, &o, func(ctx context.Context, images *container.Images) error {
				for _, name := range names {
					id, err := up.Pull(ctx, images, o.DataDir, name)
					if err != nil {
						return err
					}
					fmt.Println(id)
				}
				return nil
			})
		},
	}
	addDirs(c, &o)
	return c
}

func newImageRemove() *cobra.Command {
	var o up.Options
	c := &cobra.Command{
		Use:     "rm NAME...",
		Aliases: []string{"remove"},
		Short:   "Remove images",
		Example: "  kemudi image rm web:1",
		Args:    someArgs,
		RunE: func(c *cobra.Command, names []string) error {
			return withImages(c, &o, func(ctx context.Context, images *container.Images) error {
				for _, name := range names {
					if err := images.Remove(ctx, name); err != nil {
						return fmt.Errorf("remove %s: %w", name, err)
					}
				}
				return nil
			})
		},
	}
	addDirs(c, &o)
	return c
}
