//go:build !race

package cluster

import (
	"bufio"
	"context"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/kemudi/kemudi/internal/api/apps"
	"github.com/kemudi/kemudi/internal/api/batch"
	"github.com/kemudi/kemudi/internal/api/coordination"
	"github.com/kemudi/kemudi/internal/api/core"
	"github.com/kemudi/kemudi/internal/client"
	"github.com/kemudi/kemudi/internal/client/https"
	"github.com/kemudi/kemudi/internal/resource"
	"github.com/kemudi/kemudi/internal/simnode"
	"github.com/kemudi/kemudi/internal/store"
	"github.com/kemudi/kemudi/internal/store/etcd"
	"github.com/kemudi/kemudi/internal/task"
	"github.com/kemudi/kemudi/internal/up"
	"github.com/kemudi/kemudi/internal/watchcache"
	"github.com/kemudi/kemudi/test/stuck"
	"github.com/kemudi/kemudi/test/wait"
)

// severalEnv has the settings of a child process that is one of several servers.
const severalEnv = "KEMUDI_TEST_SEVERAL"

func TestChildIsOneOfSeveral(t *testing.T) {
	text := os.Getenv(severalEnv)
	if text == "" {
		t.Skip("only as the child of other tests")
	}
	var s oneOfSeveral
	if err := json.Unmarshal([]byte(text), &s); err != nil {
		t.Fatal(err)
	}
	ctx, stop := signal.NotifyContext(t.Context(), syscall.SIGTERM)
	defer stop()
	if err := Run(ctx, s.options(func() { fmt.Printf("\nready\n") })); err != nil && ctx.Err() == nil {
		t.Fatal(err)
	}
}

// process is a server in a process of its own.
type process struct {
	oneOfSeveral
	cmd   *exec.Cmd
	log   string // where it writes its log
	ended chan struct{}
}

// start returns when the server is ready, and is called again after end.
func (p *process) start(t *testing.T) {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	text, err := json.Marshal(p.oneOfSeveral)
	if err != nil {
		t.Fatal(err)
	}
	cmd, ended := exec.Command(exe, "-test.run=^TestChildIsOneOfSeveral$"), make(chan struct{})
	cmd.Env = append(os.Environ(), severalEnv+"="+string(text), "KEMUDI_TRACE_DIR=")
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	log, err := os.CreateTemp(t.TempDir(), "log")
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	p.log, cmd.Stderr = log.Name(), log
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	stuck.Guard(t, cmd, p.log)
	ready := make(chan struct{})
	var said []string // why it ended
	var reading sync.WaitGroup
	reading.Go(func() {
		defer close(ended)
		for lines := bufio.NewScanner(out); lines.Scan(); {
			if said = append(said, lines.Text()); lines.Text() == "ready" {
				close(ready)
			}
		}
		_ = cmd.Wait()
	})
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		reading.Wait()
	})
	p.cmd, p.ended = cmd, ended
	select {
	case <-ready:
	case <-ended:
		t.Fatalf("server %s does not start: %q", p.Name, said)
	case <-time.After(wait.Patience):
		stuck.Explain(t, cmd, p.log)
		t.Fatalf("server %s is not ready", p.Name)
	}
}

// end sends the server a signal and waits for its end, for which it has some time.
func (p *process) end(t *testing.T, s os.Signal) {
	t.Helper()
	if err := p.cmd.Process.Signal(s); err != nil {
		t.Fatal(err)
	}
	select {
	case <-p.ended:
	case <-time.After(wait.Patience):
		stuck.Explain(t, p.cmd, p.log)
		t.Fatalf("server %s does not end", p.Name)
	}
}

// pair is two servers over one etcd, and two nodes that pretend to run pods.
type pair struct {
	*testing.T
	servers map[string]*process
	api     client.Transport

	mu struct {
		sync.Mutex
		changed chan struct{} // closed at the next change
		leaders map[string]string
		pods    map[string]*corev1.Pod
		made    map[types.UID]map[types.UID]bool // by owner
		most    int                              // active pods of the Deployment
		bound   map[string]time.Time             // since when pods have a node
	}
}

const (
	webReplicas = 6
	webSurge    = 1
	runs        = 10
)

