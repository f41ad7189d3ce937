package e2e

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/kemudi/kemudi/internal/fleet"
	"github.com/kemudi/kemudi/internal/trace"
	"github.com/kemudi/kemudi/internal/up"
	"github.com/kemudi/kemudi/test/wait"
)

// servers is a cluster of several servers and agents on one machine, each in a network
// namespace of its own but for the first.
type servers struct {
	*cluster
	clients   map[string]kubernetes.Interface // of each server, by the name of its node
	addresses map[string]string               // of the nodes
	names     []string                        // of the servers, in their order
	env       []string                        // of their commands, beside that of the test
}

// first is what the server is called here that has the machine itself.
const first = "server-1"

// newServers starts a cluster by the command that people use.
func newServers(t *testing.T, count, agents int) *servers {
	t.Helper()
	s := noServers(t, count+agents)
	s.bring(t, count, agents)
	return s
}

// noServers is a cluster of so many machines that is to be started.
func noServers(t *testing.T, machines int) *servers {
	t.Helper()
	enter(t, machines)
	return &servers{cluster: &cluster{machine: makeMachine(t)}, clients: map[string]kubernetes.Interface{}}
}

// bring starts it.
func (s *servers) bring(t *testing.T, count, agents int) {
	t.Helper()
	agnhost := s.images[slices.IndexFunc(s.images, func(file string) bool { return filepath.Base(file) == "agnhost-1.tar" })]
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("status:\n%s", s.do(context.Background(), "status").all())
			for _, m := range s.states(context.Background()) {
				t.Logf("log of %s:\n%s", m.Name, tail(m.Log, 40))
			}
			t.Logf("log of %s:\n%s", first, tail(s.logOf(first), 40))
		}
	})
	begin := time.Now()
	s.up(t, "--servers", fmt.Sprint(count), "--agents", fmt.Sprint(agents), "--import", agnhost)
	t.Logf("%d servers and %d agents after %s", count, agents, time.Since(begin).Round(time.Millisecond))
	s.connect(t)
	s.addresses = map[string]string{}
	endpoints := must(s.client.CoreV1().Nodes().List(t.Context(), metav1.ListOptions{}))(t)
	for i := range endpoints.Items {
		node := &endpoints.Items[i]
		s.addresses[node.Name] = node.Status.Addresses[slices.IndexFunc(node.Status.Addresses, func(a corev1.NodeAddress) bool { return a.Type == corev1.NodeInternalIP })].Address
		server := strings.HasPrefix(node.Name, "server-")
		if got := node.Labels["example.com/for"] == "servers"; got != server {
			t.Errorf("node %s has the label of servers: got %v, want %v", node.Name, got, server)
		}
		if server {
			config := s.configOf(node.Name)
			config.Timeout = wait.Patience
			s.clients[node.Name] = must(kubernetes.NewForConfig(config))(t)
			s.names = append(s.names, node.Name)
		}
	}
	if slices.Sort(s.names); len(s.names) != count || len(endpoints.Items) != count+agents {
		t.Fatalf("got servers %q among %d nodes, want %d among %d", s.names, len(endpoints.Items), count, count+agents)
	}
}

// configOf is how a server is reached.
func (s *servers) configOf(name string) *rest.Config {
	config := rest.CopyConfig(s.config)
	config.Host, config.Timeout = "https://"+s.addresses[name]+":6443", 10*time.Second
	return config
}

// up starts what does not run.
func (s *servers) up(t *testing.T, more ...string) {
	t.Helper()
	s.must(t, s.upArgs(more...)...)
}

func (s *servers) upArgs(more ...string) []string {
	return append(append([]string{"up", "--kubeconfig", ""}, more...), "--", "--pod-logs-dir", s.LogsDir, "--node-name", first, "--node-labels", "example.com/for=servers")
}

// do runs a command of the program for this cluster.
func (s *servers) do(ctx context.Context, args ...string) output {
	command := append(append([]string{"env"}, s.env...), s.bin, args[0], "--data-dir", s.DataDir, "--run-dir", s.RunDir)
	return s.run(ctx, nil, append(command, args[1:]...)...)
}

