package main

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/kemudi/kemudi/internal/task"
	"github.com/kemudi/kemudi/internal/up"
)

// access is the administrator's access to a server's API.
type access struct {
	url     string
	tls     *tls.Config
	token   string // empty: the certificate in tls says who asks
	clients kubernetes.Interface
}

// patience is how long anything may take that is waited for.
const patience = time.Minute

// try repeats f until it works.
func try[T any](ctx context.Context, f func() (T, error)) (T, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	for {
		v, err := f()
		if err == nil {
			return v, nil
		}
		if task.Sleep(ctx, time.Millisecond) != nil {
			return v, fmt.Errorf("not within %s: %w", patience, err)
		}
	}
}

// awaitAPI waits until the server has said how to reach its API, and answers.
func awaitAPI(ctx context.Context, s *server) (*access, error) {
	config, err := try(ctx, func() (*rest.Config, error) {
		return clientcmd.BuildConfigFromFlags("", up.AdminKubeconfig(s.data))
	})
	if err != nil {
		return nil, err
	}
	config.QPS, config.Burst = -1, -1 // no limit of our own
	config.ContentType = mediaProto
	a := &access{url: config.Host, token: config.BearerToken}
	config.WarningHandler = rest.NoWarnings{} // of kinds that are asked for on purpose
	if a.clients, err = kubernetes.NewForConfig(config); err != nil {
		return nil, fmt.Errorf("make client: %w", err)
	}
	if a.tls, err = rest.TLSConfigFor(config); err != nil {
		return nil, fmt.Errorf("make client: %w", err)
	}
	_, err = try(ctx, func() (*corev1.Namespace, error) {
		return a.clients.CoreV1().Namespaces().Get(ctx, metav1.NamespaceDefault, metav1.GetOptions{})
	})
	return a, err
}

const (
	mediaJSON  = "application/json"
	mediaProto = "application/vnd.kubernetes.protobuf"
	mediaApply = "application/apply-patch+yaml"
)

// transport is a connection of its own to the server.
func (a *access) transport() *http.Transport {
	return &http.Transport{TLSClientConfig: a.tls.Clone(), ForceAttemptHTTP2: true, DisableCompression: true, MaxConnsPerHost: 1}
}

// request prepares a request as outsiders send it.
func (a *access) request(ctx context.Context, method, path string, body io.Reader) (*http.Request, error) {
	r, err := http.NewRequestWithContext(ctx, method, a.url+path, body)
	if err != nil {
		return nil, err
	}
	r.Header.Set("User-Agent", "kemudi-bench/1")
	if a.token != "" {
		r.Header.Set("Authorization", "Bearer "+a.token)
	}
	return r, nil
}

// watches is how many watches the server serves, those of its own process not counted.
func (a *access) watches(ctx context.Context) (n int, _ error) {
	err := a.metrics(ctx, func(name string, v float64) {
		if strings.HasPrefix(name, "apiserver_longrunning_requests{") && strings.Contains(name, `verb="WATCH"`) {
			n += int(v)
		}
	})
	return n, err
}

// metrics calls f with all that the server's metrics say.
func (a *access) metrics(ctx context.Context, f func(name string, v float64)) error {
	data, err := a.clients.CoreV1().RESTClient().Get().AbsPath("/metrics").DoRaw(ctx)
	if err != nil {
		return fmt.Errorf("read metrics: %w", err)
	}
	for line := range strings.Lines(string(data)) {
		at := strings.LastIndexByte(line, ' ')
		if strings.HasPrefix(line, "#") || at < 0 {
			continue
		}
		v, err := strconv.ParseFloat(strings.TrimSpace(line[at:]), 64)
		if err != nil {
			return fmt.Errorf("read metrics: %w", err)
		}
		f(line[:at], v)
	}
	return nil
}

// heapUse is what the memory of a server is used for, in bytes.
type heapUse struct{ alive, garbage, free, stacks int64 }

