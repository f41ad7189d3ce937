package container

import (
	"context"
	"io"
	"log/slog"
	"runtime"
	"slices"

	"github.com/sirupsen/logrus"
)

// routeLogs sends what containerd logs to o.Logger. containerd logs through one
// logger per process, so the last runtime created in a process gets it all.
// Messages below o.LogLevel are dropped before they are put together.
//
// containerd ends the process on a fatal message. It must not: fatal is called
// instead, and the goroutine that logged it ends.
func routeLogs(o Options, fatal func(message string)) {
	l := logrus.StandardLogger()
	l.SetOutput(io.Discard)
	l.SetFormatter(discardFormat{})
	l.SetLevel(logrusLevel(o.LogLevel.Level()))
	l.ReplaceHooks(logrus.LevelHooks{})
	l.AddHook(logHook{logger: o.Logger.With("part", "containerd"), fatal: fatal})
	l.ExitFunc = func(int) { runtime.Goexit() }
}

// harmless lists warnings that only say what is normal here.
var harmless = []string{
	"failed check for fsverity support",
	"copy shim log", // the log's pipe was closed first, at the end of a pod
	"failed to load cni during init, please check CRI plugin status before setting up network for pods", // the pod network comes later
}

// discardFormat saves formatting what is written nowhere.
type discardFormat struct{}

func (discardFormat) Format(*logrus.Entry) ([]byte, error) { return nil, nil }

type logHook struct {
	logger *slog.Logger
	fatal  func(message string)
}

func (logHook) Levels() []logrus.Level { return logrus.AllLevels }

func (h logHook) Fire(e *logrus.Entry) error {
	ctx := e.Context
	if ctx == nil {
		ctx = context.Background()
	}
	keys := make([]string, 0, len(e.Data))
	for k := range e.Data {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	attrs := make([]slog.Attr, 0, len(keys))
	for _, k := range keys {
		v := e.Data[k]
		if k == logrus.ErrorKey {
			k = "err"
		}
		attrs = append(attrs, slog.Any(k, v))
	}
	level := slogLevel(e.Level)
	if slices.Contains(harmless, e.Message) {
		level = slog.LevelDebug
	}
	h.logger.LogAttrs(ctx, level, e.Message, attrs...)
	if e.Level <= logrus.FatalLevel {
		message := e.Message
		if err, ok := e.Data[logrus.ErrorKey].(error); ok {
			message += ": " + err.Error()
		}
		h.fatal(message)
	}
	return nil
}

func slogLevel(l logrus.Level) slog.Level {
	switch l {
	case logrus.TraceLevel, logrus.DebugLevel:
		return slog.LevelDebug
	case logrus.InfoLevel:
		return slog.LevelInfo
	case logrus.WarnLevel:
		return slog.LevelWarn
	default:
		return slog.LevelError
	}
}

func logrusLevel(l slog.Level) logrus.Level {
	switch {
	case l < slog.LevelDebug:
		return logrus.TraceLevel
	case l < slog.LevelInfo:
		return logrus.DebugLevel
	case l < slog.LevelWarn:
		return logrus.InfoLevel
	case l < slog.LevelError:
		return logrus.WarnLevel
	default:
		return logrus.ErrorLevel
	}
}