func (s *servers) must(t *testing.T, args ...string) string {
	t.Helper()
	o := s.do(t.Context(), args...)
	if o.code != 0 {
		t.Fatalf("%v: exit code %d\n%s", args, o.code, o.all())
	}
	return o.stdout
}

// states are those of the machines beside the first.
func (s *servers) states(ctx context.Context) []fleet.State {
	var is struct{ Machines []fleet.State }
	if json.Unmarshal([]byte(s.do(ctx, "status", "-o", "json").stdout), &is) != nil {
		return nil
	}
	return is.Machines
}

// processOf is the process of a machine.
func (s *servers) processOf(t *testing.T, name string) int {
	t.Helper()
	run := s.RunDir
	if name != first {
		run += "-" + name
	}
	pid, err := up.Running(run)
	if err != nil || pid == 0 {
		t.Fatalf("machine %s: got process %d, %v", name, pid, err)
	}
	return pid
}

// logOf is the log of a machine.
func (s *servers) logOf(name string) string {
	if name == first {
		return up.LogFile(s.DataDir)
	}
	return up.LogFile(filepath.Join(s.DataDir, "machines", name))
}

// others are the servers but one.
func (s *servers) others(name string) []string {
	return slices.DeleteFunc(slices.Clone(s.names), func(n string) bool { return n == name })
}

// writers write to all servers all the time, until stop is called.
type writers struct {
	group sync.WaitGroup
	end   context.CancelFunc
	mu    struct {
		sync.Mutex
		written []string             // what a server has said to be written
		last    map[string]time.Time // when a server did so last
	}
}

// write begins to write by two clients of each server.
func (s *servers) write(t *testing.T) *writers {
	t.Helper()
	w := &writers{}
	ctx, cancel := context.WithCancel(t.Context())
	w.end, w.mu.last = cancel, map[string]time.Time{}
	for name, api := range s.clients {
		for i := range 2 {
			w.group.Go(func() {
				for n := 0; ctx.Err() == nil; n++ {
					made := fmt.Sprintf("w-%s-%d-%d", name, i, n)
					// A server that is cut off does not answer at all: another connection may reach it again.
					limited, cancel := context.WithTimeout(ctx, 10*time.Second)
					_, err := api.CoreV1().ConfigMaps("default").Create(limited, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: made}, Data: map[string]string{"n": made}}, metav1.CreateOptions{})
					cancel()
					if err == nil {
						w.mu.Lock()
						w.mu.written = append(w.mu.written, made)
						w.mu.last[name] = time.Now()
						w.mu.Unlock()
						continue
					}
					pause(ctx) // it is not known, or was refused
				}
			})
		}
	}
	return w
}

// pause waits a little, or until the test ends.
func pause(ctx context.Context) {
	select {
	case <-time.After(20 * time.Millisecond):
	case <-ctx.Done():
	}
}

// since is how long after a moment a server has written again; it waits for that.
func (w *writers) since(t *testing.T, moment time.Time, server string) time.Duration {
	t.Helper()
	var took time.Duration
	wait.Until(t, func() error {
		w.mu.Lock()
		defer w.mu.Unlock()
		if took = w.mu.last[server].Sub(moment); took < 0 {
			return fmt.Errorf("%s does not write", server)
		}
		return nil
	})
	return took
}

// enough is how many writes have to be answered for a test to show something.
const enough = 100

// stop ends the writers once they have written enough, and returns what is written.
func (w *writers) stop(t *testing.T) []string {
	t.Helper()
	wait.Until(t, func() error {
		w.mu.Lock()
		defer w.mu.Unlock()
		if n := len(w.mu.written); n < enough {
			return fmt.Errorf("only %d writes were answered, want %d", n, enough)
		}
		return nil
	})
	w.end()
	w.group.Wait()
	return w.mu.written
}

// wantAll expects all that was written on each server.
func (s *servers) wantAll(t *testing.T, written []string) {
	t.Helper()
	for name, api := range s.clients {
		var list *corev1.ConfigMapList
		wait.Until(t, func() (err error) { // a leader may be elected just now
			list, err = api.CoreV1().ConfigMaps("default").List(t.Context(), metav1.ListOptions{})
			return err
		})
		has := map[string]bool{}
		for i := range list.Items {
			has[list.Items[i].Name] = true
		}
		lost := slices.DeleteFunc(slices.Clone(written), func(made string) bool { return has[made] })
		if len(lost) > 0 {
			t.Errorf("%s has lost %d of %d writes, %s among them", name, len(lost), len(written), lost[0])
		}
	}
}