// collections is how often the server has collected garbage.
func (a *access) collections(ctx context.Context) (n float64, _ error) {
	err := a.metrics(ctx, func(name string, v float64) {
		if name == "go_gc_duration_seconds_count" {
			n = v
		}
	})
	return n, err
}

// heap reads what the server's memory is used for, and has it collect garbage then.
func (a *access) heap(ctx context.Context) (u heapUse, _ error) {
	var objects, stacks, idle, released, inUse float64
	read := func() error {
		return a.metrics(ctx, func(name string, v float64) {
			switch name {
			case "go_memstats_heap_alloc_bytes":
				objects = v
			case "go_memstats_heap_inuse_bytes":
				inUse = v
			case "go_memstats_heap_idle_bytes":
				idle = v
			case "go_memstats_heap_released_bytes":
				released = v
			case "go_memstats_stack_inuse_bytes":
				stacks = v
			}
		})
	}
	if err := read(); err != nil {
		return u, err
	}
	u.stacks, u.garbage, u.free = int64(stacks), int64(objects), int64(idle-released+inUse-objects)
	if _, err := a.clients.CoreV1().RESTClient().Get().AbsPath("/debug/pprof/heap").Param("gc", "1").DoRaw(ctx); err != nil {
		return u, fmt.Errorf("have garbage collected: %w", err)
	}
	err := read()
	u.alive = int64(objects)
	u.garbage = max(0, u.garbage-u.alive)
	return u, err
}

// podWatch sees what becomes of the pods in the default namespace.
type podWatch struct {
	watch.Interface
	when  []time.Time // of each pod that until waited for, in order
	names []string    // of the same
}

func (a *access) watchPods(ctx context.Context) (*podWatch, error) {
	w, err := try(ctx, func() (watch.Interface, error) {
		return a.clients.CoreV1().Pods(metav1.NamespaceDefault).Watch(ctx, metav1.ListOptions{})
	})
	if err != nil {
		return nil, fmt.Errorf("watch pods: %w", err)
	}
	return &podWatch{Interface: w}, nil
}

// until waits until n different pods pass the test, and notes when each did first.
func (w *podWatch) until(ctx context.Context, n int, test func(watch.Event, *corev1.Pod) bool) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	w.when, w.names = nil, nil
	seen := map[string]bool{}
	for len(seen) < n {
		select {
		case e, ok := <-w.ResultChan():
			if !ok {
				return fmt.Errorf("the watch of pods ended")
			}
			pod, ok := e.Object.(*corev1.Pod)
			if !ok || seen[pod.Name] || !test(e, pod) {
				continue
			}
			seen[pod.Name] = true
			w.when, w.names = append(w.when, time.Now()), append(w.names, pod.Name)
		case <-ctx.Done():
			return fmt.Errorf("%d of %d pods after %s", len(seen), n, patience)
		}
	}
	return nil
}

func isRunning(_ watch.Event, pod *corev1.Pod) bool {
	return pod.DeletionTimestamp == nil && pod.Status.Phase == corev1.PodRunning
}

func isGone(e watch.Event, _ *corev1.Pod) bool { return e.Type == watch.Deleted }

// deletePods deletes pods and waits until they are gone. With a grace period, the
// node agent takes the object away when nothing is left of the pod; without, the
// clean-up would run into the next measurement.
func (a *access) deletePods(ctx context.Context, w *podWatch, names ...string) error {
	for _, name := range names {
		if err := a.clients.CoreV1().Pods(metav1.NamespaceDefault).Delete(ctx, name, metav1.DeleteOptions{GracePeriodSeconds: new(int64(1))}); err != nil {
			return fmt.Errorf("delete pod: %w", err)
		}
	}
	return w.until(ctx, len(names), isGone)
}

// webPod is a small pod of our web server.
func webPod(name string) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"app": "bench"}},
		Spec: corev1.PodSpec{
			Containers: []corev1.Container{{Name: "web", Image: webImage, ImagePullPolicy: corev1.PullIfNotPresent}},
		},
	}
}
