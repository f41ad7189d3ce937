package audit

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"

	"github.com/kemudi/kemudi/internal/task"
)

// Log decides what of each request is told, and has it told. A nil Log tells nothing. Its
// methods may be called concurrently.
type Log struct {
	policy   *policy
	backends []backend
	told     *telling

	// What runs meanwhile: batches, and after them what they are told to.
	batches, sinks []func(ctx context.Context) error
}

// backend is told events, which stay as they are (U2), or stands before another. Its
// methods may be called concurrently.
type backend interface {
	// process takes events in; ok is false if one of them could not be told, and that
	// is to be heard by the request that it is about.
	process(events []*auditv1.Event) (ok bool)
}

// telling is what all backends share: who hears of what they have lost.
type telling struct {
	metrics *metrics
	log     *slog.Logger

	mu struct {
		sync.Mutex
		quiet  time.Time // nothing is logged until then
		unsaid int       // events that were lost meanwhile
	}
}

// logEvery is how often it is logged that events are lost, at the most.
const logEvery = time.Second

// dropped counts events that a backend has not told, and says why (U4).
func (t *telling) dropped(plugin string, n int, why error) {
	t.metrics.errors.WithLabelValues(plugin).Add(float64(n))
	t.mu.Lock()
	now := time.Now()
	n += t.mu.unsaid
	say := !now.Before(t.mu.quiet)
	if t.mu.unsaid = n; say {
		t.mu.unsaid, t.mu.quiet = 0, now.Add(logEvery)
	}
	t.mu.Unlock()
	if say {
		t.log.Error("audit events are lost", "plugin", plugin, "events", n, "err", why)
	}
}

// New makes what the options ask for; nil if nothing is told (U1). Options are as [Options.Check]
// wants them.
func New(o Options) (*Log, error) {
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	t := &telling{metrics: newMetrics(o.Registry), log: o.Logger}
	if o.PolicyFile == "" {
		for _, backend := range []struct{ flag, value string }{{"--audit-log-path", o.File.Path}, {"--audit-webhook-config-file", o.Webhook.ConfigFile}} {
			if backend.value != "" {
				o.Logger.Warn("nothing is audited: there is no --audit-policy-file", "flag", backend.flag)
			}
		}
		return nil, nil
	}
	p, strict, err := readPolicy(o.PolicyFile)
	if err != nil {
		return nil, err
	}
	for _, err := range strict {
		o.Logger.Warn("the audit policy has a fault, which is passed over", "file", o.PolicyFile, "err", err)
	}
	l := &Log{policy: newPolicy(p), told: t}
	if o.File.Path != "" {
		if err := l.addFile(&o.File); err != nil {
			return nil, fmt.Errorf("--audit-log-path: %w", err)
		}
	}
	if o.Webhook.ConfigFile != "" {
		if err := l.addWebhook(&o.Webhook); err != nil {
			return nil, fmt.Errorf("--audit-webhook-config-file: %w", err)
		}
	}
	if len(l.backends) == 0 {
		return nil, nil
	}
	return l, nil
}

// addFile has a file told.
func (l *Log) addFile(o *FileOptions) error {
	f, err := openFile(o, l.told)
	if err != nil {
		return err
	}
	l.sinks = append(l.sinks, f.run)
	var b backend = &fileSink{out: f, legacy: o.Format == Legacy, told: l.told}
	switch o.Mode {
	case Batch:
		batches := newBatches(b, o.Batch, l.told)
		l.batches = append(l.batches, batches.run)
		b = batches
	case Blocking:
		b = lenient{b}
	}
	l.backends = append(l.backends, truncated(b, o.Truncate, l.told))
	return nil
}

// addWebhook has a webhook told.
func (l *Log) addWebhook(o *WebhookOptions) error {
	hook, err := newWebhook(o, l.told)
	if err != nil {
		return err
	}
	var b backend
	if o.Mode == Batch {
		batches := newBatches(hook, o.Batch, l.told)
		batches.aside = max(o.Batch.BufferSize/o.Batch.MaxSize, 1)
		l.batches = append(l.batches, batches.run)
		b = batches
	} else {
		b = hook
	}
	l.sinks = append(l.sinks, hook.run)
	if o.Mode == Blocking {
		b = lenient{b}
	}
	l.backends = append(l.backends, truncated(b, o.Truncate, l.told))
	return nil
}

// lenient is a backend whose failures are no request's affair.
type lenient struct{ backend }

func (l lenient) process(events []*auditv1.Event) bool {
	l.backend.process(events)
	return true
}

// lastTimeout is how long there is for what waits to be told when the server ends.
const lastTimeout = 10 * time.Second

// Run does what is not done by requests themselves, until ctx ends and what waited has been
// told.
func (l *Log) Run(ctx context.Context) error {
	batches, sinks := task.NewGroup(ctx), task.NewGroup(context.WithoutCancel(ctx))
	for _, run := range l.batches {
		batches.Go("audit batches", run)
	}
	for _, run := range l.sinks {
		sinks.Go("audit backend", run)
	}
	select {
	case <-ctx.Done():
	case <-batches.Context().Done():
	case <-sinks.Context().Done():
		batches.Cancel(context.Cause(sinks.Context()))
	}
	late := time.AfterFunc(lastTimeout, func() { sinks.Cancel(context.DeadlineExceeded) })
	defer late.Stop()
	err := batches.Wait()
	sinks.Cancel(context.Canceled)
	return cmp.Or(sinks.Wait(), err)
}

// tell tells all backends an event.
func (l *Log) tell(e *auditv1.Event) (ok bool) {
	l.told.metrics.events.Inc()
	events := []*auditv1.Event{e}
	ok = true
	for _, b := range l.backends {
		ok = b.process(events) && ok
	}
	return ok
}

// New is a request of which nothing is known yet but when it has come, which is now, and
// the ID that its client has given it, or the server. It is nil if l is.
func (l *Log) New(id string) *Request {
	if l == nil {
		return nil
	}
	r := &Request{log: l}
	r.mu.event.AuditID = types.UID(id)
	r.mu.event.RequestReceivedTimestamp = metav1.NewMicroTime(time.Now())
	return r
}
