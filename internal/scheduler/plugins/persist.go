package plugins

import (
	"context"
	"errors"
	"syscall"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/kemudi/kemudi/internal/task"
)

// pauses are the waits between the tries of [Persist], which are upstream's.
var pauses = [...]time.Duration{10 * time.Millisecond, 50 * time.Millisecond, 250 * time.Millisecond}

// Persist writes something through the API, and again if that fails by what may be over in a moment: whoever is to be bound
// would else lose its place, and with it its whole group theirs. It must be harmless to write it twice.
func Persist(ctx context.Context, write func() error) error {
	for _, pause := range pauses {
		err := write()
		if !momentary(err) {
			return err
		}
		if task.Sleep(ctx, pause) != nil {
			return err
		}
	}
	return write()
}

// momentary reports whether an error may be over in a moment.
func momentary(err error) bool {
	return apierrors.IsInternalError(err) || apierrors.IsServiceUnavailable(err) || errors.Is(err, syscall.ECONNREFUSED)
}
