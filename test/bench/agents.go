package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/kemudi/kemudi/internal/task"
)

// Sizes of clusters of simulated agents.
const (
	agentsSimulated = 1000
	agentsAtOnce    = 16 // so many join at the same time
	agentsRest      = 120 * time.Second
	agentsQuiet     = 20 * time.Second // the end of that, in which nothing else is measured

	shortPodsRun = 10_000
	shortSpaces  = 4  // namespaces, in each of which ...
	shortAtOnce  = 25 // ... so many pods run at a time: fewer than a node takes
)

// withPlane calls f with the access to a control plane that has just been started in a place for
// simulated agents, and with those.
func (b *bench) withPlane(ctx context.Context, p place, f func(*server, *access, *machines) error) (err error) {
	defer func() { err = errors.Join(err, p.remove(ctx, b.bin)) }()
	s, err := p.start(b.bin)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.stop()) }()
	a, err := awaitAPI(ctx, s)
	if err != nil {
		return err
	}
	m, err := b.newMachines(s, a)
	if err != nil {
		return err
	}
	return f(s, a, m)
}

// errMeasured ends what was running while something was measured.
var errMeasured = errors.New("it is measured")

// manyAgents measures what 1,000 agents cost a server.
func (b *bench) manyAgents(ctx context.Context) error {
	return b.withPlane(ctx, many(b.dir), func(s *server, a *access, m *machines) error {
		b.say("%d simulated agents", b.agents)
		before, err := a.watches(ctx)
		if err != nil {
			return err
		}
		began := time.Now()
		var ready atomic.Int64
		all := make(chan struct{})
		room := make(chan struct{}, agentsAtOnce) // one token each that joins
		g := task.NewGroup(ctx)
		g.Go("agents", func(ctx context.Context) error {
			for i := range b.agents {
				select {
				case room <- struct{}{}:
				case <-ctx.Done():
					return nil
				}
				g.Go("agent "+strconv.Itoa(i), func(ctx context.Context) error {
					return m.run(ctx, i, func() {
						<-room
						if n := ready.Add(1); n == int64(b.agents) {
							close(all)
						} else if n%100 == 0 {
							b.say("%d agents are ready", n)
						}
					})
				})
			}
			return nil
		})
		g.Go("measure", func(ctx context.Context) error {
			ctx, cancel := context.WithTimeoutCause(ctx, scalePatience, fmt.Errorf("not within %s", scalePatience))
			defer cancel()
			select {
			case <-all:
			case <-ctx.Done():
				return fmt.Errorf("%d agents are ready: %w", ready.Load(), context.Cause(ctx))
			}
			b.results.duration(manyReady, time.Since(began))
			if err := b.manyAtRest(ctx, s, a); err != nil {
				return err
			}
			after, err := a.watches(ctx)
			if err := b.set(manyWatches, float64(after-before)/float64(b.agents), err); err != nil {
				return err
			}
			return errMeasured
		})
		if err := g.Wait(); !errors.Is(err, errMeasured) {
			return err
		}
		return nil
	})
}

// manyAtRest measures a server whose agents have nothing to do. While they come to rest another
// one is measured, if it is to be.
func (b *bench) manyAtRest(ctx context.Context, s *server, a *access) error {
	b.say("all are ready; at rest for %s", agentsRest+idleWindow)
	g := task.NewGroup(ctx)
	g.Go("rest", func(ctx context.Context) error { return task.Sleep(ctx, agentsRest-agentsQuiet) })
	if b.steps == "" || listed(b.steps, "watches") {
		b.done["watches"] = true
		g.Go("watches", b.shortPods)
	}
	if err := g.Wait(); err != nil {
		return err
	}
	if err := task.Sleep(ctx, agentsQuiet); err != nil {
		return err
	}
	before, err := a.collections(ctx)
	if err != nil {
		return err
	}
	share, err := (&scaler{&loader{b: b, s: s}}).share(func() error { return task.Sleep(ctx, idleWindow) })
	if err := b.set(manyCPU, share, err); err != nil {
		return err
	}
	f, err := footprintOf(s.cmd.Process.Pid)
	if err := errors.Join(b.set(manyMemory, mib(f.rss), err), b.set(manyEach, float64(f.rss)/(1<<10)/float64(b.agents), err), b.set(manyFiles, mib(f.rss-f.anon), err)); err != nil {
		return err
	}
	after, err := a.collections(ctx)
	if err := b.set(manyCollections, after-before, err); err != nil {
		return err
	}
	heap, err := a.heap(ctx)
	return errors.Join(b.set(manyFree, mib(heap.free), err), b.set(manyStacks, mib(heap.stacks), err), b.set(manyGarbage, mib(heap.garbage), err), b.set(manyAlive, mib(heap.alive), err))
}

