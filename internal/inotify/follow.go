package inotify

import (
	"context"
	"path/filepath"
	"time"
)

// lookAgain is how often a file is looked at without cause: links on the way to it are not watched.
const lookAgain = time.Minute

// Follow calls look at once, whenever something in the directory of a file has changed, which is also how files
// of mounted ConfigMaps change, and now and then without cause. It ends with ctx, or when look says that it has seen enough. An
// error is that the directory cannot be watched.
func Follow(ctx context.Context, file string, look func(context.Context) (enough bool)) error {
	w, err := Watch(filepath.Dir(file), Closed|Moved)
	if err != nil {
		return err
	}
	defer w.Close()
	follow(ctx, w.Changed, look)
	return nil
}

func follow(ctx context.Context, changed <-chan struct{}, look func(context.Context) (enough bool)) {
	timer := time.NewTicker(lookAgain)
	defer timer.Stop()
	for ctx.Err() == nil && !look(ctx) { // what was written before the watch began, too
		select {
		case <-changed:
		case <-timer.C:
		case <-ctx.Done():
		}
	}
}
