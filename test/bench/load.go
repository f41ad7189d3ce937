package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kemudi/kemudi/internal/task"
)

// Sizes of the load.
const (
	clients    = 16
	podsLoaded = 10_000
	configMaps = 8_000
	gets       = 30_000
	applies    = 2_000
	lists      = 5
	watchers   = 64
	watched    = 500 // changes that every watcher sees
)

// loader sends requests to a server that serves its API alone.
type loader struct {
	b *bench
	s *server
	a *access
}

// load measures a control plane under load, and with many objects. It restarts
// the server.
func (b *bench) load(ctx context.Context, s *server) error {
	a, err := awaitAPI(ctx, s)
	if err != nil {
		return err
	}
	l := &loader{b, s, a}
	for _, step := range []func(context.Context) error{l.namespaces, l.create, l.putStatus, l.list, l.get, l.apply, l.watch, l.createConfigMaps} {
		if err := step(ctx); err != nil {
			return err
		}
	}
	if err := l.full(ctx, fullMemory); err != nil {
		return err
	}
	if err := s.restart(b.bin); err != nil {
		return err
	}
	took, err := s.ready(ctx)
	if err != nil {
		return err
	}
	b.results.duration(fullStart, took)
	return l.full(ctx, fullAgain)
}

// full measures the memory of a server that has many objects, after a while.
func (l *loader) full(ctx context.Context, m measure) error {
	if err := task.Sleep(ctx, idleRest); err != nil {
		return err
	}
	u, err := usageOf(l.s.cmd.Process.Pid)
	if err != nil {
		return err
	}
	l.b.results[m] = mib(u.rss)
	l.b.say("%s: %s", m.name, m.unit.format(mib(u.rss)))
	return nil
}

// A call is a request that is sent often.
type call struct {
	method, media string
	path          func(i int) string
	body          func(i int) []byte // nil: none
}

// send sends the request number i, and reads the answer to its end.
func (l *loader) send(ctx context.Context, t http.RoundTripper, c call, i int) (size int64, err error) {
	var body io.Reader
	if c.body != nil {
		body = bytes.NewReader(c.body(i))
	}
	r, err := l.a.request(ctx, c.method, c.path(i), body)
	if err != nil {
		return 0, err
	}
	if body != nil {
		r.Header.Set("Content-Type", c.media)
	}
	if c.media == mediaProto {
		r.Header.Set("Accept", mediaProto)
	}
	res, err := t.RoundTrip(r)
	if err != nil {
		return 0, fmt.Errorf("%s %s: %w", c.method, r.URL.Path, err)
	}
	defer res.Body.Close()
	if res.StatusCode >= http.StatusMultipleChoices {
		text, _ := io.ReadAll(io.LimitReader(res.Body, 500))
		return 0, fmt.Errorf("%s %s: %s: %s", c.method, r.URL.Path, res.Status, text)
	}
	return io.Copy(io.Discard, res.Body)
}

// all sends n requests from many clients, each with a connection of its own, and
// returns how many a second were answered, and the server's processor time for each.
func (l *loader) all(ctx context.Context, n int, c call) (rate float64, cpu time.Duration, err error) {
	var transports [clients]*http.Transport
	hello := call{method: http.MethodGet, path: func(int) string { return "/livez" }}
	for i := range transports {
		transports[i] = l.a.transport()
		defer transports[i].CloseIdleConnections()
		if _, err := l.send(ctx, transports[i], hello, 0); err != nil {
			return 0, 0, err
		}
	}
	before, err := usageOf(l.s.cmd.Process.Pid)
	if err != nil {
		return 0, 0, err
	}
	began := time.Now()
	var next atomic.Int64
	g := task.NewGroup(ctx)
	for _, t := range transports {
		g.Go("client", func(ctx context.Context) error {
			for i := int(next.Add(1)) - 1; i < n; i = int(next.Add(1)) - 1 {
				if _, err := l.send(ctx, t, c, i); err != nil {
					return err
				}
			}
			return nil
		})
	}
	if err := g.Wait(); err != nil {
		return 0, 0, err
	}
	took := time.Since(began)
	after, err := usageOf(l.s.cmd.Process.Pid)
	return float64(n) / took.Seconds(), (after.cpu - before.cpu) / time.Duration(n), err
}

