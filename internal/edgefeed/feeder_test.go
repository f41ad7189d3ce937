package edgefeed

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/kemudi/kemudi/internal/api/networking"
	"github.com/kemudi/kemudi/internal/client/clienttest"
	"github.com/kemudi/kemudi/internal/edge"
	"github.com/kemudi/kemudi/internal/resource"
	"github.com/kemudi/kemudi/internal/task"
	"github.com/kemudi/kemudi/test/asedge"
	"github.com/kemudi/kemudi/test/port"
	"github.com/kemudi/kemudi/test/wait"
)

// versionEnv is the version that the edge of a test says it is of.
const versionEnv = "KEMUDI_TEST_EDGE_VERSION"

// TestMain makes this program an edge when it is started as one.
func TestMain(m *testing.M) { asedge.Main(m, os.Getenv(versionEnv)) }

// bed is a node with a feeder.
type bed struct {
	*testing.T
	api    *clienttest.Filled
	dir    string
	port   uint16
	notes  atomic.Pointer[string]
	group  *task.Group
	feeder *Feeder // that was started last
}

func newBed(t *testing.T) *bed {
	b := &bed{T: t, dir: t.TempDir(), port: port.Reserve(t)}
	b.api = clienttest.NewFilled(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1"}})
	b.notes.Store(new(string))
	t.Cleanup(func() {
		b.stop()
		if _, err := Reset(context.WithoutCancel(t.Context()), b.dir); err != nil {
			t.Error(err)
		}
		if t.Failed() {
			log, _ := os.ReadFile(filepath.Join(b.dir, "edge.log"))
			t.Logf("log of the edge:\n%s", log)
		}
	})
	return b
}

// Event notes an event.
func (b *bed) Event(_ resource.Object, _, reason, message string) {
	all := *b.notes.Load() + reason + " " + message + "\n"
	b.notes.Store(&all)
}

// start starts a feeder of a version.
func (b *bed) start(version string) {
	b.Setenv(versionEnv, version)
	b.group = task.NewGroup(b.Context())
	b.feeder = New(Options{
		Transport: b.api, NodeName: "n1", RunDir: b.dir, LogFile: filepath.Join(b.dir, "edge.log"), Ports: edge.Ports{HTTP: b.port}, Version: version, Events: b,
	})
	b.group.Go("feeder", b.feeder.Run)
}

func (b *bed) stop() {
	if b.group != nil {
		b.group.Cancel(context.Canceled)
		if err := b.group.Wait(); err != nil {
			b.Error(err)
		}
		b.group = nil
	}
}

func object[T any](b *bed, text string) *T {
	b.Helper()
	var obj T
	if err := yaml.UnmarshalStrict([]byte(text), &obj); err != nil {
		b.Fatal(err)
	}
	return &obj
}

// backend serves what it is called, as a service of that name.
func (b *bed) backend(name string) { b.endpoint(name, b.serve(name)) }

// serve answers with a word, and returns the port at which it does.
func (b *bed) serve(word string) (port string) {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, word) }))
	b.Cleanup(s.Close)
	_, port, _ = net.SplitHostPort(s.Listener.Addr().String())
	return port
}

// endpoint has a port of this machine serve a service of that name.
func (b *bed) endpoint(name, port string) {
	b.api.Put(
		object[corev1.Service](b, "metadata: {namespace: team, name: "+name+"}\nspec: {ports: [{port: 80}]}"),
		object[discoveryv1.EndpointSlice](b, "metadata: {namespace: team, name: "+name+"-x, labels: {kubernetes.io/service-name: "+name+"}}\naddressType: IPv4\nports: [{name: '', port: "+port+"}]\nendpoints: [{addresses: [127.0.0.1]}]"),
	)
}

func (b *bed) ingress(name, service string) *networkingv1.Ingress {
	return object[networkingv1.Ingress](b, "metadata: {namespace: team, name: "+name+"}\nspec: {ingressClassName: kemudi, rules: [{host: "+name+".com, http: {paths: [{path: /, pathType: Prefix, backend: {service: {name: "+service+", port: {number: 80}}}}]}}]}")
}

func (b *bed) marker() *corev1.Service {
	return &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: "kemudi-ingress"}}
}

// answers waits until a host answers so.
func (b *bed) answers(host, want string) {
	b.Helper()
	wait.Until(b, func() error {
		if got := b.get(host); got != want {
			return fmt.Errorf("%s: got %s, want %s", host, got, want)
		}
		return nil
	})
}

