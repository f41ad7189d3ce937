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
	*log // shared by all handlers that write to the same place
}

// log is where lines go.
type log struct {
	last  atomic.Pointer[error]
	level slog.LevelVar // the lowest that is logged
	begun slog.Level    // what that was at the beginning
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
	return written{h.Handler.WithAttrs(attrs), h.log}
}

func (h written) WithGroup(name string) slog.Handler {
	return written{h.Handler.WithGroup(name), h.log}
}

// checkLog fails while what is logged is lost, as on a full disk. Of a logger that
// [NewLogger] has not made, nothing is known.
func checkLog(l *slog.Logger) error {
	if l == nil {
		return nil
	}
	if h, ok := l.Handler().(written); ok {
		if err := h.last.Load(); err != nil {
			return fmt.Errorf("write the log: %w", *err)
		}
	}
	return nil
}
