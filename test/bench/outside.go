package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"path/filepath"
	"regexp"
	"sync/atomic"
	"time"

	"github.com/kemudi/kemudi/internal/task"
)

// Sizes of the load from outside, which knows nothing of this server: few
// connections, objects that all differ, lists in pages.
const (
	outsideConns  = 4
	outsideWrites = 2000 // of each way to change a status
	outsideGets   = 10_000
	outsideNodes  = 200 // lists of one node's pods
	outsideLists  = 15  // of all pods, in each way
	pageLimit     = 500
	outsideRest   = 30 * time.Second
	renewEvery    = 20 * time.Second
)

// A reading is the wall time and the server's processor time of some work.
type reading struct{ wall, cpu time.Duration }

// spent measures f.
func (l *loader) spent(f func() error) (reading, error) {
	before, err := usageOf(l.s.cmd.Process.Pid)
	if err != nil {
		return reading{}, err
	}
	began := time.Now()
	if err := f(); err != nil {
		return reading{}, err
	}
	wall := time.Since(began)
	after, err := usageOf(l.s.cmd.Process.Pid)
	return reading{wall, after.cpu - before.cpu}, err
}

// turns measures the load from outside on the program and, if there is one, on
// the baseline, by turns: what the machine does besides, it does to both.
func (b *bench) turns(ctx context.Context) error {
	sides := []string{b.bin}
	if b.baseline != "" {
		sides = append(sides, b.baseline)
	}
	var rounds [2][]results
	for round := range b.rounds {
		for turn := range sides {
			side := turn
			if round%2 == 1 {
				side = len(sides) - 1 - turn // who comes second finds the machine warmer
			}
			one := *b
			one.bin, one.results, one.samples = sides[side], results{}, samples{}
			b.say("load from outside on %s, round %d of %d", filepath.Base(one.bin), round+1, b.rounds)
			if err := one.outside(ctx); err != nil {
				return err
			}
			rounds[side] = append(rounds[side], one.results)
			if side == 0 {
				b.samples.add(one.samples)
			}
		}
	}
	maps.Copy(b.results, medians(rounds[0]))
	b.elsewhere = medians(rounds[1])
	return nil
}

// fromOutside gives a load a control plane that has just been started.
func (b *bench) fromOutside(ctx context.Context, load func(o *outsider) error) error {
	return b.planeAlone(ctx, func(s *server) error {
		o, err := b.outsider(ctx, s)
		if err != nil {
			return err
		}
		defer o.close()
		return load(o)
	})
}

// outside measures a control plane that has just been started, as clients see it.
func (b *bench) outside(ctx context.Context) error {
	return b.fromOutside(ctx, func(o *outsider) error {
		g := task.NewGroup(ctx)
		g.Go("load", func(ctx context.Context) error {
			reads := []func(context.Context) error{o.read, o.pages, o.ofOneNode, o.streams}
			steps := []func(context.Context) error{o.prepare, o.write, o.change}
			switch {
			case b.wanted("outside"):
				steps = append(append(steps, reads...), o.watches, o.atRest)
			case b.wanted("reads"):
				steps = append(steps, reads...)
			}
			for _, step := range steps {
				if err := step(ctx); err != nil {
					return err
				}
			}
			return errSeen
		})
		g.Go("heartbeats", func(ctx context.Context) error {
			for task.Sleep(ctx, renewEvery) == nil {
				if o.alive.Load() {
					if err := o.renew(ctx); err != nil && ctx.Err() == nil {
						return err
					}
				}
			}
			return nil
		})
		if err := g.Wait(); !errors.Is(err, errSeen) {
			return err
		}
		return nil
	})
}

// outsider is the load from outside: workers that share few connections.
type outsider struct {
	loader
	conns []*http.Transport
	alive atomic.Bool   // the nodes are there, and their heartbeats are due
	merge time.Duration // what a merge patch of a pod took
}

// outsider is the load on a server, before it begins.
func (b *bench) outsider(ctx context.Context, s *server) (*outsider, error) {
	a, err := awaitAPI(ctx, s)
	if err != nil {
		return nil, err
	}
	o := &outsider{loader: loader{b, s, a}}
	for range outsideConns {
		o.conns = append(o.conns, a.transport())
	}
	return o, nil
}

func (o *outsider) close() {
	for _, t := range o.conns {
		t.CloseIdleConnections()
	}
}