func newPair(t *testing.T) *pair {
	t.Helper()
	e := etcdElsewhere(t)
	p := &pair{T: t, servers: map[string]*process{}}
	p.mu.changed, p.mu.leaders, p.mu.pods = make(chan struct{}), map[string]string{}, map[string]*corev1.Pod{}
	p.mu.made, p.mu.bound = map[types.UID]map[types.UID]bool{}, map[string]time.Time{}
	var config *rest.Config
	var urls []string
	for _, name := range []string{"a", "b"} {
		s := &process{oneOfSeveral: oneOfSeveral{Dir: shortDir(t), Name: name, Port: steadyPort(t), Etcd: e}}
		if first := p.servers["a"]; first != nil {
			p.must(os.CopyFS(s.Dir+"/data/pki", os.DirFS(first.Dir+"/data/pki")))
		}
		p.servers[name] = s
		s.start(t)
		var err error
		config, err = clientcmd.BuildConfigFromFlags("", up.AdminKubeconfig(s.Dir+"/data"))
		p.must(err)
		urls = append(urls, config.Host)
	}
	cert, err := tls.X509KeyPair(config.CertData, config.KeyData)
	p.must(err)
	api, err := https.New(https.Options{Servers: urls, CA: config.CAData, Certificate: func() (*tls.Certificate, error) { return &cert, nil }})
	p.must(err)
	p.api = api
	st, err := etcd.NewRemote(etcd.RemoteOptions{Servers: e.Servers, CertFile: e.CertFile, KeyFile: e.KeyFile, CAFile: e.CAFile, Log: slog.New(slog.DiscardHandler)})
	p.must(err)
	g := task.NewGroup(t.Context())
	g.Go("transport", api.Run)
	g.Go("store", st.Run)
	p.must(await(g, st.Ready()))
	rev, err := st.Rev(t.Context())
	p.must(err)
	g.Go("watch", func(ctx context.Context) error {
		if err := st.Watch(ctx, "/registry/", rev, p.see); ctx.Err() == nil {
			return err
		}
		return nil
	})
	for i, name := range []string{"n1", "n2"} {
		n := simnode.New(simnode.Options{Name: name, StartAfter: 300 * time.Millisecond}, &simnode.Addresses{Node: i}, api, slog.New(slog.DiscardHandler))
		g.Go("node", func(ctx context.Context) error { return untilOver(ctx, n.Run) })
	}
	t.Cleanup(func() {
		g.Cancel(context.Canceled)
		if err := g.Wait(); err != nil {
			t.Error(err)
		}
	})
	return p
}

// steadyPort is a free port that no connection is given either while its server is down: it
// is below those that the system gives.
func steadyPort(t *testing.T) uint16 {
	t.Helper()
	for port := 20000 + os.Getpid()%10000; port < 1<<15; port++ {
		if l, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", port)); err == nil {
			l.Close()
			return uint16(port)
		}
	}
	t.Fatal("no port is free")
	return 0
}

// untilOver runs a node until ctx ends: one that comes while a server goes may fail.
func untilOver(ctx context.Context, run func(context.Context) error) error {
	for ctx.Err() == nil {
		_ = run(ctx)
		_ = task.Sleep(ctx, 20*time.Millisecond)
	}
	return nil
}

func (p *pair) must(err error) {
	p.Helper()
	if err != nil {
		p.Fatal(err)
	}
}

// see follows the leases and the pods, revision by revision.
func (p *pair) see(changes []store.Change, _ int64) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, c := range changes {
		def := core.Pods.Def
		switch {
		case strings.HasPrefix(c.Key, core.Pods.Key("default", "")):
		case strings.HasPrefix(c.Key, coordination.Leases.Key("kube-system", "")):
			def = coordination.Leases.Def
		default:
			continue
		}
		if c.Value == nil {
			delete(p.mu.pods, c.Key)
			continue
		}
		obj, err := watchcache.Decode(def, c.Value, c.Rev)
		if err != nil {
			return err
		}
		p.noteLocked(c.Key, obj)
	}
	close(p.mu.changed)
	p.mu.changed = make(chan struct{})
	return nil
}

func (p *pair) noteLocked(key string, obj resource.Object) {
	switch obj := obj.(type) {
	case *coordinationv1.Lease:
		if holder := obj.Spec.HolderIdentity; holder != nil {
			p.mu.leaders[obj.Name], _, _ = strings.Cut(*holder, "_")
		}
	case *corev1.Pod:
		p.mu.pods[key] = obj
		if p.mu.bound[obj.Name].IsZero() && obj.Spec.NodeName != "" {
			p.mu.bound[obj.Name] = time.Now()
		}
		if of := metav1.GetControllerOf(obj); of != nil {
			if p.mu.made[of.UID] == nil {
				p.mu.made[of.UID] = map[types.UID]bool{}
			}
			p.mu.made[of.UID][obj.UID] = true
		}
		p.mu.most = max(p.mu.most, p.countLocked(func(pod *corev1.Pod) bool { return pod.Labels["app"] == "web" && pod.DeletionTimestamp == nil }))
	}
}

func (p *pair) countLocked(is func(*corev1.Pod) bool) (n int) {
	for _, pod := range p.mu.pods {
		if is(pod) {
			n++
		}
	}
	return n
}

// await waits until ok, which is called with the lock held, holds, and returns when that was.
func (p *pair) await(what string, ok func() bool) time.Time {
	p.Helper()
	over := time.After(wait.Patience)
	for {
		p.mu.Lock()
		changed, is := p.mu.changed, ok()
		p.mu.Unlock()
		if is {
			return time.Now()
		}
		select {
		case <-changed:
		case <-over:
			p.Fatalf("%s: not within %s", what, wait.Patience)
		}
	}
}