// shortPods measures whether an agent follows more than before when many pods with secrets
// have come and gone.
func (b *bench) shortPods(ctx context.Context) error {
	return b.withPlane(ctx, alone(b.dir), func(_ *server, a *access, m *machines) error {
		b.say("%d short pods with secrets", shortPodsRun)
		ready := make(chan struct{})
		g := task.NewGroup(ctx)
		g.Go("agent", func(ctx context.Context) error { return m.run(ctx, 0, func() { close(ready) }) })
		g.Go("pods", func(ctx context.Context) error {
			ctx, cancel := context.WithTimeoutCause(ctx, scalePatience, fmt.Errorf("not within %s", scalePatience))
			defer cancel()
			select {
			case <-ready:
			case <-ctx.Done():
				return context.Cause(ctx)
			}
			if err := task.Sleep(ctx, idleRest); err != nil { // until all that a machine follows is followed
				return err
			}
			before, err := a.watches(ctx)
			if err != nil {
				return err
			}
			pods := task.NewGroup(ctx)
			for i := range shortSpaces {
				pods.Go("pods of a namespace", func(ctx context.Context) error {
					return a.comeAndGo(ctx, "short-"+strconv.Itoa(i), shortPodsRun/shortSpaces)
				})
			}
			if err := pods.Wait(); err != nil {
				return err
			}
			after, err := a.watches(ctx)
			for end := time.Now().Add(idleRest); err == nil && after > before && time.Now().Before(end); after, err = a.watches(ctx) { // of the last pods
				if err := task.Sleep(ctx, 100*time.Millisecond); err != nil {
					return err
				}
			}
			b.say("watches before %d, after %d", before, after)
			if err := b.set(shortWatches, 100*float64(after)/float64(before), err); err != nil {
				return err
			}
			return errMeasured
		})
		if err := g.Wait(); !errors.Is(err, errMeasured) {
			return err
		}
		return nil
	})
}

// comeAndGo runs so many pods in a namespace, each with a secret of its own, some at a time.
// Each is deleted when it has ended.
func (a *access) comeAndGo(ctx context.Context, space string, n int) error {
	c := a.clients.CoreV1()
	if _, err := c.Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: space}}, metav1.CreateOptions{}); err != nil {
		return fmt.Errorf("make a namespace: %w", err)
	}
	if _, err := try(ctx, func() (*corev1.ServiceAccount, error) {
		return c.ServiceAccounts(space).Get(ctx, "default", metav1.GetOptions{})
	}); err != nil {
		return err
	}
	w, err := c.Pods(space).Watch(ctx, metav1.ListOptions{})
	if err != nil {
		return fmt.Errorf("watch pods: %w", err)
	}
	defer w.Stop()
	made, gone, ended := 0, 0, map[string]bool{}
	for gone < n {
		for made < n && made-gone < shortAtOnce {
			name := "short-" + strconv.Itoa(made)
			if _, err := c.Secrets(space).Create(ctx, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: name}, StringData: map[string]string{"key": name}}, metav1.CreateOptions{}); err != nil {
				return fmt.Errorf("make a secret: %w", err)
			}
			if _, err := c.Pods(space).Create(ctx, shortPod(name), metav1.CreateOptions{}); err != nil {
				return fmt.Errorf("make a pod: %w", err)
			}
			made++
		}
		select {
		case e, ok := <-w.ResultChan():
			pod, isPod := e.Object.(*corev1.Pod)
			switch {
			case !ok || !isPod:
				return fmt.Errorf("the watch of pods ended after %d of %d: %v", gone, n, e.Object)
			case e.Type == watch.Deleted:
				gone++
				if err := c.Secrets(space).Delete(ctx, pod.Name, metav1.DeleteOptions{}); err != nil {
					return fmt.Errorf("delete a secret: %w", err)
				}
			case pod.Status.Phase == corev1.PodFailed:
				return fmt.Errorf("pod %s failed: %s %s", pod.Name, pod.Status.Reason, pod.Status.Message)
			case pod.Status.Phase == corev1.PodSucceeded && !ended[pod.Name]:
				ended[pod.Name] = true
				if err := c.Pods(space).Delete(ctx, pod.Name, metav1.DeleteOptions{}); err != nil {
					return fmt.Errorf("delete a pod: %w", err)
				}
			}
		case <-ctx.Done():
			return fmt.Errorf("%d of %d pods: %w", gone, n, context.Cause(ctx))
		}
	}
	return nil
}

// shortPod is a pod of the first simulated agent that ends at once.
func shortPod(name string) *corev1.Pod {
	from := &corev1.EnvVarSource{SecretKeyRef: &corev1.SecretKeySelector{LocalObjectReference: corev1.LocalObjectReference{Name: name}, Key: "key"}}
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: corev1.PodSpec{
			NodeName: "simulated-0", RestartPolicy: corev1.RestartPolicyNever,
			Containers: []corev1.Container{{Name: "work", Image: "work:1", Command: []string{"true"}, Env: []corev1.EnvVar{{Name: "SECRET", ValueFrom: from}}}},
		},
	}
}