// report sets the measures of a kind of request.
func (l *loader) report(rate float64, cpu time.Duration, mRate, mCPU measure) {
	l.b.results[mRate] = rate
	l.b.results.duration(mCPU, cpu)
	l.b.say("%s: %s; %s: %s", mRate.name, mRate.unit.format(rate), mCPU.name, mCPU.unit.format(l.b.results[mCPU]))
}

func (l *loader) create(ctx context.Context) error {
	rate, cpu, err := l.all(ctx, podsLoaded, call{http.MethodPost, mediaJSON, podsPath, bodies(toJSON(realPod()), podName)})
	if err != nil {
		return err
	}
	l.report(rate, cpu, createRate, createCPU)
	return nil
}

// statusCall puts the statuses of pods, from the given one on.
func statusCall(from, round int) call {
	body := bodies(toProto(withStatus(realPod(), round)), podName)
	return call{
		http.MethodPut, mediaProto, func(i int) string { return podStatusPath(from + i) }, func(i int) []byte { return body(from + i) },
	}
}

// putStatus gives every pod a status, as node agents do.
func (l *loader) putStatus(ctx context.Context) error {
	rate, cpu, err := l.all(ctx, podsLoaded, statusCall(0, 0))
	if err != nil {
		return err
	}
	l.report(rate, cpu, statusRate, statusCPU)
	return nil
}

func (l *loader) get(ctx context.Context) error {
	rate, cpu, err := l.all(ctx, gets, call{http.MethodGet, mediaJSON, func(i int) string { return podPath(i % podsLoaded) }, nil})
	if err != nil {
		return err
	}
	l.report(rate, cpu, getRate, getCPU)
	return nil
}

// apply applies deployments, each again and again.
func (l *loader) apply(ctx context.Context) error {
	var rounds []func(int) []byte
	for i := range 1 + applies/deployments {
		rounds = append(rounds, bodies(realDeployment(i), deploymentName))
	}
	c := call{http.MethodPatch, mediaApply, deploymentPath, func(i int) []byte { return rounds[0](i) }}
	// That they come to exist is no part of what is measured.
	if _, _, err := l.all(ctx, deployments, c); err != nil {
		return err
	}
	c.body = func(i int) []byte { return rounds[1+i/deployments](i) }
	rate, cpu, err := l.all(ctx, applies, c)
	if err != nil {
		return err
	}
	l.report(rate, cpu, applyRate, applyCPU)
	return nil
}

func (l *loader) createConfigMaps(ctx context.Context) error {
	rate, _, err := l.all(ctx, configMaps, call{http.MethodPost, mediaJSON, configMapsPath, bodies(toJSON(realConfigMap()), configMapName)})
	if err == nil {
		l.b.say("created %d config maps, %.0f/s", configMaps, rate)
	}
	return err
}

// namespaces makes those that the objects are in.
func (l *loader) namespaces(ctx context.Context) error {
	_, _, err := l.all(ctx, namespaces, call{
		http.MethodPost, mediaJSON, namespacesPath, bodies(toJSON(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace(0)}}), namespace),
	})
	return err
}

