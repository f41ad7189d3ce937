package obs

import (
	"fmt"
	"io"
	stdlog "log"
	"log/slog"
	"strings"

	"github.com/spf13/pflag"
	"k8s.io/klog/v2"
)

// LogOptions say what is logged and how. The zero value logs from level info as text.
type LogOptions struct {
	// Level is the lowest level logged: debug, info, warn or error. Default info.
	Level string
	// Format is text (key=value, for people) or json (one object a line). Default text.
	Format string
}

// AddFlags adds --log-level and --log-format to flags.
func (o *LogOptions) AddFlags(flags *pflag.FlagSet) {
	flags.StringVar(&o.Level, "log-level", "info", "lowest level logged: debug, info, warn or error")
	flags.StringVar(&o.Format, "log-format", "text", "format of the log: text or json")
}

// withDefaults fills in what is unset.
func (o LogOptions) withDefaults() LogOptions {
	if o.Level == "" {
		o.Level = "info"
	}
	if o.Format == "" {
		o.Format = "text"
	}
	return o
}

// NewLogger returns a logger that writes to w as o says.
func NewLogger(w io.Writer, o LogOptions) (*slog.Logger, error) {
	o = o.withDefaults()
	level, err := parseLevel(o.Level)
	if err != nil {
		return nil, err
	}
	to := &log{begun: level}
	to.level.Set(level)
	handler := &slog.HandlerOptions{Level: &to.level}
	switch o.Format {
	case "text":
		return slog.New(written{slog.NewTextHandler(w, handler), to}), nil
	case "json":
		return slog.New(written{slog.NewJSONHandler(w, handler), to}), nil
	}
	return nil, fmt.Errorf("log format %q: must be text or json", o.Format)
}

func parseLevel(s string) (slog.Level, error) {
	switch strings.ToLower(s) {
	case "debug":
		return slog.LevelDebug, nil
	case "info":
		return slog.LevelInfo, nil
	case "warn":
		return slog.LevelWarn, nil
	case "error":
		return slog.LevelError, nil
	}
	return 0, fmt.Errorf("log level %q: must be debug, info, warn or error", s)
}

// CaptureStandard sends what libraries write to the standard library's logger to log, as
// information: CoreDNS tells there of each question that could not be answered.
func CaptureStandard(to *slog.Logger) {
	stdlog.SetFlags(0)
	stdlog.SetOutput(slog.NewLogLogger(to.With("component", "library").Handler(), slog.LevelInfo).Writer())
}

// CaptureKlog sends what the Kubernetes libraries log to log, marked with
// component=library. What is not an error becomes a debug message: it is written
// for the authors of those libraries, who do not tell warnings from chatter here.
func CaptureKlog(log *slog.Logger) {
	klog.SetSlogLogger(slog.New(quiet{log.With("component", "library").Handler()}))
}
