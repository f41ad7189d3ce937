package cluster

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"sync"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/kemudi/kemudi/internal/api/apps"
	"github.com/kemudi/kemudi/internal/api/core"
	"github.com/kemudi/kemudi/internal/cache"
	"github.com/kemudi/kemudi/internal/client"
	"github.com/kemudi/kemudi/internal/client/https"
	"github.com/kemudi/kemudi/internal/controller"
	"github.com/kemudi/kemudi/internal/obs"
	"github.com/kemudi/kemudi/internal/plane"
	"github.com/kemudi/kemudi/internal/scheduler"
	"github.com/kemudi/kemudi/internal/store/etcd"
	"github.com/kemudi/kemudi/internal/task"
	"github.com/kemudi/kemudi/test/wait"
)

// farBed is an API server on etcd, and everything else reaching it over HTTPS:
// the controllers, the scheduler and a node that pretends to run pods.
type farBed struct {
	*testing.T
	ctx    context.Context
	s      *server
	addr   string
	remote *https.Transport
	stop   func()

	line struct {
		sync.Mutex
		open []net.Conn
	}
}

// nobody never leads: the controllers of the server's own process rest.
type nobody struct{}

func (nobody) Lead(ctx context.Context, _ func(context.Context) error) error {
	<-ctx.Done()
	return nil
}

func newFarBed(t *testing.T) *farBed {
	t.Helper()
	ctx, cancel := context.WithTimeoutCause(t.Context(), wait.Patience, errors.New("the test's time is over"))
	t.Cleanup(cancel)
	o, err := Options{Machine: Machine{DataDir: t.TempDir(), NodeName: "far", Logger: slog.New(slog.DiscardHandler)}}.withDefaults()
	if err != nil {
		t.Fatal(err)
	}
	o.API.RuntimeConfig = map[string]bool{"scheduling.k8s.io/v1beta1": true, "settings.k8s.io/v1alpha1": true, "coordination.k8s.io/v1beta1": true, "coordination.k8s.io/v1alpha2": true} // the controllers follow all kinds there are
	b := &farBed{T: t, ctx: ctx, addr: "127.0.0.1:0", s: newServer(o, addresses{})}
	b.must(b.s.keys(ctx))
	b.start()
	t.Cleanup(func() { b.stop() })
	admin, err := b.s.pki.Admin()
	b.must(err)
	cert := admin.TLS()
	b.remote, err = https.New(https.Options{
		Servers: []string{"https://" + b.addr}, CA: b.s.pki.CA.CertPEM(), Dial: b.dial, Backoff: 5 * time.Millisecond,
		Certificate: func() (*tls.Certificate, error) { return &cert, nil },
	})
	b.must(err)
	g := task.NewGroup(ctx)
	t.Cleanup(func() {
		g.Cancel(context.Canceled)
		if err := g.Wait(); err != nil {
			t.Error(err)
		}
	})
	g.Go("transport", b.remote.Run)
	env := controller.Env{As: func(name string) client.Transport { return b.remote.As(name) }, Logger: o.Logger}
	g.Go("controllers", func(ctx context.Context) error {
		return controller.RunAll(ctx, b.s.plane.Controllers(), env)
	})
	sched := scheduler.New(scheduler.Options{Transport: b.remote.As("kube-scheduler"), Logger: o.Logger, Registry: obs.NewRegistry()})
	g.Go("scheduler", sched.Run)
	g.Go("node", func(ctx context.Context) error { return pretend(ctx, b.remote.As("kubelet"), "n1") })
	return b
}

// start starts the server at the address it had.
func (b *farBed) start() {
	b.Helper()
	under, over := task.NewGroup(context.WithoutCancel(b.ctx)), task.NewGroup(context.WithoutCancel(b.ctx))
	st, err := etcd.New(etcd.Options{Dir: b.s.o.DataDir, Name: "far", Log: b.s.o.Logger, NoSync: true})
	b.must(err)
	under.Go("etcd", st.Run)
	b.s.registry = obs.NewRegistry() // as a process that starts has
	b.s.plane, err = plane.New(plane.Options{
		Store: &st.Store, CABundle: string(b.s.pki.CA.CertPEM()), Logger: b.s.o.Logger, Serving: b.s.configure, Leadership: nobody{},
	})
	b.must(err)
	over.Go("control plane", b.s.plane.Run)
	var l net.Listener
	for l == nil && b.ctx.Err() == nil { // the system may need a moment to give the port back
		l, err = net.Listen("tcp", b.addr)
	}
	b.must(err)
	b.addr = l.Addr().String()
	over.Go("serve", func(ctx context.Context) error {
		return b.s.plane.Server().Serve(ctx, l, &tls.Config{GetCertificate: b.s.pki.ServingCertificate})
	})
	b.stop = sync.OnceFunc(func() {
		for _, g := range []*task.Group{over, under} {
			g.Cancel(context.Canceled)
			if err := g.Wait(); err != nil {
				b.Error(err)
			}
		}
	})
	b.must(await(over, b.s.plane.Ready()))
}

