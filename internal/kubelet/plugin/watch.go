package plugin

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/kemudi/kemudi/internal/inotify"
	"github.com/kemudi/kemudi/internal/kubelet/backoff"
	"github.com/kemudi/kemudi/internal/kubelet/contain"
	"github.com/kemudi/kemudi/internal/task"
)

// Watch follows a directory, which it makes if needed, until ctx ends: the plugin of
// every socket in it and in directories of it is handed to the handler of its type. Names that begin with a dot are
// passed over.
func Watch(ctx context.Context, dir string, handlers map[string]Handler, log *slog.Logger) error {
	if err := os.MkdirAll(dir, 0o750); err != nil {
		return fmt.Errorf("make directory of plugins: %w", err)
	}
	w, err := inotify.Watch(dir, changes)
	if err != nil {
		return err
	}
	defer w.Close()
	group := task.NewGroup(ctx)
	d := &directory{dir: dir, handlers: handlers, log: log, watcher: w, group: group, sockets: map[string]*socket{}}
	err = d.follow(group.Context())
	return errors.Join(group.Wait(), err)
}

// changes are those of a directory that may be a plugin's coming or going.
const changes = inotify.Written | inotify.Moved

// directory is the directory in which plugins show their sockets. One goroutine looks at it.
type directory struct {
	dir      string
	handlers map[string]Handler
	log      *slog.Logger
	watcher  *inotify.Watcher
	group    *task.Group
	sockets  map[string]*socket // by path
}

// socket is one socket of a plugin, as it was made once.
type socket struct {
	path  string
	made  made
	end   context.CancelCauseFunc
	ended chan struct{} // closed when its handler has heard that it is gone
}

// made tells a socket from the one that was at its path before.
type made struct {
	device, inode uint64
	at            syscall.Timespec
}

// errGone is why the life of a socket ends.
var errGone = errors.New("the plugin's socket is gone")

func (d *directory) follow(ctx context.Context) error {
	for {
		if err := d.look(); err != nil {
			d.log.Warn("look for plugins", "err", err)
		}
		select {
		case <-d.watcher.Changed:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// look takes in what sockets there are now.
func (d *directory) look() error {
	found := map[string]made{}
	err := errors.Join(os.MkdirAll(d.dir, 0o750), d.find(found)) // it may have been removed
	for path, s := range d.sockets {
		if now, ok := found[path]; !ok || now != s.made {
			s.end(errGone)
			if !ok {
				delete(d.sockets, path)
			}
		}
	}
	for path, made := range found {
		if before := d.sockets[path]; before == nil || before.made != made {
			d.sockets[path] = d.begin(path, made, before)
		}
	}
	return err
}

// find lists the sockets in the directory and those in it. Each directory is watched before it is
// read, so that nothing comes unseen.
func (d *directory) find(found map[string]made) error {
	return filepath.WalkDir(d.dir, func(path string, e fs.DirEntry, err error) error {
		switch {
		case errors.Is(err, fs.ErrNotExist): // it went meanwhile, which will be told
			return nil
		case err != nil:
			return err
		case path != d.dir && strings.HasPrefix(e.Name(), "."):
			if e.IsDir() {
				return fs.SkipDir
			}
			return nil
		case e.IsDir():
			if err := d.watcher.Add(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
				return err
			}
			return nil
		case e.Type() != fs.ModeSocket:
			return nil
		}
		if info, err := e.Info(); err == nil {
			if s, ok := info.Sys().(*syscall.Stat_t); ok {
				found[path] = made{s.Dev, s.Ino, s.Mtim}
			}
		}
		return nil
	})
}

// begin starts the life of a socket (G1), after that of the one that was there before (G2).
func (d *directory) begin(path string, at made, before *socket) *socket {
	ctx, end := context.WithCancelCause(d.group.Context())
	s := &socket{path: path, made: at, end: end, ended: make(chan struct{})}
	d.group.Go("plugin", func(context.Context) error {
		defer close(s.ended)
		defer end(context.Canceled)
		if before != nil {
			<-before.ended // which has been told to
		}
		contain.Run(d.log, "plugin", "", func() { d.live(ctx, path) })
		return nil
	})
	return s
}

// live registers a plugin and holds it until its socket is gone or the agent ends (G3).
func (d *directory) live(ctx context.Context, path string) {
	for failures := 1; ; failures++ {
		p, err := register(ctx, path, d.handlers)
		if err == nil {
			d.log.Info("plugin registered", "type", p.Type, "name", p.Name, "socket", path)
			<-ctx.Done()
			if errors.Is(context.Cause(ctx), errGone) {
				d.handlers[p.Type].Deregister(p)
				d.log.Info("plugin deregistered", "type", p.Type, "name", p.Name, "socket", path)
			}
			return
		}
		if ctx.Err() != nil {
			return
		}
		again := backoff.Plugin.After(failures)
		level := slog.LevelWarn
		if failures == 1 && status.Code(err) == codes.Unavailable {
			level = slog.LevelDebug // a socket is there a moment before its program listens
		}
		d.log.Log(ctx, level, "register plugin", "socket", path, "err", err, "retry", again)
		if task.Sleep(ctx, again) != nil {
			return
		}
	}
}
