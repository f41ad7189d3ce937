package main

import (
	"github.com/spf13/pflag"

	"github.com/kemudi/kemudi/internal/cluster"
)

func addAuditFlags(f *pflag.FlagSet, o *cluster.Audit) {
	f.StringVar(&o.PolicyFile, "audit-policy-file", o.PolicyFile, "file of an audit.k8s.io/v1 Policy: what is told of which requests; none: nothing is audited")

	l := &o.File
	f.StringVar(&l.Path, "audit-log-path", l.Path, "file that audit events are written to; -: standard output")
	f.IntVar(&l.MaxAge, "audit-log-maxage", l.MaxAge, "how many days old audit files are kept; 0: for ever")
	f.IntVar(&l.MaxBackups, "audit-log-maxbackup", l.MaxBackups, "how many old audit files are kept; 0: all of them")
	f.IntVar(&l.MaxSize, "audit-log-maxsize", l.MaxSize, "how many megabytes an audit file has at the most before another is begun; 0: as many as come")
	f.BoolVar(&l.Compress, "audit-log-compress", l.Compress, "compress old audit files by gzip")
	f.StringVar(&l.Format, "audit-log-format", l.Format, "what an event looks like in the file: json, or legacy, a line of text")
	f.StringVar(&l.Version, "audit-log-version", l.Version, "group and version of the events in the file")
	f.StringVar(&l.Mode, "audit-log-mode", l.Mode, "what a request waits for: nothing (batch), that its event is in the file (blocking), or that as well, and it is refused if that fails (blocking-strict)")
	f.IntVar(&l.Batch.BufferSize, "audit-log-batch-buffer-size", l.Batch.BufferSize, "how many events wait for the file at the most, in the mode batch; others are lost")
	f.IntVar(&l.Batch.MaxSize, "audit-log-batch-max-size", l.Batch.MaxSize, "how many events are written together, in the mode batch")
	f.DurationVar(&l.Batch.MaxWait, "audit-log-batch-max-wait", l.Batch.MaxWait, "how long an event waits for others to be written with, in the mode batch")
	f.BoolVar(&l.Batch.ThrottleEnable, "audit-log-batch-throttle-enable", l.Batch.ThrottleEnable, "bound how often batches are written to the file")
	f.Float32Var(&l.Batch.ThrottleQPS, "audit-log-batch-throttle-qps", l.Batch.ThrottleQPS, "how many batches a second that is, in the long run")
	f.IntVar(&l.Batch.ThrottleBurst, "audit-log-batch-throttle-burst", l.Batch.ThrottleBurst, "how many batches may come at once")
	f.BoolVar(&l.Truncate.Enabled, "audit-log-truncate-enabled", l.Truncate.Enabled, "bound the events in the file")
	f.Int64Var(&l.Truncate.MaxBatchSize, "audit-log-truncate-max-batch-size", l.Truncate.MaxBatchSize, "how many bytes of events are written together")
	f.Int64Var(&l.Truncate.MaxEventSize, "audit-log-truncate-max-event-size", l.Truncate.MaxEventSize, "how many bytes an event has: of larger ones what was sent and answered is left out, and still larger ones are lost")

	w := &o.Webhook
	f.StringVar(&w.ConfigFile, "audit-webhook-config-file", w.ConfigFile, "kubeconfig of a server that audit events are posted to")
	f.DurationVar(&w.InitialBackoff, "audit-webhook-initial-backoff", w.InitialBackoff, "how long to wait before events are posted again")
	f.StringVar(&w.Version, "audit-webhook-version", w.Version, "group and version of the events that are posted")
	f.StringVar(&w.Mode, "audit-webhook-mode", w.Mode, "what a request waits for: nothing (batch), that its event was posted (blocking), or that as well, and it is refused if that fails (blocking-strict)")
	f.IntVar(&w.Batch.BufferSize, "audit-webhook-batch-buffer-size", w.Batch.BufferSize, "how many events wait to be posted at the most, in the mode batch; others are lost")
	f.IntVar(&w.Batch.MaxSize, "audit-webhook-batch-max-size", w.Batch.MaxSize, "how many events are posted together, in the mode batch")
	f.DurationVar(&w.Batch.MaxWait, "audit-webhook-batch-max-wait", w.Batch.MaxWait, "how long an event waits for others to be posted with, in the mode batch")
	f.BoolVar(&w.Batch.ThrottleEnable, "audit-webhook-batch-throttle-enable", w.Batch.ThrottleEnable, "bound how often batches are posted")
	f.Float32Var(&w.Batch.ThrottleQPS, "audit-webhook-batch-throttle-qps", w.Batch.ThrottleQPS, "how many batches a second that is, in the long run")
	f.IntVar(&w.Batch.ThrottleBurst, "audit-webhook-batch-throttle-burst", w.Batch.ThrottleBurst, "how many batches may be posted at once")
	f.BoolVar(&w.Truncate.Enabled, "audit-webhook-truncate-enabled", w.Truncate.Enabled, "bound the events that are posted")
	f.Int64Var(&w.Truncate.MaxBatchSize, "audit-webhook-truncate-max-batch-size", w.Truncate.MaxBatchSize, "how many bytes of events are posted together")
	f.Int64Var(&w.Truncate.MaxEventSize, "audit-webhook-truncate-max-event-size", w.Truncate.MaxEventSize, "how many bytes a posted event has: of larger ones what was sent and answered is left out, and still larger ones are lost")
}
