package logs

import (
	"context"
	"errors"
	"io/fs"
	"log/slog"
	"maps"
	"sync"
	"time"

	"github.com/kemudi/kemudi/internal/task"
)

// Rotator begins new logs for running containers whose logs are full.
type Rotator struct {
	Limits Limits
	Every  time.Duration // how often the logs are looked at
	// Reopen makes the runtime write the log of a container anew.
	Reopen func(ctx context.Context, container string) error
	Log    *slog.Logger

	mu struct {
		sync.Mutex
		paths map[string]string // of the logs, by container ID
	}
}

// Follow has the log of a running container looked after.
func (r *Rotator) Follow(container, path string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.mu.paths == nil {
		r.mu.paths = map[string]string{}
	}
	r.mu.paths[container] = path
}

// Forget ends what Follow began: the container has ended.
func (r *Rotator) Forget(container string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.mu.paths, container)
}

// Run looks at the logs until ctx ends.
func (r *Rotator) Run(ctx context.Context) error {
	for {
		if err := task.Sleep(ctx, r.Every); err != nil {
			return err
		}
		r.mu.Lock()
		paths := maps.Clone(r.mu.paths)
		r.mu.Unlock()
		for id, path := range paths {
			err := r.Limits.Rotate(path, func() error { return r.Reopen(ctx, id) })
			if err != nil && !errors.Is(err, fs.ErrNotExist) && ctx.Err() == nil {
				r.Log.Warn("rotate container log", "path", path, "err", err)
			}
		}
	}
}