// wantReady waits until all machines are ready, as `kemudi status` says it.
func (s *servers) wantReady(t *testing.T) {
	t.Helper()
	wait.Until(t, func() error {
		if o := s.do(t.Context(), "status"); o.code != 0 {
			return errors.New(o.all())
		}
		return nil
	})
}

// theDocuments is the Deployment of the documents, a pod on each of six nodes, with a service. Its pods serve
// for a while after they are told to end.
const theDocuments = `
apiVersion: apps/v1
kind: Deployment
metadata: {name: nginx-deployment, labels: {app: nginx}}
spec:
  replicas: 6
  selector: {matchLabels: {app: nginx}}
  template:
    metadata: {labels: {app: nginx}}
    spec:
      affinity:
        podAntiAffinity:
          preferredDuringSchedulingIgnoredDuringExecution:
          - {weight: 100, podAffinityTerm: {topologyKey: kubernetes.io/hostname, labelSelector: {matchLabels: {app: nginx}}}}
      containers:
      - name: nginx
        image: nginx:1.7.9
        ports: [{containerPort: 80}]
        readinessProbe: {httpGet: {path: /readyz, port: 80}, periodSeconds: 1}
        lifecycle: {preStop: {sleep: {seconds: 3}}}
---
apiVersion: v1
kind: Service
metadata: {name: nginx}
spec: {selector: {app: nginx}, ports: [{port: 80}]}
`

// onlyOnes is a StatefulSet whose pods hold a lock, each the one of its name, in a directory that all
// machines have. Where a node is lost its pods are told to end at once.
const onlyOnes = `
apiVersion: apps/v1
kind: StatefulSet
metadata: {name: one}
spec:
  serviceName: one
  replicas: 4
  podManagementPolicy: Parallel
  selector: {matchLabels: {app: one}}
  template:
    metadata: {labels: {app: one}}
    spec:
      terminationGracePeriodSeconds: 1
      tolerations:
      - {key: node.kubernetes.io/unreachable, operator: Exists, effect: NoExecute, tolerationSeconds: 1}
      - {key: node.kubernetes.io/not-ready, operator: Exists, effect: NoExecute, tolerationSeconds: 1}
      containers:
      - {name: c, image: "kemudi.local/agnhost:1", args: [only-one], volumeMounts: [{name: ones, mountPath: /ones}]}
      volumes: [{name: ones, hostPath: {path: DIR, type: DirectoryOrCreate}}]
`

// ones is the directory of their locks.
func (s *servers) ones() string { return filepath.Join(s.Dir, "ones") }

// runOnlyOnes has them run.
func (s *servers) runOnlyOnes(t *testing.T) {
	t.Helper()
	s.kubectl().apply(t, strings.Replace(onlyOnes, "DIR", s.ones(), 1))
	s.kubectl().do(t, "rollout", "status", "statefulset/one", patient)
}

// wantOnlyOnes expects that no two pods of a name have ever run at a time.
func (s *servers) wantOnlyOnes(t *testing.T) {
	t.Helper()
	locks := must(filepath.Glob(filepath.Join(s.ones(), "*")))(t)
	if len(locks) < 4 {
		t.Errorf("got the locks %q, want four: the test shows nothing", locks)
	}
	for _, lock := range locks {
		if strings.HasSuffix(lock, "-twice") {
			t.Errorf("two pods of one name have run at a time: %s", lock)
		}
	}
}

// virtualIP is an address of the network of the machines that none of them has.
const virtualIP = "172.30.255.250"

// reach waits until programs on an agent's machine reach a server that lives, by the two addresses that
// are there for that.
func (s *servers) reach(t *testing.T, agent string, since time.Time) {
	t.Helper()
	inside := []string{"nsenter", "--net=" + s.netns(agent), s.bin, "kubectl", "--request-timeout=5s"}
	node := filepath.Join(s.DataDir, "machines", agent, "kubelet.kubeconfig")
	for what, args := range map[string][]string{
		"its own address":     {"--kubeconfig", node, "get", "node", agent},
		"the virtual address": {"--kubeconfig", s.adminKubeconfig(), "--server", "https://" + virtualIP + ":6443", "get", "node", agent},
	} {
		wait.Until(t, func() error {
			if o := s.run(t.Context(), nil, append(slices.Clone(inside), args...)...); o.code != 0 {
				return fmt.Errorf("%s reaches no server by %s: %s", agent, what, o.all())
			}
			return nil
		})
		t.Logf("%s reaches a server by %s after %s", agent, what, time.Since(since).Round(time.Millisecond))
	}
}

