package audit

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Modes of a backend.
const (
	Batch          = "batch"           // events are told later, by themselves; those that find no room are lost
	Blocking       = "blocking"        // a request goes on when its event has been told, or could not be
	BlockingStrict = "blocking-strict" // a request that cannot be told of is refused
)

// modes are those that there are, as refusals list them.
var modes = []string{Batch, Blocking, BlockingStrict}

// Formats of a line of the file.
const (
	JSON   = "json"
	Legacy = "legacy" // one line of text
)

// formats are those that there are, as refusals list them.
var formats = []string{Legacy, JSON}

// version is that of events, the only one that there is.
const version = "audit.k8s.io/v1"

// Options say what is audited, and who is told; each field is the flag that is named. The
// zero value audits nothing; others start from [Defaults].
type Options struct {
	PolicyFile string // --audit-policy-file; empty: nothing is audited
	File       FileOptions
	Webhook    WebhookOptions

	Registry *prometheus.Registry // of the metrics; nil: nobody sees them
	Logger   *slog.Logger         // nil: nobody is told what goes wrong
}

// FileOptions configure the file.
type FileOptions struct {
	Path       string // --audit-log-path; -: standard output; empty: there is none
	MaxAge     int    // --audit-log-maxage: days that old files are kept; 0: for ever
	MaxBackups int    // --audit-log-maxbackup: how many old files are kept; 0: all
	MaxSize    int    // --audit-log-maxsize: megabytes at which a file is turned over; 0: never
	Compress   bool   // --audit-log-compress: old files
	Format     string // --audit-log-format
	Version    string // --audit-log-version
	Mode       string // --audit-log-mode
	Batch      BatchOptions
	Truncate   TruncateOptions
}

// WebhookOptions configure the webhook.
type WebhookOptions struct {
	ConfigFile     string        // --audit-webhook-config-file: a kubeconfig; empty: there is none
	InitialBackoff time.Duration // --audit-webhook-initial-backoff: before the first further try
	Version        string        // --audit-webhook-version
	Mode           string        // --audit-webhook-mode
	Batch          BatchOptions
	Truncate       TruncateOptions
	// Dial makes the connections. Nil: they are made directly.
	Dial func(ctx context.Context, network, address string) (net.Conn, error)
}

// BatchOptions configure the mode batch of the file (--audit-log-batch-*) or the webhook
// (--audit-webhook-batch-*).
type BatchOptions struct {
	BufferSize     int           // how many events wait at the most
	MaxSize        int           // how many are told at a time
	MaxWait        time.Duration // how long the first of them waits for others
	ThrottleEnable bool          // ThrottleQPS and ThrottleBurst hold
	ThrottleQPS    float32       // batches a second, in the long run
	ThrottleBurst  int           // batches at a time
}

// TruncateOptions bound what the file (--audit-log-truncate-*) or the webhook
// (--audit-webhook-truncate-*) is told at a time.
type TruncateOptions struct {
	Enabled      bool
	MaxBatchSize int64 // bytes of events that are told at a time
	MaxEventSize int64 // bytes of an event; of larger ones what was sent and answered is left out
}

// Defaults are what people who name a policy and a file or a webhook get.
func Defaults() Options {
	truncate := TruncateOptions{MaxBatchSize: 10 << 20, MaxEventSize: 100 << 10}
	const buffer = 10000
	return Options{
		File: FileOptions{
			MaxAge: 366, MaxBackups: 100, MaxSize: 100, Format: JSON, Version: version, Mode: Blocking,
			Batch: BatchOptions{BufferSize: buffer, MaxSize: 1}, Truncate: truncate,
		},
		Webhook: WebhookOptions{
			InitialBackoff: 10 * time.Second, Version: version, Mode: Batch,
			Batch: BatchOptions{
				BufferSize: buffer, MaxSize: 400, MaxWait: 30 * time.Second, ThrottleEnable: true, ThrottleQPS: 10, ThrottleBurst: 15,
			},
			Truncate: truncate,
		},
	}
}

