package kubelet

import (
	"context"
	"fmt"
	"net/http"
	"runtime/debug"
	"time"

	"github.com/kemudi/kemudi/internal/task"
)

// contained runs f, a part of what the agent does for one pod (empty: for all),
// and reports whether it came to its end. A panic of it is told, with its stack,
// and goes no further: the other pods are run on.
func (a *Agent) contained(part, pod string, f func()) bool {
	err := task.Contain(func() error { f(); return nil })
	if err != nil {
		a.o.Log.Error("node agent panicked", "part", part, "pod", pod, "err", err)
	}
	return err == nil
}

// afterPanic is the back-off of what has panicked: longer each time.
func afterPanic() task.Backoff { return task.Backoff{Initial: time.Second, Max: time.Minute} }

// lasting is a part of the agent that begins anew when it has panicked.
func (a *Agent) lasting(part string, f func(context.Context) error) func(context.Context) error {
	return func(ctx context.Context) error {
		again := afterPanic()
		for {
			var err error
			if a.contained(part, "", func() { err = f(ctx) }) {
				return err
			}
			if err := task.Sleep(ctx, again.Next()); err != nil {
				return err
			}
		}
	}
}

// guarded answers for a handler that panics.
func (a *Agent) guarded(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		defer func() {
			p := recover()
			if p == nil {
				return
			}
			if p == http.ErrAbortHandler {
				panic(p) // net/http cuts the connection off
			}
			a.o.Log.ErrorContext(r.Context(), "node agent panicked", "part", "API", "method", r.Method, "path", r.URL.Path, "err", fmt.Sprintf("panic: %v\n%s", p, debug.Stack()))
			http.Error(w, "This request caused the node agent to panic. Look in the logs for details.", http.StatusInternalServerError)
		}()
		next.ServeHTTP(w, r)
	})
}
