package obs

import (
	"context"
	"log/slog"
	"slices"
	"strings"
)

// quiet hands records on with level info lowered to debug, and with it the errors
// that are one client's affair.
type quiet struct{ slog.Handler }

var _ slog.Handler = quiet{}

// ofOneClient are the starts of errors that say no more than that the two ends
// of somebody's exec, attach or port-forward did not part in good order, or that
// nobody serves the port asked for. The client is told; nobody else needs to act.
var ofOneClient = []string{
	"Error on socket receive",
	"Error proxying data from backend to client",
	"Error proxying data from client to backend",
	"Copying stdin failed",
	"Copying stdout failed",
	"Copying stderr failed",
}

// unhandled is the message of an error that a library has nobody to tell of. The
// error itself says what it is about, and may be one client's affair as well.
const unhandled = "Unhandled Error"

var unhandledOneClient = []string{
	"error forwarding port ",
	"error executing command in container: ",
	"error attaching to container: ",
}

func lower(l slog.Level) slog.Level {
	if l == slog.LevelInfo {
		return slog.LevelDebug
	}
	return l
}

func (q quiet) Enabled(ctx context.Context, l slog.Level) bool {
	return q.Handler.Enabled(ctx, lower(l))
}

func (q quiet) Handle(ctx context.Context, r slog.Record) error {
	r.Level = lower(r.Level)
	if r.Level > slog.LevelDebug && isOfOneClient(r) {
		if r.Level = slog.LevelDebug; !q.Handler.Enabled(ctx, r.Level) {
			return nil
		}
	}
	return q.Handler.Handle(ctx, r)
}

func isOfOneClient(r slog.Record) bool {
	starts := func(text string, with []string) bool {
		return slices.ContainsFunc(with, func(start string) bool { return strings.HasPrefix(text, start) })
	}
	found := starts(r.Message, ofOneClient)
	if r.Message == unhandled {
		r.Attrs(func(a slog.Attr) bool {
			found = a.Key == "err" && starts(a.Value.String(), unhandledOneClient)
			return !found
		})
	}
	return found
}

func (q quiet) WithAttrs(attrs []slog.Attr) slog.Handler { return quiet{q.Handler.WithAttrs(attrs)} }

func (q quiet) WithGroup(name string) slog.Handler { return quiet{q.Handler.WithGroup(name)} }
