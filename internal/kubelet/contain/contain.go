// Package contain keeps a panic of one part of the node agent from the others: it is
// logged with its stack, and goes no further.
package contain

import (
	"context"
	"log/slog"
	"time"

	"github.com/kemudi/kemudi/internal/task"
)

// Run runs f, a part of what the agent does for one pod (empty: for all), and
// reports whether it came to its end. A panic of it is told, with its stack, and
// goes no further: the other pods are run on.
func Run(log *slog.Logger, part, pod string, f func()) bool {
	err := task.Contain(func() error { f(); return nil })
	if err != nil {
		log.Error("node agent panicked", "part", part, "pod", pod, "err", err)
	}
	return err == nil
}

// Backoff is how long what has panicked waits: longer each time.
func Backoff() task.Backoff { return task.Backoff{Initial: time.Second, Max: time.Minute} }

// Lasting is a part of the agent that begins anew when it has panicked.
func Lasting(log *slog.Logger, part string, f func(context.Context) error) func(context.Context) error {
	return func(ctx context.Context) error {
		again := Backoff()
		for {
			var err error
			if Run(log, part, "", func() { err = f(ctx) }) {
				return err
			}
			if err := task.Sleep(ctx, again.Next()); err != nil {
				return err
			}
		}
	}
}