// each sends n requests and returns the server's processor time for each.
func (o *outsider) each(ctx context.Context, n int, c call) (time.Duration, error) {
	r, err := o.spent(func() error {
		var next atomic.Int64
		g := task.NewGroup(ctx)
		for w := range clients {
			g.Go("worker", func(ctx context.Context) error {
				for i := int(next.Add(1)) - 1; i < n; i = int(next.Add(1)) - 1 {
					if _, err := o.send(ctx, o.conns[w%len(o.conns)], c, i); err != nil {
						return err
					}
				}
				return nil
			})
		}
		return g.Wait()
	})
	return r.cpu / time.Duration(n), err
}

// measure sends n requests and notes what each took.
func (o *outsider) measure(ctx context.Context, m measure, n int, c call) error {
	cpu, err := o.each(ctx, n, c)
	if err != nil {
		return err
	}
	o.note(m, cpu)
	return nil
}

func (o *outsider) note(m measure, d time.Duration) {
	o.b.results.duration(m, d)
	o.b.say("%s: %s", m.name, m.unit.format(o.b.results[m]))
}

// prepare makes namespaces, and nodes, which keep their pods from being collected.
func (o *outsider) prepare(ctx context.Context) error {
	if err := o.namespaces(ctx); err != nil {
		return err
	}
	at := func(path string) func(int) string { return func(int) string { return path } }
	for _, c := range []call{
		{http.MethodPost, mediaJSON, at("/api/v1/nodes"), bodies(toJSON(aliveNode()), nodeName)},
		{http.MethodPost, mediaJSON, at(leasesDir), bodies(toJSON(lease(time.Now())), nodeName)},
	} {
		if _, err := o.each(ctx, nodes, c); err != nil {
			return err
		}
	}
	o.alive.Store(true)
	return nil
}

// renew is the heartbeats of all nodes.
func (o *outsider) renew(ctx context.Context) error {
	_, err := o.each(ctx, nodes, call{
		http.MethodPatch, mediaMerge, func(i int) string { return leasesDir + "/" + nodeName(i) }, bodies(toJSON(lease(time.Now())), nodeName),
	})
	return err
}

// write makes the objects; each pod is written twice.
func (o *outsider) write(ctx context.Context) error {
	maps := call{http.MethodPost, mediaJSON, configMapsPath, bodies(toJSON(realConfigMap()), configMapName)}
	if err := o.measure(ctx, outMap, configMaps, maps); err != nil {
		return err
	}
	if err := o.measure(ctx, outPod, podsLoaded, call{http.MethodPost, mediaJSON, podsPath, differing(boundPod(0))}); err != nil {
		return err
	}
	if err := o.measure(ctx, outFirst, podsLoaded, call{http.MethodPut, mediaJSON, podStatusPath, differing(boundPod(0))}); err != nil {
		return err
	}
	size, err := o.send(ctx, o.conns[0], call{method: http.MethodGet, path: podPath}, 0)
	o.b.say("a pod has %d bytes of JSON", size)
	return err
}

// change changes the statuses of pods in the ways there are.
func (o *outsider) change(ctx context.Context) error {
	fixed := func(body []byte) func(int) []byte { return func(int) []byte { return body } }
	for _, w := range []struct {
		m measure
		c call
	}{
		{outPut, call{http.MethodPut, mediaJSON, podStatusPath, differing(boundPod(1))}},
		{outMerge, call{http.MethodPatch, mediaMerge, podStatusPath, fixed(conditions(2, true))}},
		{outStrategic, call{http.MethodPatch, mediaStrategic, podStatusPath, fixed(conditions(3, false))}},
		{outApply, call{http.MethodPatch, mediaApply, func(i int) string { return podStatusPath(i) + "?fieldManager=bench&force=true" }, bodies(applied(4), podName)}},
	} {
		if err := o.measure(ctx, w.m, outsideWrites, w.c); err != nil {
			return err
		}
	}
	return nil
}

func (o *outsider) read(ctx context.Context) error {
	return o.measure(ctx, outGet, outsideGets, call{method: http.MethodGet, media: mediaJSON, path: func(i int) string { return podPath(i * 7 % podsLoaded) }})
}

// pages lists all pods, whole and in pages.
func (o *outsider) pages(ctx context.Context) error {
	for _, w := range []struct {
		media string
		limit int
		m     measure
	}{{mediaJSON, 0, outList}, {mediaJSON, pageLimit, outPages}, {mediaProto, 0, outProto}, {mediaProto, pageLimit, outProtoPages}} {
		if err := o.listThrough(ctx, "/api/v1/pods", w.media, w.limit); err != nil { // what is made once is made
			return err
		}
		if err := o.often(w.m, func() error { return o.listThrough(ctx, "/api/v1/pods", w.media, w.limit) }); err != nil {
			return err
		}
	}
	return nil
}

