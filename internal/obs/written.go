package obs

import (
	"context"
	"fmt"
	"log/slog"
	"sync/atomic"
)

// written is a handler that remembers whether the last line could be written:
// loggers do not tell those who log.
type written struct {
	slog.Handler
	last *atomic.Pointer[error] // shared by all handlers that write to the same place
}

func (h written) Handle(ctx context.Context, r slog.Record) error {
	err := h.Handler.Handle(ctx, r)
	if err == nil {
		h.last.Store(nil)
		return nil
	}
	h.last.Store(&err)
	return err
}

func (h written) WithAttrs(attrs []slog.Attr) slog.Handler {
	return written{h.Handler.WithAttrs(attrs), h.last}
}

func (h written) WithGroup(name string) slog.Handler {
	return written{h.Handler.WithGroup(name), h.last}
}

// checkLog fails while what is logged is lost, as on a full disk. Of a logger that
// [NewLogger] has not made, nothing is known.
func checkLog(log *slog.Logger) error {
	if log == nil {
		return nil
	}
	if h, ok := log.Handler().(written); ok {
		if err := h.last.Load(); err != nil {
			return fmt.Errorf("write the log: %w", *err)
		}
	}
	return nil
}