// TestAnyMachineOfSeveralMayDie kills servers and agents in turn, each while clients of all servers
// write and others use a service: the others go on, what was answered is there, no request fails, and nothing
// that runs is started anew. A node that is drained gives its pods to others.
func TestAnyMachineOfSeveralMayDie(t *testing.T) {
	t.Parallel()
	s := noServers(t, 6)
	s.env = []string{"KEMUDI_VIRTUAL_IP=" + virtualIP}
	s.bring(t, 3, 3)
	s.must(t, "up", "--kubeconfig", "", "--import", filepath.Join(s.dir, "images", "nginx-1.7.9.tar"))
	k := s.kubectl()
	k.apply(t, webOnEachNode+"---"+theDocuments)
	k.do(t, "rollout", "status", "daemonset/web", patient)
	k.rolledOut(t, "nginx-deployment")
	s.runOnlyOnes(t)
	on := map[string]bool{}
	for _, pod := range s.pods(t, "default", "app=nginx") {
		on[pod.Spec.NodeName] = true
	}
	if len(on) != 6 {
		t.Errorf("the pods of the Deployment are on %v, want one on each of six nodes", on)
	}
	everything := "app in (web,nginx,one)"
	before := s.containers(t, "default", everything)
	url := "http://" + k.do(t, "get", "service", "nginx", "-o", "jsonpath={.spec.clusterIP}") + "/"
	wait.Until(t, func() error { return second(get(s.host, url)) })
	l := startLoad(t, s.host, url)
	w := s.write(t)
	for _, name := range append(slices.Clone(s.names), "agent-1", "agent-2", "agent-3") {
		s.allWrite(t, w)
		mend := s.kill(t, name)
		killed := time.Now()
		for _, other := range s.others(name) {
			t.Logf("%s is dead: %s writes after %s", name, other, w.since(t, killed, other).Round(time.Millisecond))
		}
		trace.Proves(t, "COMP-003", "COMP-005")
		if strings.HasPrefix(name, "server") {
			s.reach(t, "agent-1", killed)
		}
		mend()
		s.wantReady(t)
		k.do(t, "rollout", "status", "daemonset/web", patient)
		wantSame(t, before, s.containers(t, "default", everything))
	}
	s.allWrite(t, w)
	s.wantAll(t, w.stop(t))
	const drained = "agent-1"
	k.do(t, "drain", drained, "--ignore-daemonsets", "--delete-emptydir-data", patient)
	k.rolledOut(t, "nginx-deployment")
	k.do(t, "rollout", "status", "statefulset/one", patient)
	for _, pod := range s.pods(t, "default", "app in (nginx,one)") {
		if pod.Spec.NodeName == drained && pod.DeletionTimestamp == nil {
			t.Errorf("pod %s is on the node that was drained", pod.Name)
		}
	}
	l.end(t, "1.7.9")
	s.wantOnlyOnes(t)
}

// allWrite waits until all servers write.
func (s *servers) allWrite(t *testing.T, w *writers) {
	t.Helper()
	now := time.Now()
	for _, name := range s.names {
		w.since(t, now, name)
	}
}

// gone is an error as long as there is a process.
func gone(pid int) error {
	if err := syscall.Kill(pid, 0); err == nil {
		return fmt.Errorf("process %d is still there", pid)
	}
	return nil
}