func (b *farBed) must(err error) {
	b.Helper()
	if err != nil {
		b.Fatal(err)
	}
}

func (b *farBed) dial(ctx context.Context, network, address string) (net.Conn, error) {
	conn, err := (&net.Dialer{}).DialContext(ctx, network, address)
	if err == nil {
		b.line.Lock()
		defer b.line.Unlock()
		b.line.open = append(b.line.open, conn)
	}
	return conn, err
}

// cut closes every connection a dozen times, at growing distances (a slow machine
// needs some time to get anything done), or until the returned function is called.
func (b *farBed) cut() (end func()) {
	ctx, cancel := context.WithCancel(b.ctx)
	var wg sync.WaitGroup
	wg.Go(func() {
		wait := 10 * time.Millisecond
		for range 12 {
			if task.Sleep(ctx, wait) != nil {
				return
			}
			wait += wait / 2
			b.line.Lock()
			open := b.line.open
			b.line.open = nil
			b.line.Unlock()
			for _, conn := range open {
				conn.Close()
			}
		}
	})
	return func() {
		cancel()
		wg.Wait()
	}
}

// eventually waits until ok, asking the API.
func (b *farBed) eventually(what string, ok func() (string, bool)) {
	b.Helper()
	for {
		state, done := ok()
		if done {
			return
		}
		if task.Sleep(b.ctx, 10*time.Millisecond) != nil {
			b.Fatalf("%s: never; now %s", what, state)
		}
	}
}

// pretend runs a node whose pods are ready at once and leave at once.
func pretend(ctx context.Context, t client.Transport, name string) error {
	nodes, pods := client.For(t, core.Nodes), client.For(t, core.Pods)
	node, err := nodes.Create(ctx, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}})
	if err != nil {
		return err
	}
	node = node.DeepCopy()
	node.Status.Capacity = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("64"), corev1.ResourceMemory: resource.MustParse("64Gi"), corev1.ResourcePods: resource.MustParse("500")}
	node.Status.Allocatable = node.Status.Capacity
	node.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue, LastTransitionTime: metav1.Now()}}
	node.ResourceVersion = "" // others have put taints on it meanwhile
	if _, err := nodes.UpdateStatus(ctx, node); err != nil {
		return err
	}
	c := client.Cached(t, core.Pods, "spec.nodeName="+name)
	act := func(pod *corev1.Pod) error {
		switch {
		case pod.DeletionTimestamp != nil:
			return pods.Delete(ctx, pod.Namespace, pod.Name, metav1.DeleteOptions{GracePeriodSeconds: ptr.To[int64](0), Preconditions: &metav1.Preconditions{UID: &pod.UID}})
		case pod.Status.Phase == corev1.PodPending:
			pod = pod.DeepCopy()
			pod.ResourceVersion = ""
			pod.Status.Phase, pod.Status.PodIP = corev1.PodRunning, "10.0.0.1"
			pod.Status.Conditions = append(pod.Status.Conditions, corev1.PodCondition{Type: corev1.PodReady, Status: corev1.ConditionTrue, LastTransitionTime: metav1.Now()})
			_, err := pods.UpdateStatus(ctx, pod)
			return err
		}
		return nil
	}
	err = c.Each(ctx, cache.FollowOptions{Index: "spec.nodeName", Value: name}, func(deltas []cache.Delta) error {
		for _, d := range deltas {
			if d.Now == nil {
				continue
			}
			for ctx.Err() == nil { // until it is done, whatever the line does
				err := act(d.Now.Object.(*corev1.Pod))
				if err == nil || apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
					break
				}
				if task.Sleep(ctx, 5*time.Millisecond) != nil {
					break
				}
			}
		}
		return nil
	})
	if ctx.Err() != nil {
		return nil
	}
	return err
}

func (b *farBed) deployments() client.Client[*appsv1.Deployment] {
	return client.For(b.s.plane.Admin(), apps.Deployments)
}

func (b *farBed) deploy(namespace, name string, replicas int32) {
	b.Helper()
	labels := map[string]string{"app": name}
	_, err := b.deployments().Create(b.ctx, &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Spec: appsv1.DeploymentSpec{
			Replicas: &replicas, Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "v1"}}}},
		},
	})
	b.must(err)
	b.rolledOut(namespace, name, "v1", replicas)
}

// roll changes the image.
func (b *farBed) roll(namespace, name, image string) {
	b.Helper()
	_, err := b.deployments().Patch(b.ctx, namespace, name, "", client.Patch{
		Type: "application/strategic-merge-patch+json", Data: fmt.Appendf(nil, `{"spec":{"template":{"spec":{"containers":[{"name":"c","image":%q}]}}}}`, image),
	})
	b.must(err)
}