// get asks a host, with or without a path behind it.
func (b *bed) get(host string) string {
	host, path, _ := strings.Cut(host, "/")
	r, err := http.NewRequestWithContext(b.Context(), http.MethodGet, "http://127.0.0.1:"+strconv.Itoa(int(b.port))+"/"+path, nil)
	if err != nil {
		b.Fatal(err)
	}
	r.Host = host
	t := &http.Transport{}
	defer t.CloseIdleConnections()
	res, err := t.RoundTrip(r)
	if err != nil {
		return "none"
	}
	defer res.Body.Close()
	text, _ := io.ReadAll(res.Body)
	return strings.TrimSpace(string(text))
}

// edgePID is the process of the edge that runs, 0 if there is none.
func (b *bed) edgePID() int {
	p, hello, err := New(Options{RunDir: b.dir}).dial(b.Context())
	if err != nil {
		return 0
	}
	p.Close()
	return hello.PID
}

func TestEdgeLivesAsLongAsAnIngressDoes(t *testing.T) {
	b := newBed(t)
	b.backend("web")
	b.api.Put(b.ingress("a", "web"))
	b.start("v1")
	if got := b.get("a.com"); got != "none" {
		t.Errorf("before nodes are told: got %s, want no edge", got)
	}
	b.api.Put(b.marker())
	b.answers("a.com", "web")
	b.backend("other")
	b.api.Put(b.ingress("b", "other"))
	b.answers("b.com", "other")
	b.api.Remove(b.ingress("b", "other"))
	b.answers("b.com", "default backend - 404")
	b.api.Remove(b.ingress("a", "web"), b.marker())
	b.answers("a.com", "none")
	b.api.Put(b.ingress("a", "other"), b.marker())
	b.answers("a.com", "other")
}

func TestEdgeOutlivesWhoFeedsIt(t *testing.T) {
	b := newBed(t)
	b.backend("web")
	b.api.Put(b.marker(), b.ingress("a", "web"))
	b.start("v1")
	b.answers("a.com", "web")
	b.stop()
	if got := b.get("a.com"); got != "web" {
		t.Errorf("while nobody feeds it: got %s, want web", got)
	}
	first := b.edgePID()
	// What changes meanwhile is told by the next one.
	b.backend("new")
	b.api.Put(b.ingress("a", "new"))
	b.start("v1")
	b.answers("a.com", "new")
	b.stop()
	if got := b.edgePID(); first == 0 || got != first {
		t.Errorf("got process %d after a restart, want %d", got, first)
	}
	// One of another version makes room for the next.
	before := b.children() // those of other tests may be about to end
	b.start("v2")
	wait.Until(t, func() error {
		if got := b.children(); !slices.ContainsFunc(got, func(pid int) bool { return !slices.Contains(before, pid) }) {
			return fmt.Errorf("got processes %v, want another than %v", got, before)
		}
		return nil
	})
	b.answers("a.com", "new")
	b.stop()
	// One that is not needed any more when nobody looks is ended at the next start.
	b.api.Remove(b.marker())
	b.start("v2")
	b.answers("a.com", "none")
}

// TestEdgeThatIsSlowToAnswerIsNotLeftBehind ends a feeder that waits for the edge to say who it is.
func TestEdgeThatIsSlowToAnswerIsNotLeftBehind(t *testing.T) {
	b := newBed(t)
	b.backend("web")
	b.api.Put(b.marker(), b.ingress("a", "web"))
	l, err := net.Listen("unix", Socket(b.dir))
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	b.start("v1")
	silent, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	b.stop()
	silent.Close()
	conn, err := net.Dial("unix", Socket(b.dir))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if again, err := l.Accept(); err != nil { // the next feeder finds it
		t.Error(err)
	} else {
		again.Close()
	}
}

func TestEdgeThatDiesIsStartedAgain(t *testing.T) {
	b := newBed(t)
	b.backend("web")
	b.api.Put(b.marker(), b.ingress("a", "web"))
	b.start("v1")
	b.answers("a.com", "web")
	for _, pid := range b.children() {
		if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
	}
	wait.Until(t, func() error {
		if notes := *b.notes.Load(); !strings.Contains(notes, "EdgeFailed") {
			return fmt.Errorf("got events %q", notes)
		}
		return nil
	})
	b.answers("a.com", "web")
}