// TestServerOnItsOwnRefusesWrites cuts one server off from all machines: it says that it has no
// majority, and has all that the others have written when it is back.
func TestServerOnItsOwnRefusesWrites(t *testing.T) {
	t.Parallel()
	s := newServers(t, 3, 0)
	k := s.kubectl()
	k.apply(t, webOnEachNode)
	k.do(t, "rollout", "status", "daemonset/web", patient)
	before := s.containers(t, "default", "app=web")
	w := s.write(t)
	const alone = "server-3"
	s.allWrite(t, w)
	mend := s.cut(t, alone, wholeCut...)
	cut := time.Now()
	inside := func(args ...string) output {
		config := filepath.Join(s.DataDir, "machines", alone, "admin.kubeconfig")
		return s.run(t.Context(), nil, append([]string{"nsenter", "--net=" + s.netns(alone), s.bin, "kubectl", "--kubeconfig", config, "--request-timeout=20s"}, args...)...)
	}
	for _, other := range s.others(alone) {
		t.Logf("%s is cut off: %s writes after %s", alone, other, w.since(t, cut, other).Round(time.Millisecond))
	}
	wait.Until(t, func() error {
		if o := inside("create", "configmap", "refused"); o.code == 0 || !strings.Contains(o.stderr, "majority") {
			return fmt.Errorf("got exit code %d of a write there: %s", o.code, o.all())
		}
		return nil
	})
	if o := inside("get", "--raw", "/readyz"); o.code == 0 {
		t.Errorf("the server that is alone says that it is ready: %s", o.all())
	}
	wait.Until(t, func() error {
		_, err := s.client.CoreV1().ConfigMaps("default").Get(t.Context(), "refused", metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			return nil
		}
		return fmt.Errorf("got %v of what was refused, want that it is not there", err)
	})
	mend()
	mended := time.Now()
	t.Logf("the cut is mended: %s writes after %s", alone, w.since(t, mended, alone).Round(time.Millisecond))
	s.wantReady(t)
	s.allWrite(t, w)
	s.wantAll(t, w.stop(t))
	wantSame(t, before, s.containers(t, "default", "app=web"))
	s.wantAll(t, w.stop(t))
	s.move(t, alone)
	wantSame(t, before, s.containers(t, "default", "app=web"))
}

// move gives a server that runs another address, as a network does. The others hear where its part of the
// store is now: with one of them gone it is needed for a majority.
func (s *servers) move(t *testing.T, name string) {
	t.Helper()
	was := netip.MustParseAddr(s.addresses[name])
	bytes := was.As4()
	bytes[3] += 100
	is := netip.AddrFrom4(bytes)
	gateway := netip.AddrFrom4([4]byte{bytes[0], bytes[1], bytes[2], 1})
	for _, args := range [][]string{
		{"address", "add", is.String() + "/24", "dev", "eth0"}, {"address", "del", was.String() + "/24", "dev", "eth0"},
		{"address", "replace", is.String() + "/24", "dev", "eth0"}, {"route", "replace", "default", "via", gateway.String(), "src", is.String()},
	} {
		if o := s.run(t.Context(), nil, append([]string{"nsenter", "--net=" + s.netns(name), "ip"}, args...)...); o.code != 0 {
			t.Fatalf("give %s another address: %v: %s", name, args, o.all())
		}
	}
	s.addresses[name] = is.String()
	moved := time.Now()
	wait.Until(t, func() error {
		o := s.run(t.Context(), nil, s.bin, "member", "list", "--data-dir", s.DataDir)
		if o.code != 0 || !strings.Contains(o.stdout, "https://"+is.String()+":2380") || strings.Contains(o.stdout, "https://"+was.String()+":2380") {
			return fmt.Errorf("want %s at %s: got members %s", name, is, o.all())
		}
		return nil
	})
	wait.Until(t, func() error {
		node, err := s.client.CoreV1().Nodes().Get(t.Context(), name, metav1.GetOptions{})
		if err == nil && (len(node.Status.Addresses) == 0 || node.Status.Addresses[0].Address != is.String()) {
			err = fmt.Errorf("got addresses %+v of node %s, want %s", node.Status.Addresses, name, is)
		}
		return err
	})
	t.Logf("%s has another address: everybody knows after %s", name, time.Since(moved).Round(time.Millisecond))
	gone := s.others(name)[1]
	s.kill(t, gone)
	for _, server := range []string{first, name} {
		client := must(kubernetes.NewForConfig(s.configOf(server)))(t)
		wait.Until(t, func() error {
			_, err := client.CoreV1().ConfigMaps("default").Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{GenerateName: "moved-"}}, metav1.CreateOptions{})
			return err
		})
	}
}
