package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kemudi/kemudi/internal/kubelet/volume"
	"github.com/kemudi/kemudi/internal/task"
	"github.com/kemudi/kemudi/test/image"
)

// starts is how often each kind of start is measured.
const starts = 3

// address is that of the node, in the network namespace of the benchmark.
const address = "192.168.77.2"

// network gives the namespace a loopback device and a network with a way out.
func network(ctx context.Context) error {
	for _, line := range []string{
		"link set lo up", "link add eth0 type veth peer name wire", "link set eth0 up", "link set wire up",
		"addr add " + address + "/24 dev eth0", "route add default via 192.168.77.1",
	} {
		if out, err := exec.CommandContext(ctx, "ip", strings.Fields(line)...).CombinedOutput(); err != nil {
			return fmt.Errorf("ip %s: %w\n%s", line, err, out)
		}
	}
	return nil
}

// nodeStarts measures starts of a server with a node, and returns the last one.
func (b *bench) nodeStarts(ctx context.Context) (*server, error) {
	var cold, warm, pod []time.Duration
	for i := range starts {
		if i > 0 {
			if err := b.node.remove(ctx, b.bin); err != nil {
				return nil, err
			}
		}
		s, err := b.node.start(b.bin)
		if err != nil {
			return nil, err
		}
		took, err := s.ready(ctx)
		if err == nil {
			cold = append(cold, took)
			err = b.importImage(ctx)
		}
		if err := stopAfter(s, err); err != nil {
			return nil, err
		}
	}
	b.results.duration(startReady, b.median(cold, "started on an empty machine"))
	for i := range starts {
		// A cluster that is new, on a machine that has images.
		if err := volume.Unshare(filepath.Join(b.node.data, "kubelet")); err != nil {
			return nil, fmt.Errorf("remove cluster: %w", err)
		}
		for _, name := range []string{"etcd", "pki", "kubelet", "admin.kubeconfig"} {
			if err := os.RemoveAll(filepath.Join(b.node.data, name)); err != nil {
				return nil, fmt.Errorf("remove cluster: %w", err)
			}
		}
		s, err := b.node.start(b.bin)
		if err != nil {
			return nil, err
		}
		took, running, err := firstPod(ctx, s)
		warm, pod = append(warm, took), append(pod, running)
		if err != nil || i < starts-1 {
			if err := stopAfter(s, err); err != nil {
				return nil, err
			}
			continue
		}
		b.results.duration(startReadyWarm, b.median(warm, "started with images present"))
		b.results.duration(startPod, b.median(pod, "ran a first pod"))
		return s, nil
	}
	panic("unreachable")
}

// stopAfter stops a server, after an error too.
func stopAfter(s *server, err error) error {
	if stop := s.stop(); err == nil {
		err = stop
	}
	return err
}

// median returns the middle one, and reports all.
func (b *bench) median(list []time.Duration, what string) time.Duration {
	var words []string
	for _, d := range list {
		words = append(words, d.Round(time.Millisecond).String())
	}
	b.say("%s: %s", what, strings.Join(words, ", "))
	return quantile(list, 0.5)
}

// quantile returns the value that a share q of the list does not exceed.
func quantile(list []time.Duration, q float64) time.Duration {
	sorted := slices.Sorted(slices.Values(list))
	return sorted[min(len(sorted)-1, int(q*float64(len(sorted))))]
}

// archive is the image that the pods run.
func (b *bench) archive() string { return filepath.Join(b.dir, "web-1.tar") }

// webImage is its name.
const webImage = "kemudi.local/web:1"

// buildImage builds the image that the pods run.
func (b *bench) buildImage(ctx context.Context) error {
	agent := filepath.Join(b.dir, "agent")
	if err := image.BuildAgent(ctx, goCommand(), agent); err != nil {
		return err
	}
	images, err := image.All(agent)
	if err != nil {
		return err
	}
	_, err = image.Write(b.dir, images)
	return err
}

func (b *bench) importImage(ctx context.Context) error {
	return command(ctx, b.bin, "image", "import", "--data-dir", b.node.data, "--run-dir", b.node.run, b.archive())
}

// firstPod creates a pod as soon as the server lets it, and returns how long
// after the start the server was ready, and the pod running. The pod is gone
// at the end.
func firstPod(ctx context.Context, s *server) (ready, running time.Duration, err error) {
	g := task.NewGroup(ctx)
	g.Go("ready", func(ctx context.Context) (err error) {
		ready, err = s.ready(ctx)
		return err
	})
	g.Go("pod", func(ctx context.Context) error {
		a, err := awaitAPI(ctx, s)
		if err != nil {
			return err
		}
		w, err := a.watchPods(ctx)
		if err != nil {
			return err
		}
		defer w.Stop()
		if _, err := try(ctx, func() (*corev1.Pod, error) {
			return a.clients.CoreV1().Pods(metav1.NamespaceDefault).Create(ctx, webPod("first"), metav1.CreateOptions{})
		}); err != nil {
			return err
		}
		if err := w.until(ctx, 1, isRunning); err != nil {
			return err
		}
		running = w.when[0].Sub(s.began)
		return a.deletePods(ctx, w, "first")
	})
	if err := g.Wait(); err != nil {
		return 0, 0, fmt.Errorf("first pod: %w", err)
	}
	return ready, max(ready, running), nil
}

// planeStarts measures starts of a control plane alone, and returns the last one.
func (b *bench) planeStarts(ctx context.Context) (*server, error) {
	var all, accounts []time.Duration
	for i := range starts {
		s, err := b.plane.start(b.bin)
		if err != nil {
			return nil, err
		}
		took, account, err := planeStart(ctx, s)
		all, accounts = append(all, took), append(accounts, account)
		if err == nil && i == starts-1 {
			b.results.duration(planeReady, b.median(all, "started a control plane alone"))
			b.results.duration(planeAccount, b.median(accounts, "had a default service account"))
			return s, nil
		}
		if err := stopAfter(s, err); err != nil {
			return nil, err
		}
		if err := b.plane.remove(ctx, b.bin); err != nil {
			return nil, err
		}
	}
	panic("unreachable")
}

// planeStart waits until the control plane is ready, and the default service
// account there.
func planeStart(ctx context.Context, s *server) (ready, account time.Duration, err error) {
	if ready, err = s.ready(ctx); err != nil {
		return 0, 0, err
	}
	a, err := awaitAPI(ctx, s)
	if err != nil {
		return 0, 0, err
	}
	_, err = try(ctx, func() (*corev1.ServiceAccount, error) {
		return a.clients.CoreV1().ServiceAccounts(metav1.NamespaceDefault).Get(ctx, "default", metav1.GetOptions{})
	})
	return ready, time.Since(s.began), err
}
