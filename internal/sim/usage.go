package sim

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/kemudi/kemudi/internal/api/core"
	"github.com/kemudi/kemudi/internal/apiserver/tunnel"
	"github.com/kemudi/kemudi/internal/cache"
	"github.com/kemudi/kemudi/internal/task"
)

// Load is what pods use together, each an equal share of it. It goes before what their
// annotations say.
type Load struct {
	Namespace string
	Selector  labels.Selector
	CPU       resource.Quantity
	Memory    resource.Quantity
}

// usage is what pods use of their nodes. Processor time is counted, as a real node does.
// It is told over HTTP as a node agent does, and that is all that can be asked there.
type usage struct {
	group *task.Group
	pods  func() *cache.Cache
	mu    struct {
		sync.Mutex
		loads  []Load
		silent map[string]bool     // nodes that do not answer
		spent  map[string]*counter // by UID of the pod, a slash and the container's name
	}
}

// counter is processor time, in seconds, until a time.
type counter struct {
	cpu float64
	at  time.Time
}

var _ tunnel.Nodes = (*usage)(nil)

func newUsage(group *task.Group, pods func() *cache.Cache) *usage {
	u := &usage{group: group, pods: pods}
	u.mu.silent, u.mu.spent = map[string]bool{}, map[string]*counter{}
	return u
}

// DialNode connects to a node, which answers until the connection is closed or it falls silent.
func (u *usage) DialNode(_ context.Context, node string) (net.Conn, error) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.mu.silent[node] {
		return nil, fmt.Errorf("node %s does not answer", node)
	}
	ours, theirs := net.Pipe()
	u.group.Go("agent of "+node, func(ctx context.Context) error {
		defer ours.Close()
		defer context.AfterFunc(ctx, func() { ours.Close() })()
		for requests := bufio.NewReader(ours); ; {
			if req, err := http.ReadRequest(requests); err != nil || !u.answer(ours, node, req.URL.Path) {
				return nil
			}
		}
	})
	return theirs, nil
}

// DialAddress says that simulated pods and nodes serve nothing.
func (u *usage) DialAddress(_ context.Context, node, address string) (net.Conn, error) {
	return nil, fmt.Errorf("connect to %s on node %s: it is simulated, and serves nothing", address, node)
}

// answer tells over a connection what the pods of a node use; false if that has ended.
func (u *usage) answer(conn net.Conn, node, path string) bool {
	u.mu.Lock()
	silent := u.mu.silent[node]
	text := u.lookLocked(u.pods().ByIndex("spec.nodeName", node))
	u.mu.Unlock()
	if silent {
		return false
	}
	resp := &http.Response{StatusCode: http.StatusOK, ProtoMajor: 1, ProtoMinor: 1, ContentLength: int64(len(text)), Body: io.NopCloser(strings.NewReader(text))}
	if path != "/metrics/resource" {
		resp = &http.Response{StatusCode: http.StatusNotFound, ProtoMajor: 1, ProtoMinor: 1}
	}
	return resp.Write(conn) == nil
}

// SetLoad changes what pods use from now on. It takes the place of a load with the same
// selector.
func (u *usage) SetLoad(l Load) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.lookLocked(u.pods().List("", nil))
	for i, old := range u.mu.loads {
		if old.Namespace == l.Namespace && old.Selector.String() == l.Selector.String() {
			u.mu.loads[i] = l
			return
		}
	}
	u.mu.loads = append(u.mu.loads, l)
}

// answers notes whether a node can be looked at.
func (u *usage) answers(node string, does bool) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.mu.silent[node] = !does
}

// lookLocked counts what the pods have used until now, and shows it as metrics.
func (u *usage) lookLocked(items []*cache.Item) string {
	now := time.Now().Truncate(time.Millisecond) // as it is told
	var text strings.Builder
	var nodeCPU, nodeMemory float64
	shares := u.sharesLocked()
	for _, it := range items {
		pod := it.Object.(*corev1.Pod)
		cpu, memory := u.rateLocked(pod, shares)
		for i := range pod.Status.ContainerStatuses {
			c := &pod.Status.ContainerStatuses[i]
			if c.State.Running == nil {
				continue
			}
			key := string(pod.UID) + "/" + c.Name
			spent := u.mu.spent[key]
			if spent == nil {
				spent = &counter{at: c.State.Running.StartedAt.Time}
				u.mu.spent[key] = spent
			}
			n := float64(len(pod.Status.ContainerStatuses))
			spent.cpu += cpu / n * now.Sub(spent.at).Seconds()
			spent.at = now
			nodeCPU, nodeMemory = nodeCPU+spent.cpu, nodeMemory+memory/n
			labels := fmt.Sprintf("{container=%q,namespace=%q,pod=%q}", c.Name, pod.Namespace, pod.Name)
			fmt.Fprintf(&text, "container_cpu_usage_seconds_total%s %g %d\n", labels, spent.cpu, now.UnixMilli())
			fmt.Fprintf(&text, "container_memory_working_set_bytes%s %g %d\n", labels, memory/n, now.UnixMilli())
		}
	}
	fmt.Fprintf(&text, "node_cpu_usage_seconds_total %g %d\nnode_memory_working_set_bytes %g %d\n", nodeCPU, now.UnixMilli(), nodeMemory, now.UnixMilli())
	return text.String()
}

// sharesLocked is how many pods share each load.
func (u *usage) sharesLocked() []int {
	shares := make([]int, len(u.mu.loads))
	for i, l := range u.mu.loads {
		for _, it := range u.pods().List(l.Namespace, l.Selector) {
			if it.Object.(*corev1.Pod).Status.Phase == corev1.PodRunning {
				shares[i]++
			}
		}
	}
	return shares
}

// rateLocked is what a pod uses of processors, and of memory in bytes.
func (u *usage) rateLocked(pod *corev1.Pod, shares []int) (cpu, memory float64) {
	if core.PodTerminal(pod) {
		return 0, 0
	}
	for i, l := range u.mu.loads {
		if l.Namespace == pod.Namespace && l.Selector.Matches(labels.Set(pod.Labels)) {
			n := float64(max(shares[i], 1))
			return l.CPU.AsApproximateFloat64() / n, l.Memory.AsApproximateFloat64() / n
		}
	}
	return annotated(pod, "cpu"), annotated(pod, "memory")
}

func annotated(pod *corev1.Pod, name string) float64 {
	q, err := resource.ParseQuantity(pod.Annotations["sim.kemudi.io/"+name])
	if err != nil {
		return 0
	}
	return q.AsApproximateFloat64()
}