// children are the edges among the processes that this one has started.
func (b *bed) children() (edges []int) {
	b.Helper()
	files, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", os.Getpid())) // each thread has its own
	if err != nil || len(files) == 0 {
		b.Skip("the kernel does not tell the children of a process")
	}
	var all string
	for _, file := range files {
		list, _ := os.ReadFile(file) // the thread may have ended
		all += string(list)
	}
	for field := range strings.FieldsSeq(all) {
		pid, _ := strconv.Atoi(field)
		if data, _ := os.ReadFile(fmt.Sprintf("/proc/%d/environ", pid)); strings.Contains(string(data), edge.SocketEnv+"=") {
			edges = append(edges, pid)
		}
	}
	return edges
}

func TestPortThatIsTakenIsTold(t *testing.T) {
	b := newBed(t)
	l, err := net.Listen("tcp", ":"+strconv.Itoa(int(b.port)))
	if err != nil {
		t.Fatal(err)
	}
	b.backend("web")
	b.api.Put(b.marker(), b.ingress("a", "web"))
	b.start("v1")
	wait.Until(t, func() error {
		if notes := *b.notes.Load(); !strings.Contains(notes, "IngressPortTaken port "+strconv.Itoa(int(b.port))) {
			return fmt.Errorf("got events %q", notes)
		}
		return nil
	})
	l.Close()
	b.answers("a.com", "web")
}

// A Service of type LoadBalancer, as Gateways have them, that gets a port of Ingresses at an address of the node is
// named in an event, and so is that it is free again: whatever else the edge serves then, and whenever the node is
// known.
func TestPortThatAServiceTakesIsTold(t *testing.T) {
	b := newBed(t)
	node := object[corev1.Node](b, "metadata: {name: n1}\nstatus: {addresses: [{type: InternalIP, address: 192.0.2.1}]}")
	b.api.Put(node)
	taker := func(address string) *corev1.Service {
		return object[corev1.Service](b, fmt.Sprintf("metadata: {namespace: team, name: gw}\nspec: {type: LoadBalancer, ports: [{port: 1}, {port: %d}]}\nstatus: {loadBalancer: {ingress: [{ip: %s}]}}", b.port, address))
	}
	b.backend("web")
	b.api.Put(b.marker(), b.ingress("a", "web"), taker("192.0.2.9"))
	b.start("v1")
	b.answers("a.com", "web")
	if notes := *b.notes.Load(); notes != "" {
		t.Errorf("an address that is not the node's: got events %q", notes)
	}
	told := func(times int, want string) {
		t.Helper()
		wait.Until(t, func() error {
			if notes := *b.notes.Load(); strings.Count(notes, want) != times {
				return fmt.Errorf("got events %q, want %q %d times", notes, want, times)
			}
			return nil
		})
	}
	at := fmt.Sprintf("port %d of address 192.0.2.1 of the node", b.port)
	taken, served := "IngressPortTaken Service team/gw has "+at+": ", "IngressPortServed Service team/gw leaves "+at+" to Ingresses now"
	b.api.Put(taker("192.0.2.1"))
	told(1, taken)
	b.api.Remove(taker("192.0.2.1"))
	told(1, served)
	// With Gateways the edge is fed anew, in the middle of which the Service goes.
	gateways := object[corev1.Service](b, "metadata: {namespace: "+metav1.NamespaceSystem+", name: "+networking.GatewayService+"}")
	b.api.Put(gateways, taker("192.0.2.1"))
	told(2, taken)
	b.api.Remove(gateways, taker("192.0.2.1"))
	told(2, served)
	// It came before the node had the address.
	b.api.Put(taker("192.0.2.9"))
	node = node.DeepCopy()
	node.Status.Addresses[0].Address = "192.0.2.9"
	b.api.Put(node)
	told(1, "IngressPortTaken Service team/gw has "+strings.Replace(at, "192.0.2.1", "192.0.2.9", 1))
}

func TestResetEndsTheEdge(t *testing.T) {
	b := newBed(t)
	b.backend("web")
	b.api.Put(b.marker(), b.ingress("a", "web"))
	b.start("v1")
	b.answers("a.com", "web")
	b.stop()
	removed, err := Reset(t.Context(), b.dir)
	if err != nil || len(removed) != 2 {
		t.Errorf("got %v, %v, want a process and its socket", removed, err)
	}
	b.answers("a.com", "none")
	if removed, err := Reset(t.Context(), b.dir); err != nil || len(removed) != 0 {
		t.Errorf("once more: got %v, %v, want nothing", removed, err)
	}
}
