package e2e

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/kemudi/kemudi/test/wait"
)

// usualFaults is how many faults there are in a round.
const usualFaults = 4

// TestClientsOfAllServersSeeOneOrder has clients of all servers write, read, list and watch objects
// of several kinds while servers have every fault that there is: one order of all writes
// explains what each client was told, each watch shows all of them once and in this order, and no
// container is started anew.
func TestClientsOfAllServersSeeOneOrder(t *testing.T) {
	t.Parallel()
	random := chance(t)
	s := noServers(t, 3)
	d := s.ownDisk(t, "server-2")
	s.bring(t, 3, 0)
	k := s.kubectl()
	k.apply(t, webOnEachNode)
	k.do(t, "rollout", "status", "daemonset/web", patient)
	before := s.containers(t, "default", "app=web")

	h := &history{T: t, servers: s.raw(t), begun: time.Now()}
	h.mu.written, h.mu.odd = map[string]map[int64]string{}, map[string]int{}
	ctx, cancel := context.WithCancel(t.Context())
	var clients, following sync.WaitGroup
	defer following.Wait()
	defer cancel()
	watchers := h.watch(ctx, &following)
	asking, quit := context.WithCancel(ctx)
	for n := range 6 {
		own := rand.New(rand.NewPCG(random.Uint64(), 0))
		clients.Go(func() { h.client(asking, n, own) })
	}
	while := func() { await(ctx, time.Duration(1000+random.IntN(3000))*time.Millisecond) }
	all := append(s.faults(), d.faults(s)...)
	for i := range usualFaults * rounds(t) {
		if i%len(all) == 0 {
			random.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
		}
		fault, server := all[i%len(all)], s.victim(t, random)
		t.Logf("%s: %s: %s", h.now().Round(time.Millisecond), server, fault.name)
		mend := fault.strike(t, server)
		while()
		mend()
		s.allAnswer(t)
		h.epoch.Add(1)
		while()
	}
	quit()
	clients.Wait()
	s.wantReady(t)
	h.wantConfirmed(ctx)
	h.judge()
	for _, kind := range chaosKinds {
		last := must(h.servers[0].do(ctx, http.MethodPost, kind.path, withValue([]byte(kind.object), "last", "last")))(t)
		if last.code != http.StatusCreated {
			t.Fatalf("write the last of %s: %d %s", kind.path, last.code, last.Message)
		}
		h.wantWatched(kind.path, watchers[kind.path], last.Metadata.revision())
	}
	k.do(t, "rollout", "status", "daemonset/web", patient)
	wantSame(t, before, s.containers(t, "default", "app=web"))
}

// wantConfirmed waits until each server, the one whose part of the store leads too, answers a read by what
// one other has confirmed.
func (h *history) wantConfirmed(ctx context.Context) {
	h.Helper()
	const counter = "kemudi_store_questions_total{outcome=\"confirmed\"} "
	confirmed := func(c *rawClient) string {
		all := must(c.do(ctx, http.MethodGet, "/metrics", nil))(h.T)
		_, value, ok := strings.Cut(string(all.raw), counter)
		if value, _, _ = strings.Cut(value, "\n"); !ok {
			h.Fatalf("%s has no metric %s", c.name, counter)
		}
		return value
	}
	for _, c := range h.servers {
		before := confirmed(c)
		wait.Until(h.T, func() error {
			if _, err := c.do(ctx, http.MethodGet, "/api/v1/namespaces/default", nil); err != nil {
				return err
			}
			if confirmed(c) == before {
				return fmt.Errorf("%s: nobody has confirmed how far the store is", c.name)
			}
			return nil
		})
	}
}

// watch begins to follow each kind by a watcher that begins at each server, all from one revision.
func (h *history) watch(ctx context.Context, following *sync.WaitGroup) map[string][]*watcher {
	h.Helper()
	all := map[string][]*watcher{}
	for _, kind := range chaosKinds {
		begin := must(h.servers[0].do(ctx, http.MethodGet, kind.path, nil))(h.T)
		if begin.code != http.StatusOK {
			h.Fatal(fmt.Errorf("list %s: %d %s", kind.path, begin.code, begin.Message))
		}
		for i := range h.servers {
			w := &watcher{h: h, path: kind.path, at: i}
			w.mu.rev, w.mu.saw = begin.Metadata.revision(), map[int64]string{}
			all[kind.path] = append(all[kind.path], w)
			following.Go(func() { w.run(ctx) })
		}
	}
	return all
}