// Check says what is wrong with the options, the policy included. What is not used is not
// looked at.
func (o *Options) Check() error {
	if f := &o.File; f.Path != "" {
		if err := f.check(); err != nil {
			return err
		}
	}
	if w := &o.Webhook; w.ConfigFile != "" {
		if err := w.check(); err != nil {
			return err
		}
	}
	if o.PolicyFile == "" {
		return nil
	}
	if _, _, err := readPolicy(o.PolicyFile); err != nil {
		return fmt.Errorf("--audit-policy-file: %w", err)
	}
	return nil
}

func (f *FileOptions) check() error {
	if err := checkMode("log", f.Mode, &f.Batch); err != nil {
		return fmt.Errorf("--audit-log-mode, --audit-log-batch: %w", err)
	}
	if err := f.Truncate.check("log"); err != nil {
		return fmt.Errorf("--audit-log-truncate: %w", err)
	}
	if err := checkVersion(f.Version); err != nil {
		return fmt.Errorf("--audit-log-version: %w", err)
	}
	if !slices.Contains(formats, f.Format) {
		return fmt.Errorf("--audit-log-format: invalid audit log format %s, allowed formats are %q", f.Format, strings.Join(formats, ","))
	}
	for _, n := range []struct {
		flag  string
		value int
	}{{"--audit-log-maxage", f.MaxAge}, {"--audit-log-maxbackup", f.MaxBackups}, {"--audit-log-maxsize", f.MaxSize}} {
		if n.value < 0 {
			return fmt.Errorf("%s %v can't be a negative number", n.flag, n.value)
		}
	}
	return nil
}

func (w *WebhookOptions) check() error {
	if err := checkMode("webhook", w.Mode, &w.Batch); err != nil {
		return fmt.Errorf("--audit-webhook-mode, --audit-webhook-batch: %w", err)
	}
	if err := w.Truncate.check("webhook"); err != nil {
		return fmt.Errorf("--audit-webhook-truncate: %w", err)
	}
	if err := checkVersion(w.Version); err != nil {
		return fmt.Errorf("--audit-webhook-version: %w", err)
	}
	if w.InitialBackoff < 0 {
		return fmt.Errorf("--audit-webhook-initial-backoff %s can't be negative", w.InitialBackoff)
	}
	return nil
}

// checkMode looks at the mode of a backend, and at the batches if it is that.
func checkMode(backend, mode string, b *BatchOptions) error {
	switch {
	case !slices.Contains(modes, mode):
		return fmt.Errorf("invalid audit %s mode %s, allowed modes are %q", backend, mode, strings.Join(modes, ","))
	case mode != Batch:
	case b.BufferSize <= 0:
		return fmt.Errorf("invalid audit batch %s buffer size %v, must be a positive number", backend, b.BufferSize)
	case b.MaxSize <= 0:
		return fmt.Errorf("invalid audit batch %s max batch size %v, must be a positive number", backend, b.MaxSize)
	case b.ThrottleEnable && b.ThrottleQPS <= 0:
		return fmt.Errorf("invalid audit batch %s throttle QPS %v, must be a positive number", backend, b.ThrottleQPS)
	case b.ThrottleEnable && b.ThrottleBurst <= 0:
		return fmt.Errorf("invalid audit batch %s throttle burst %v, must be a positive number", backend, b.ThrottleBurst)
	}
	return nil
}

func (t *TruncateOptions) check(backend string) error {
	switch {
	case t.MaxEventSize <= 0:
		return fmt.Errorf("invalid audit truncate %s max event size %v, must be a positive number", backend, t.MaxEventSize)
	case t.MaxBatchSize < t.MaxEventSize:
		return fmt.Errorf("invalid audit truncate %s max batch size %v, must be greater than max event size (%v)", backend, t.MaxBatchSize, t.MaxEventSize)
	}
	return nil
}

func checkVersion(v string) error {
	if v != version {
		return fmt.Errorf("invalid group version %q, allowed versions are [%q]", v, version)
	}
	return nil
}