// often measures f many times, each by itself, and notes the median.
func (o *outsider) often(m measure, f func() error) error {
	for range outsideLists {
		r, err := o.spent(f)
		if err != nil {
			return err
		}
		o.b.samples[m] = append(o.b.samples[m], m.unit.of(r.cpu))
	}
	o.b.results[m] = median(o.b.samples[m])
	o.b.say("%s: %s%s", m.name, m.unit.format(o.b.results[m]), o.b.samples.spread(m))
	return nil
}

// token finds the continue token at the beginning of a list, in any media type.
var token = regexp.MustCompile(`eyJ[-\w]+`)

// listThrough lists all objects of a kind to the end.
func (o *outsider) listThrough(ctx context.Context, all, media string, limit int) error {
	for next := ""; ; {
		path := all
		if limit > 0 {
			path += fmt.Sprintf("?limit=%d&continue=%s", limit, next)
		}
		res, err := o.open(ctx, o.conns[0], path, media)
		if err != nil {
			return err
		}
		head := make([]byte, 1<<10)
		n, err := io.ReadFull(res.Body, head)
		if err == nil {
			_, err = io.Copy(io.Discard, res.Body)
		}
		if err = errors.Join(err, res.Body.Close()); err != nil {
			return fmt.Errorf("list %s: %w", all, err)
		}
		if next = string(token.Find(head[:n])); next == "" {
			return nil
		}
	}
}

// open sends a GET whose answer the caller reads and closes.
func (o *outsider) open(ctx context.Context, t http.RoundTripper, path, media string) (*http.Response, error) {
	r, err := o.a.request(ctx, http.MethodGet, path, nil)
	if err != nil {
		return nil, err
	}
	r.Header.Set("Accept", media)
	res, err := t.RoundTrip(r)
	if err != nil {
		return nil, fmt.Errorf("GET %s: %w", path, err)
	}
	if res.StatusCode != http.StatusOK {
		text, _ := io.ReadAll(io.LimitReader(res.Body, 500))
		return nil, errors.Join(fmt.Errorf("GET %s: %s: %s", path, res.Status, text), res.Body.Close())
	}
	return res, nil
}

func (o *outsider) ofOneNode(ctx context.Context) error {
	return o.measure(ctx, outNode, outsideNodes, call{
		method: http.MethodGet, media: mediaJSON, path: func(i int) string { return "/api/v1/pods?fieldSelector=spec.nodeName%3D" + nodeName(i) },
	})
}

// streams reads all pods as the initial events of a watch.
func (o *outsider) streams(ctx context.Context) error {
	for media, m := range map[string]measure{mediaJSON: outStream, mediaProto: outProtoStream} {
		if err := o.stream(ctx, media); err != nil { // what is made once is made
			return err
		}
		if err := o.often(m, func() error { return o.stream(ctx, media) }); err != nil {
			return err
		}
	}
	return nil
}

// stream reads the initial events of a watch, to the bookmark that ends them.
func (o *outsider) stream(ctx context.Context, media string) error {
	if media == mediaProto {
		media += ";stream=watch"
	}
	res, err := o.open(ctx, o.conns[0], "/api/v1/pods?watch=1&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true", media)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	end, buf, kept := []byte("k8s.io/initial-events-end"), make([]byte, 64<<10), 0
	for {
		n, err := res.Body.Read(buf[kept:])
		if bytes.Contains(buf[:kept+n], end) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("read initial events: %w", err)
		}
		tail := buf[max(0, kept+n-len(end)) : kept+n] // the end may come in two parts
		kept = copy(buf, tail)
	}
}

// atRest notes how much memory the server took at most, and takes after a while.
func (o *outsider) atRest(ctx context.Context) error {
	most, err := field(procFile(o.s.cmd.Process.Pid, "status"), "VmHWM:")
	if err != nil {
		return err
	}
	o.b.results[outMemory] = mib(most << 10)
	if err := task.Sleep(ctx, outsideRest); err != nil {
		return err
	}
	u, err := usageOf(o.s.cmd.Process.Pid)
	if err != nil {
		return err
	}
	o.b.results[outRest] = mib(u.rss)
	for _, m := range []measure{outMemory, outRest} {
		o.b.say("%s: %s", m.name, m.unit.format(o.b.results[m]))
	}
	return nil
}