// list lists all pods, several times.
func (l *loader) list(ctx context.Context) error {
	t := l.a.transport()
	defer t.CloseIdleConnections()
	for _, kind := range []struct {
		media     string
		wall, cpu measure
	}{{mediaJSON, listJSON, listJSONc}, {mediaProto, listProto, listProtoc}} {
		c := call{method: http.MethodGet, media: kind.media, path: func(int) string { return "/api/v1/pods" }}
		var walls []time.Duration
		var bytes int64
		before, err := usageOf(l.s.cmd.Process.Pid)
		if err != nil {
			return err
		}
		for range lists {
			began := time.Now()
			if bytes, err = l.send(ctx, t, c, 0); err != nil {
				return err
			}
			walls = append(walls, time.Since(began))
		}
		after, err := usageOf(l.s.cmd.Process.Pid)
		if err != nil {
			return err
		}
		l.b.results.duration(kind.wall, l.b.median(walls, fmt.Sprintf("%s (%.1f MB)", kind.wall.name, float64(bytes)/1e6)))
		l.b.results.duration(kind.cpu, (after.cpu-before.cpu)/lists)
	}
	return nil
}

// watch measures what an event costs that many watch: the processor time of
// changes that are watched, less that of the same changes before, which nobody watched.
func (l *loader) watch(ctx context.Context) error {
	change := func(round int) (time.Duration, error) {
		_, cpu, err := l.all(ctx, watched, statusCall(0, round))
		return cpu * watched, err
	}
	alone, err := change(1)
	if err != nil {
		return err
	}
	var before, after usage
	err = l.watching(ctx, func() (err error) {
		if before, err = usageOf(l.s.cmd.Process.Pid); err != nil {
			return err
		}
		_, err = change(2)
		return err
	})
	if err != nil {
		return err
	}
	if after, err = usageOf(l.s.cmd.Process.Pid); err != nil {
		return err
	}
	each := (after.cpu - before.cpu - alone) / (watchers * watched)
	l.b.results.duration(watchCPU, each)
	l.b.say("%s: %s", watchCPU.name, each)
	return nil
}

// errSeen ends the watchers.
var errSeen = errors.New("all events were seen")

// watching calls f while many watch all pods, and returns when each has seen
// the events of it.
func (l *loader) watching(ctx context.Context, f func() error) error {
	g := task.NewGroup(ctx)
	var open, left atomic.Int64
	open.Store(watchers)
	left.Store(watchers * watched)
	ready := make(chan struct{})
	for range watchers {
		g.Go("watcher", func(ctx context.Context) error {
			t := l.a.transport()
			defer t.CloseIdleConnections()
			return l.watchLines(ctx, t, func() {
				if open.Add(-1) == 0 {
					close(ready)
				}
			}, func(lines int) error {
				if left.Add(-int64(lines)) <= 0 {
					return errSeen
				}
				return nil
			})
		})
	}
	g.Go("changes", func(ctx context.Context) error {
		select {
		case <-ready:
			return f()
		case <-ctx.Done():
			return nil
		}
	})
	g.Go("patience", func(ctx context.Context) error {
		if task.Sleep(ctx, patience) != nil {
			return nil
		}
		return fmt.Errorf("%d events were not delivered within %s", left.Load(), patience)
	})
	if err := g.Wait(); !errors.Is(err, errSeen) {
		return err
	}
	return nil
}

// watchLines watches pods from now on: it calls opened when the server has
// begun to answer, and seen with the number of lines that came, until that fails.
func (l *loader) watchLines(ctx context.Context, t http.RoundTripper, opened func(), seen func(lines int) error) error {
	version, err := l.version(ctx)
	if err != nil {
		return err
	}
	r, err := l.a.request(ctx, http.MethodGet, "/api/v1/pods?watch=1&resourceVersion="+version, nil)
	if err != nil {
		return err
	}
	res, err := t.RoundTrip(r)
	if err != nil {
		return fmt.Errorf("watch pods: %w", err)
	}
	defer res.Body.Close()
	if res.StatusCode != http.StatusOK {
		return fmt.Errorf("watch pods: %s", res.Status)
	}
	opened()
	buf := make([]byte, 64<<10)
	for {
		n, err := res.Body.Read(buf)
		if fail := seen(bytes.Count(buf[:n], []byte("\n"))); fail != nil {
			return fail
		}
		if err != nil {
			return fmt.Errorf("watch pods: %w", err)
		}
	}
}