// TestServersTakeOverWhatAnotherHasBegun kills, and ends in order, the process that leads in the middle of a rollout
// and of a Job: nothing is left undone, and nothing done twice. What it took is in the log.
func TestServersTakeOverWhatAnotherHasBegun(t *testing.T) {
	t.Parallel()
	p := newPair(t)
	_, err := client.For(p.api, apps.Deployments).Create(t.Context(), &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web"},
		Spec: appsv1.DeploymentSpec{
			Replicas: new(int32(webReplicas)), Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}}, Template: pretended("web", corev1.RestartPolicyAlways),
			Strategy: appsv1.DeploymentStrategy{Type: appsv1.RollingUpdateDeploymentStrategyType, RollingUpdate: &appsv1.RollingUpdateDeployment{
				MaxSurge: new(intstr.FromInt32(webSurge)), MaxUnavailable: new(intstr.FromInt32(0)),
			}},
		},
	})
	p.must(err)
	p.await("all of web are ready", func() bool { return p.readyLocked("") == webReplicas })
	for version, s := range []syscall.Signal{syscall.SIGKILL, syscall.SIGTERM, syscall.SIGKILL} {
		p.round(fmt.Sprint(version+1), s)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if most := p.mu.most; most > webReplicas+webSurge {
		t.Errorf("web had %d pods, and may have %d", most, webReplicas+webSurge)
	}
}

func pretended(app string, restart corev1.RestartPolicy) corev1.PodTemplateSpec {
	t := corev1.PodTemplateSpec{
		ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"app": app}, Annotations: map[string]string{"version": "0"}},
		Spec:       corev1.PodSpec{RestartPolicy: restart, Containers: []corev1.Container{{Name: "c", Image: "i"}}},
	}
	if restart == corev1.RestartPolicyNever {
		t.Annotations["sim.kemudi.io/exit-after"] = "500ms"
	}
	return t
}

// readyLocked is how many pods of web are ready, of a version or of any.
func (p *pair) readyLocked(version string) int {
	return p.countLocked(func(pod *corev1.Pod) bool {
		return pod.Labels["app"] == "web" && pod.DeletionTimestamp == nil && core.PodReady(pod) && (version == "" || pod.Annotations["version"] == version)
	})
}

func (p *pair) round(version string, s syscall.Signal) {
	p.Helper()
	var first string
	p.await("somebody leads", func() bool {
		first = p.mu.leaders["kube-controller-manager"]
		return first != ""
	})
	name := "job" + version
	job, err := client.For(p.api, batch.Jobs).Create(p.Context(), &batchv1.Job{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name},
		Spec:       batchv1.JobSpec{Completions: new(int32(runs)), Parallelism: new(int32(2)), Template: pretended(name, corev1.RestartPolicyNever)},
	})
	p.must(err)
	_, err = client.For(p.api, apps.Deployments).Patch(p.Context(), "default", "web", "", client.Patch{
		Type: types.MergePatchType, Data: fmt.Appendf(nil, `{"spec":{"template":{"metadata":{"annotations":{"version":%q}}}}}`, version),
	})
	p.must(err)
	done := func() int {
		return p.countLocked(func(pod *corev1.Pod) bool {
			return pod.Labels["app"] == name && pod.Status.Phase == corev1.PodSucceeded
		})
	}
	p.await("both are in the middle", func() bool { return p.readyLocked(version) >= 2 && done() >= 2 })

	began := time.Now()
	p.servers[first].end(p.T, s)
	ended := time.Since(began)
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "lone" + version}, Spec: pretended("lone", corev1.RestartPolicyAlways).Spec}
	wait.Until(p, func() error { // by the server that is left
		_, err := client.For(p.api, core.Pods).Create(p.Context(), pod)
		return err
	})
	controls := p.await("another leads the controllers", func() bool { return p.other(first, "kube-controller-manager") })
	schedules := p.await("another schedules", func() bool { return p.other(first, "kube-scheduler") })
	var bound time.Time
	p.await("a pod that was made meanwhile has a node", func() bool {
		bound = p.mu.bound[pod.Name]
		return !bound.IsZero()
	})
	p.await("the job goes on", func() bool { return done() == runs })
	p.await("the rollout goes on", func() bool { return p.readyLocked(version) == webReplicas && p.readyLocked("") == webReplicas })
	p.Logf("%v: the process ended after %.2f s, another led the controllers after %.2f s, the scheduler after %.2f s; a pod had a node after %.2f s, all was done after %.2f s",
		s, ended.Seconds(), controls.Sub(began).Seconds(), schedules.Sub(began).Seconds(), bound.Sub(began).Seconds(), time.Since(began).Seconds())

	wait.Until(p, func() error {
		job, err := client.For(p.api, batch.Jobs).Get(p.Context(), "default", name)
		if err == nil && (job.Status.Succeeded != runs || job.Status.CompletionTime == nil) {
			err = fmt.Errorf("%s says %+v", name, job.Status)
		}
		return err
	})
	p.mu.Lock()
	if n := len(p.mu.made[job.UID]); n != runs {
		p.Errorf("%s had %d pods, of which none failed, and needs %d", name, n, runs)
	}
	p.mu.Unlock()
	p.servers[first].start(p.T)
}

// other says, with the lock held, that a lease is held by another than before.
func (p *pair) other(than, lease string) bool {
	now := p.mu.leaders[lease]
	return now != "" && now != than
}
