package main

import (
	"context"
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// podCount is how many pods are started one by one, and again at once.
const podCount = 20

// pods measures how long pods take to start, and what each costs.
func (b *bench) pods(ctx context.Context, s *server) error {
	a, err := awaitAPI(ctx, s)
	if err != nil {
		return err
	}
	w, err := a.watchPods(ctx)
	if err != nil {
		return err
	}
	defer w.Stop()
	var took []time.Duration
	for i := range podCount {
		name := fmt.Sprintf("one-%d", i)
		began := time.Now()
		if err := a.createPod(ctx, name); err != nil {
			return err
		}
		if err := w.until(ctx, 1, isRunning); err != nil {
			return err
		}
		took = append(took, w.when[0].Sub(began))
		if err := a.deletePods(ctx, w, name); err != nil {
			return err
		}
	}
	b.quantiles(took, podOne50, podOne99)
	return b.podsAtOnce(ctx, s, a, w)
}

func (b *bench) podsAtOnce(ctx context.Context, s *server, a *access, w *podWatch) error {
	created := map[string]time.Time{}
	var names []string
	for i := range podCount {
		name := fmt.Sprintf("many-%d", i)
		created[name], names = time.Now(), append(names, name)
		if err := a.createPod(ctx, name); err != nil {
			return err
		}
	}
	if err := w.until(ctx, podCount, isRunning); err != nil {
		return err
	}
	var took []time.Duration
	for i, name := range w.names {
		took = append(took, w.when[i].Sub(created[name]))
	}
	b.quantiles(took, podBurst50, podBurst99)
	_, helpers, err := s.used()
	if err != nil {
		return err
	}
	b.results[memoryPod] = float64(helpers.rss) / podCount / (1 << 20)
	return a.deletePods(ctx, w, names...)
}

func (b *bench) quantiles(took []time.Duration, p50, p99 measure) {
	for q, m := range map[float64]measure{0.5: p50, 0.99: p99} {
		b.results.duration(m, quantile(took, q))
	}
	b.say("%s: %s, p99: %s", p50.name, p50.unit.format(b.results[p50]), p99.unit.format(b.results[p99]))
}

func (a *access) createPod(ctx context.Context, name string) error {
	if _, err := a.clients.CoreV1().Pods(metav1.NamespaceDefault).Create(ctx, webPod(name), metav1.CreateOptions{}); err != nil {
		return fmt.Errorf("create pod: %w", err)
	}
	return nil
}