// rolledOut waits until a deployment has exactly its pods, all of an image.
func (b *farBed) rolledOut(namespace, name, image string, replicas int32) {
	b.Helper()
	b.eventually("rollout of "+name+" to "+image, func() (string, bool) {
		d, err := b.deployments().Get(b.ctx, namespace, name)
		if err != nil {
			return err.Error(), false
		}
		pods, err := client.For(b.s.plane.Admin(), core.Pods).List(b.ctx, namespace, metav1.ListOptions{LabelSelector: "app=" + name})
		if err != nil {
			return err.Error(), false
		}
		good := int32(0)
		for _, pod := range pods {
			if pod.Spec.Containers[0].Image == image && core.PodReady(pod) && pod.DeletionTimestamp == nil {
				good++
			}
		}
		s := d.Status
		return fmt.Sprintf("%+v, %d pods, %d of them good", s, len(pods), good),
			s.ObservedGeneration == d.Generation && s.Replicas == replicas && s.UpdatedReplicas == replicas && s.AvailableReplicas == replicas &&
				good == replicas && len(pods) == int(replicas)
	})
}

// count is how many objects of a resource there are.
func count[T interface {
	metav1.Object
	comparable
}](list []T, err error) string {
	if err != nil {
		return err.Error()
	}
	return fmt.Sprint(len(list))
}

// TestControllersWorkOverHTTPSOnEtcd runs a rollout, garbage collection and the
// deletion of a namespace where controllers, scheduler and node are in other
// processes, and breaks connections and server in the middle.
func TestControllersWorkOverHTTPSOnEtcd(t *testing.T) {
	t.Parallel()
	b := newFarBed(t)
	admin := func() client.Transport { return b.s.plane.Admin() } // of the server that runs now
	pods := func(ns string) string {
		return count(client.For(admin(), core.Pods).List(b.ctx, ns, metav1.ListOptions{}))
	}
	sets := func(ns string) string {
		return count(client.For(admin(), apps.ReplicaSets).List(b.ctx, ns, metav1.ListOptions{}))
	}

	b.deploy("default", "web", 5)
	b.roll("default", "web", "v2")
	b.rolledOut("default", "web", "v2", 5)
	if got := sets("default"); got != "2" {
		t.Errorf("got %s replica sets, want 2", got)
	}

	end := b.cut()
	b.roll("default", "web", "v3")
	b.rolledOut("default", "web", "v3", 5)
	end()
	if got := sets("default"); got != "3" {
		t.Errorf("got %s replica sets after connections broke, want 3", got)
	}

	b.roll("default", "web", "v4")
	b.stop()
	b.start()
	b.rolledOut("default", "web", "v4", 5)
	if got := sets("default"); got != "4" {
		t.Errorf("got %s replica sets after the server restarted, want 4", got)
	}

	end = b.cut()
	defer end()
	b.deploy("default", "left", 2)
	orphan := metav1.DeletePropagationOrphan
	b.must(b.deployments().Delete(b.ctx, "default", "left", metav1.DeleteOptions{PropagationPolicy: &orphan}))
	b.eventually("the orphans are let go", func() (string, bool) {
		list, err := client.For(admin(), apps.ReplicaSets).List(b.ctx, "default", metav1.ListOptions{LabelSelector: "app=left"})
		_, gone := b.deployments().Get(b.ctx, "default", "left")
		return fmt.Sprint(list, err), apierrors.IsNotFound(gone) && len(list) == 1 && len(list[0].OwnerReferences) == 0
	})
	foreground := metav1.DeletePropagationForeground
	b.must(b.deployments().Delete(b.ctx, "default", "web", metav1.DeleteOptions{PropagationPolicy: &foreground}))
	b.eventually("what the deployment owned is collected", func() (string, bool) {
		state := sets("default") + " replica sets, " + pods("default") + " pods"
		_, gone := b.deployments().Get(b.ctx, "default", "web")
		return state, apierrors.IsNotFound(gone) && state == "1 replica sets, 2 pods"
	})

	namespaces := client.For(admin(), core.Namespaces)
	_, err := namespaces.Create(b.ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "doomed"}})
	b.must(err)
	b.deploy("doomed", "web", 3)
	b.must(namespaces.Delete(b.ctx, "", "doomed", metav1.DeleteOptions{}))
	b.eventually("the namespace is gone", func() (string, bool) {
		_, err := namespaces.Get(b.ctx, "", "doomed")
		state := sets("doomed") + " replica sets, " + pods("doomed") + " pods"
		return fmt.Sprint(state, " ", err), apierrors.IsNotFound(err) && state == "0 replica sets, 0 pods"
	})
}
