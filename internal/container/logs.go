package container

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"runtime"
	"slices"
	"strings"

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

// harmless lists messages of containerd about what is normal here: how the message starts,
// and, unless detail is empty, a text that the message's values must contain.
var harmless = []struct{ start, detail string }{
	{start: "failed check for fsverity support"},
	{start: "copy shim log"}, // the log's pipe was closed first, at the end of a pod
	{start: "failed to load cni during init, please check CRI plugin status before setting up network for pods"}, // the pod network comes later
	// A call that was given up, such as a probe that took too long, was answered after all.
	{start: "ttrpc: received message on inactive stream"},
	// A container could not be started, which the pod's events tell with the reason:
	// there is no task yet, nor a process, and nobody writes to its output.
	{"failed to delete task", "container not created"},
	{"warnings while cleaning up dead shim", oneWarning + "failed to read init pid file"},
	{"Failed to pipe ", "reading from a closed fifo"},
	// A container ended while this process did: the next one asks how.
	{"get state for ", "context canceled"},
	{"unknown status", "0"},
	{"failed to handle container TaskExit event", "database not open"},
	// Whoever asked is told: the pod's events say it, or the command.
	{start: "PullImage "},
	// A pod's shim has ended while one of its containers was being stopped: there is
	// nothing left to stop, as the next try finds.
	{start: "Shim ttrpc connection closed when stopping container"},
	// A shim has ended before it was told that its last event had come.
	{"failed sending message on channel", "broken pipe"},
	{"failed sending message on channel", "connection reset by peer"},
	// A pod has gone while somebody asked what all of them use.
	{start: "skipping container "},
	// Who followed the output has gone.
	{"Failed to pipe ", "connection reset by peer"},
	{"Failed to pipe ", "broken pipe"},
	{"Failed to pipe ", "use of closed network connection"},
}

// oneWarning is how the only line of a shim's log goes on after the time.
const oneWarning = `level=warning msg="`

// expected says whether a message is one of the harmless ones.
func expected(e *logrus.Entry) bool {
	for _, h := range harmless {
		if !strings.HasPrefix(e.Message, h.start) {
			continue
		}
		if h.detail == "" {
			return true
		}
		for _, v := range e.Data {
			// A log of several lines may say more than what is known.
			if text := strings.TrimSpace(fmt.Sprint(v)); strings.Contains(text, h.detail) && !strings.Contains(text, "\n") {
				return true
			}
		}
	}
	return false
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
	if expected(e) {
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
