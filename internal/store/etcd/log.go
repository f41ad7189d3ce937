package etcd

import (
	"context"
	"log/slog"
	"strings"

	"go.uber.org/zap/zapcore"
)

// slogCore hands etcd's log to log. Its information is for etcd's developers
// and becomes debug messages, as do the warnings of a normal start.
type slogCore struct{ log *slog.Logger }

var _ zapcore.Core = slogCore{}

// expected are parts of warnings that say nothing to an operator: of settings
// that are as we want them, and of what is tried again soon.
var expected = []string{
	// On a slow machine a new member's election timer may go off before it has
	// noted that it is a member.
	"since there are still pending configuration changes to apply",
	"Running http and grpc server on single port",
	"simple token is not cryptographically signed",
	"found invalid file under data directory",
	"failed to publish local member to cluster through raft",
	"Failed to detect schema version",         // before the first commit of a new database
	"failed to update storage version",        // likewise
	"Failed to detect storage schema version", // likewise, at the start after a kill
	"stopped publish because server is stopping",
	"failed to update cluster version", // likewise, or tried again a few seconds later
}

func level(l zapcore.Level) slog.Level {
	switch {
	case l >= zapcore.ErrorLevel:
		return slog.LevelError
	case l == zapcore.WarnLevel:
		return slog.LevelWarn
	}
	return slog.LevelDebug
}

func (c slogCore) Enabled(l zapcore.Level) bool {
	return c.log.Enabled(context.Background(), level(l))
}

func (c slogCore) With(fields []zapcore.Field) zapcore.Core {
	return slogCore{log: c.log.With(attrs(fields)...)}
}

func (c slogCore) Check(e zapcore.Entry, ce *zapcore.CheckedEntry) *zapcore.CheckedEntry {
	if c.Enabled(e.Level) {
		return ce.AddCore(e, c)
	}
	return ce
}

func (c slogCore) Write(e zapcore.Entry, fields []zapcore.Field) error {
	l := level(e.Level)
	for _, part := range expected {
		if l >= slog.LevelWarn && strings.Contains(e.Message, part) {
			l = slog.LevelDebug
		}
	}
	c.log.Log(context.Background(), l, e.Message, attrs(fields)...)
	return nil
}

func (c slogCore) Sync() error { return nil }

func attrs(fields []zapcore.Field) []any {
	m := zapcore.NewMapObjectEncoder()
	for _, f := range fields {
		f.AddTo(m)
	}
	args := make([]any, 0, len(fields))
	for _, f := range fields {
		if v, ok := m.Fields[f.Key]; ok {
			args = append(args, slog.Any(f.Key, v))
		}
	}
	return args
}
