package scheduler

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	schedulingv1beta1 "k8s.io/api/scheduling/v1beta1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apiserver/pkg/authentication/user"

	"github.com/kemudi/kemudi/internal/api"
	"github.com/kemudi/kemudi/internal/api/core"
	"github.com/kemudi/kemudi/internal/api/scheduling"
	"github.com/kemudi/kemudi/internal/apiserver"
	"github.com/kemudi/kemudi/internal/client"
	"github.com/kemudi/kemudi/internal/resource"
	"github.com/kemudi/kemudi/internal/scheduler/config"
	"github.com/kemudi/kemudi/internal/scheduler/plugins"
	"github.com/kemudi/kemudi/internal/store/mem"
	"github.com/kemudi/kemudi/internal/task"
	"github.com/kemudi/kemudi/internal/trace"
	"github.com/kemudi/kemudi/internal/watchcache"
)

// rig is a scheduler against the real API server on the memory store, in a
// bubble of virtual time.
type rig struct {
	t       *testing.T
	pods    client.Client[*corev1.Pod]
	nodes   client.Client[*corev1.Node]
	groups  client.Client[*schedulingv1beta1.PodGroup]
	reg     *prometheus.Registry
	restart func() // ends the scheduler, whatever it is at, and starts another
	admin   client.Transport
	*transport
}

// transport is the API as the scheduler sees it; tests can look on and break it.
type transport struct {
	client.Transport
	mu struct {
		sync.Mutex
		events  []string
		deeds   []string                      // what was done, as REASON NAME ACTION and whom for
		binding func(r *client.Request) error // called before each binding
		all     func(r *client.Request) error // called before each request
		calls   []string                      // writes, as VERB SUB NAME
	}
}

func (x *transport) Do(ctx context.Context, r *client.Request) (runtime.Object, error) {
	x.mu.Lock()
	x.mu.calls = append(x.mu.calls, strings.TrimSpace(r.Verb+" "+r.Sub)+" "+r.Name)
	hook, all := x.mu.binding, x.mu.all
	x.mu.Unlock()
	if all != nil {
		if err := all(r); err != nil {
			return nil, err
		}
	}
	if r.Sub == "binding" && hook != nil {
		if err := hook(r); err != nil {
			return nil, err
		}
	}
	return x.Transport.Do(ctx, r)
}

func (x *transport) Event(obj resource.Object, kind, reason, message string) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.mu.events = append(x.mu.events, fmt.Sprintf("%s %s %s: %s", kind, reason, obj.GetName(), message))
	if deed, ok := obj.(client.Deed); ok {
		words := []string{reason, obj.GetName(), deed.Action}
		if deed.Related != nil {
			words = append(words, deed.Related.GetName())
		}
		x.mu.deeds = append(x.mu.deeds, strings.Join(words, " "))
	}
}

// reports takes the events of a reporter, which are marked unless it is the default one.
func (x *transport) reports(reporter string) client.EventSink {
	if reporter == config.DefaultName {
		return x
	}
	return reporting{x, reporter}
}

// reporting is the events of one reporter.
type reporting struct {
	*transport
	reporter string
}

func (x reporting) Event(obj resource.Object, kind, reason, message string) {
	x.transport.Event(obj, x.reporter+": "+kind, reason, message)
}

func (x *transport) onBinding(f func(r *client.Request) error) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.mu.binding = f
}

// take returns the events since the last call.
func (x *transport) take() []string {
	x.mu.Lock()
	defer x.mu.Unlock()
	events := x.mu.events
	x.mu.events = nil
	return events
}

// called returns the writes since the last call.
func (x *transport) called() []string {
	x.mu.Lock()
	defer x.mu.Unlock()
	calls := x.mu.calls
	x.mu.calls = nil
	return calls
}

// inCluster runs a test with a scheduler.
func inCluster(t *testing.T, test func(r *rig)) { inClusterWith(t, nil, test) }

// inClusterWith runs a test with a scheduler that has further plugins.
func inClusterWith(t *testing.T, more []plugins.Plugin, test func(r *rig)) {
	inClusterOf(t, config.Default(), more, test)
}

// inClusterOf runs a test with a scheduler that is configured.
func inClusterOf(t *testing.T, c *config.Config, more []plugins.Plugin, test func(r *rig)) {
	inClusterBy(t, Options{Config: c}, more, test)
}

// inClusterBy runs a test with a scheduler that has these options besides its own.
func inClusterBy(t *testing.T, o Options, more []plugins.Plugin, test func(r *rig)) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		var g *task.Group
		stop := func() {
			g.Cancel(context.Canceled)
			if err := g.Wait(); err != nil {
				t.Error(err)
			}
		}
		o.Transport, o.Events, o.Registry = r.transport, r.reports, r.reg
		s := New(o)
		s.more = more
		start := func() {
			g = task.NewGroup(t.Context())
			g.Go("scheduler", s.Run)
		}
		start()
		defer func() { stop() }()
		r.restart = func() {
			stop()
			start()
		}
		synctest.Wait()
		test(r)
	})
}

func newRig(t *testing.T) *rig {
	st := mem.New(mem.Options{})
	set, err := watchcache.New(watchcache.Options{Store: st, Defs: api.All()})
	if err != nil {
		t.Fatal(err)
	}
	server, err := apiserver.New(apiserver.Options{Store: st, Defs: api.All(), Caches: set, RuntimeConfig: map[string]bool{"scheduling.k8s.io/v1beta1": true}})
	if err != nil {
		t.Fatal(err)
	}
	g := task.NewGroup(t.Context())
	g.Go("caches", set.Run)
	g.Go("server", server.Run)
	t.Cleanup(func() {
		g.Cancel(context.Canceled)
		if err := g.Wait(); err != nil {
			t.Error(err)
		}
	})
	admin := server.As(&user.DefaultInfo{Name: "admin", Groups: []string{user.SystemPrivilegedGroup}}, "test")
	r := &rig{
		t: t, groups: client.For(admin, scheduling.PodGroups), pods: client.For(admin, core.Pods), nodes: client.For(admin, core.Nodes), reg: prometheus.NewRegistry(), admin: admin,
		transport: &transport{Transport: server.As(&user.DefaultInfo{Name: user.KubeScheduler}, "kube-scheduler")},
	}
	synctest.Wait()
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "default"}}
	if _, err := client.For(admin, core.Namespaces).Create(t.Context(), ns); err != nil {
		t.Fatal(err)
	}
	return r
}

// node makes a node (compact notation) and lets everything settle.
func (r *rig) node(line string) {
	r.t.Helper()
	n := parseNode(split(line))
	n.UID = ""
	status := n.Status
	made, err := r.nodes.Create(r.t.Context(), n)
	if err != nil {
		r.t.Fatal(err)
	}
	made = made.DeepCopy()
	made.Status = status
	if _, err := r.nodes.UpdateStatus(r.t.Context(), made); err != nil {
		r.t.Fatal(err)
	}
	synctest.Wait()
}

// pod makes a pod (compact notation) and lets everything settle.
func (r *rig) pod(line string) *corev1.Pod {
	r.t.Helper()
	made := r.create(line)
	synctest.Wait()
	return made
}

func (r *rig) create(line string) *corev1.Pod {
	r.t.Helper()
	p := parsePod(split(line))
	p.UID, p.Spec.Containers[0].Image = "", "i"
	for i := range p.Spec.InitContainers {
		p.Spec.InitContainers[i].Image = "i"
	}
	for name, q := range p.Spec.Containers[0].Resources.Requests {
		if strings.Contains(string(name), "/") { // cannot be overcommitted
			p.Spec.Containers[0].Resources.Limits = corev1.ResourceList{name: q}
		}
	}
	made, err := r.pods.Create(r.t.Context(), p)
	if err != nil {
		r.t.Fatal(err)
	}
	return made
}

func (r *rig) get(name string) *corev1.Pod {
	r.t.Helper()
	p, err := r.pods.Get(r.t.Context(), "default", name)
	if err != nil {
		r.t.Fatal(err)
	}
	return p
}

func (r *rig) patch(name, sub, data string) {
	r.t.Helper()
	if _, err := r.pods.Patch(r.t.Context(), "default", name, sub, client.Patch{Type: types.StrategicMergePatchType, Data: []byte(data)}); err != nil {
		r.t.Fatal(err)
	}
	synctest.Wait()
}

func (r *rig) patchNode(name, sub, data string) {
	r.t.Helper()
	if _, err := r.nodes.Patch(r.t.Context(), "", name, sub, client.Patch{Type: types.StrategicMergePatchType, Data: []byte(data)}); err != nil {
		r.t.Fatal(err)
	}
	synctest.Wait()
}

func (r *rig) delete(name string) {
	r.t.Helper()
	now := int64(0)
	if err := r.pods.Delete(r.t.Context(), "default", name, metav1.DeleteOptions{GracePeriodSeconds: &now}); err != nil {
		r.t.Fatal(err)
	}
	synctest.Wait()
}

// where checks on which node a pod is; "" is none.
func (r *rig) where(name, node string) {
	r.t.Helper()
	if got := r.get(name).Spec.NodeName; got != node {
		r.t.Errorf("pod %s is on node %q, want %q", name, got, node)
	}
}

// said checks the pod's condition and the events since the last check.
func (r *rig) said(name string, want corev1.PodCondition, events ...string) {
	r.t.Helper()
	c := core.PodCondition(&r.get(name).Status, corev1.PodScheduled)
	if c == nil {
		c = &corev1.PodCondition{}
	}
	if c.Status != want.Status || c.Reason != want.Reason || c.Message != want.Message {
		r.t.Errorf("condition of %s: got %s %s %q, want %s %s %q", name, c.Status, c.Reason, c.Message, want.Status, want.Reason, want.Message)
	}
	if got := r.take(); !slices.Equal(got, events) {
		r.t.Errorf("events: got %q, want %q", got, events)
	}
}

// attempts is the number of attempts with a result so far.
func (r *rig) attempts(result string) int {
	r.t.Helper()
	families, err := r.reg.Gather()
	if err != nil {
		r.t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() != "scheduler_schedule_attempts_total" {
			continue
		}
		for _, m := range f.GetMetric() {
			for _, l := range m.GetLabel() {
				if l.GetName() == "result" && l.GetValue() == result {
					return int(m.GetCounter().GetValue())
				}
			}
		}
	}
	return 0
}

var bound = corev1.PodCondition{Status: corev1.ConditionTrue}

func refused(message string) corev1.PodCondition {
	return corev1.PodCondition{Status: corev1.ConditionFalse, Reason: corev1.PodReasonUnschedulable, Message: message}
}

func TestBindsAPodToANodeThatFits(t *testing.T) {
	trace.Proves(t, "COMP-010")
	inCluster(t, func(r *rig) {
		r.node("n1 cpu=1")
		r.node("n2 cpu=4")
		r.pod("p cpu=2")
		r.where("p", "n2")
		r.said("p", bound, "Normal Scheduled p: Successfully assigned default/p to n2")
	})
}

func TestSaysWhyAPodIsPendingAndBindsItWhenItCanBe(t *testing.T) {
	trace.Proves(t, "C-345", "PLC-019")
	inCluster(t, func(r *rig) {
		r.pod("p cpu=2")
		r.said("p", refused("no nodes available to schedule pods"),
			"Warning FailedScheduling p: no nodes available to schedule pods")
		r.node("n1 cpu=2")
		r.where("p", "n1")
		r.said("p", bound, "Normal Scheduled p: Successfully assigned default/p to n1")

		r.pod("q cpu=1")
		why := "0/1 nodes are available: 1 Insufficient cpu. preemption: 0/1 nodes are available: 1 No preemption victims found for incoming pod."
		r.said("q", refused(why), "Warning FailedScheduling q: "+why)
		r.delete("p")
		r.where("q", "n1")
		r.said("q", bound, "Normal Scheduled q: Successfully assigned default/q to n1")
	})
}

func TestFollowsNodeSelectorsTaintsAndCordons(t *testing.T) {
	trace.Proves(t, "C-346", "LBL-055", "NODE-025", "NODE-081")
	inCluster(t, func(r *rig) {
		r.node("n1")
		r.node("n2 lab=x taint=k=v:NoSchedule")
		r.pod("p select=lab=x")
		r.where("p", "")
		r.pod("q select=lab=x tol=k")
		r.where("q", "n2")
		// A node is refused for its taints and its mark, not for its conditions.
		r.patchNode("n1", "status", `{"status":{"conditions":[{"type":"Ready","status":"False"}]}}`)
		r.pod("any")
		r.where("any", "n1")
		r.patchNode("n1", "", `{"spec":{"unschedulable":true}}`)
		r.pod("late")
		r.where("late", "")
		r.where("any", "n1")
		r.patchNode("n1", "", `{"metadata":{"labels":{"lab":"x"}},"spec":{"unschedulable":null}}`)
		r.where("late", "n1")
		r.where("p", "n1")
	})
}

func TestHostPortsOfOneAddressConflictWithThoseOfAll(t *testing.T) {
	trace.Proves(t, "C-348")
	inCluster(t, func(r *rig) {
		r.node("n1")
		r.pod("all port=54322")
		r.where("all", "n1")
		r.take()
		r.pod("one port=54322@127.0.0.1")
		r.where("one", "")
		why := "0/1 nodes are available: 1 node(s) didn't have free ports for the requested pod ports. preemption: 0/1 nodes are available: 1 No preemption victims found for incoming pod."
		r.said("one", refused(why), "Warning FailedScheduling one: "+why)
		r.pod("udp port=54322/UDP@127.0.0.1")
		r.where("udp", "n1")
		r.delete("all")
		r.where("one", "n1")
	})
}

func TestTriesAgainOnlyAfterEventsThatHelp(t *testing.T) {
	inCluster(t, func(r *rig) {
		r.node("n1 cpu=4 disk=hdd")
		r.pod("big cpu=3")
		r.pod("small cpu=1m")
		r.pod("waits cpu=2")
		r.pod("choosy select=disk=ssd")
		before := r.attempts("unschedulable")
		if before != 2 {
			r.t.Errorf("%d attempts failed, want 2", before)
		}
		time.Sleep(time.Minute)
		r.delete("small") // not enough
		r.pod("other cpu=1m")
		r.node("n2 cpu=1 taint=k=v:NoSchedule") // neither: too small, and the wrong disk
		if got := r.attempts("unschedulable"); got != before {
			r.t.Errorf("%d attempts failed, want %d: nothing could have helped", got, before)
		}
		r.delete("big")
		r.where("waits", "n1")
		r.patchNode("n1", "", `{"metadata":{"labels":{"disk":"ssd"}}}`)
		r.where("choosy", "n1")
	})
}

func TestTriesLeftoversAgainAfterFiveMinutes(t *testing.T) {
	inCluster(t, func(r *rig) {
		r.node("n1 cpu=1")
		r.pod("p cpu=2")
		r.called()
		time.Sleep(5*time.Minute - time.Second)
		synctest.Wait()
		if got := r.attempts("unschedulable"); got != 1 {
			r.t.Errorf("%d attempts, want 1", got)
		}
		time.Sleep(2 * time.Second)
		synctest.Wait()
		if got := r.attempts("unschedulable"); got != 2 {
			r.t.Errorf("%d attempts, want 2", got)
		}
		if calls := r.called(); len(calls) > 0 {
			r.t.Errorf("wrote %q, though nothing new was to be said", calls)
		}
	})
}

func TestLeavesGatedPodsAlone(t *testing.T) {
	inCluster(t, func(r *rig) {
		r.node("n1")
		r.pod("p gate=example.com/wait")
		r.where("p", "")
		r.said("p", corev1.PodCondition{Status: corev1.ConditionFalse, Reason: corev1.PodReasonSchedulingGated, Message: "Scheduling is blocked due to non-empty scheduling gates"})
		r.patch("p", "", `{"spec":{"schedulingGates":[{"$patch":"delete","name":"example.com/wait"}]}}`)
		r.where("p", "n1")
	})
}

func TestLeavesPodsOfOtherSchedulersAlone(t *testing.T) {
	inCluster(t, func(r *rig) {
		r.node("n1 cpu=2")
		p := parsePod(split("p cpu=1"))
		p.UID, p.Spec.SchedulerName, p.Spec.Containers[0].Image = "", "mine", "i"
		if _, err := r.pods.Create(r.t.Context(), p); err != nil {
			r.t.Fatal(err)
		}
		r.pod("fixed cpu=2 on=n1")
		r.where("p", "")
		r.pod("q cpu=1")
		r.where("q", "") // the pod that named its node counts
	})
}

func TestANewTolerationHasAPodTriedAgain(t *testing.T) {
	inCluster(t, func(r *rig) {
		r.node("n1")
		r.patchNode("n1", "", `{"spec":{"taints":[{"key":"k","effect":"NoSchedule"}]}}`)
		r.pod("p")
		r.where("p", "")
		r.patch("p", "", `{"spec":{"tolerations":[{"key":"k","operator":"Exists"}]}}`)
		r.where("p", "n1")
	})
}

func TestTriesAgainWithBackoffWhenBindingFails(t *testing.T) {
	inCluster(t, func(r *rig) {
		r.node("n1 cpu=1")
		var at []time.Duration
		began := time.Now()
		r.onBinding(func(*client.Request) error {
			at = append(at, time.Since(began).Round(time.Second))
			if len(at) < 6 {
				return apierrors.NewForbidden(corev1.Resource("pods"), "p", errors.New("boom"))
			}
			return nil
		})
		r.pod("p cpu=1")
		why := `binding rejected: pods "p" is forbidden: boom`
		r.said("p", corev1.PodCondition{Status: corev1.ConditionFalse, Reason: corev1.PodReasonSchedulerError, Message: why}, "Warning FailedScheduling p: "+why)
		time.Sleep(time.Minute)
		synctest.Wait()
		r.where("p", "n1")
		want := []time.Duration{0, 1 * time.Second, 3 * time.Second, 7 * time.Second, 15 * time.Second, 25 * time.Second}
		if !slices.Equal(at, want) {
			r.t.Errorf("tried at %v, want %v", at, want)
		}
		if got := r.attempts("error"); got != 5 {
			r.t.Errorf("%d attempts with an error, want 5", got)
		}
	})
}

func TestBindingIsSentAgainAtOnceWhenTheAPIFailsForAMoment(t *testing.T) {
	inCluster(t, func(r *rig) {
		r.node("n1 cpu=1")
		var at []time.Duration
		began := time.Now()
		r.onBinding(func(*client.Request) error {
			switch at = append(at, time.Since(began)); len(at) {
			case 1:
				return apierrors.NewInternalError(errors.New("boom"))
			case 2:
				return apierrors.NewServiceUnavailable("boom")
			case 3:
				return fmt.Errorf("dial: %w", syscall.ECONNREFUSED)
			}
			return nil
		})
		r.pod("p cpu=1")
		time.Sleep(time.Second)
		synctest.Wait()
		r.where("p", "n1")
		if want := []time.Duration{0, 10 * time.Millisecond, 60 * time.Millisecond, 310 * time.Millisecond}; !slices.Equal(at, want) {
			r.t.Errorf("tried at %v, want %v", at, want)
		}
		if got := r.take(); slices.ContainsFunc(got, func(e string) bool { return strings.HasPrefix(e, "Warning") }) {
			r.t.Errorf("events: got %q", got)
		}
	})
}

// A pod that goes with its namespace is no concern of anybody's.
func TestSaysNothingWhenTheNamespaceOfAPodGoes(t *testing.T) {
	inCluster(t, func(r *rig) {
		r.node("n1 cpu=1")
		tried := 0
		r.onBinding(func(*client.Request) error {
			tried++
			err := apierrors.NewForbidden(corev1.Resource("pods"), "p", errors.New("it is being terminated"))
			err.ErrStatus.Details.Causes = []metav1.StatusCause{{Type: corev1.NamespaceTerminatingCause}}
			return err
		})
		r.pod("p cpu=1")
		time.Sleep(time.Minute)
		synctest.Wait()
		r.said("p", corev1.PodCondition{})
		if tried < 2 {
			r.t.Errorf("tried %d times, want more", tried)
		}
	})
}

// A failed binding gives the place back (B3), and a pod that waits for it is told.
func TestAFailedBindingGivesThePlaceBack(t *testing.T) {
	inCluster(t, func(r *rig) {
		r.node("n1 cpu=1")
		r.onBinding(func(q *client.Request) error {
			if q.Name == "p" {
				time.Sleep(time.Second)
				return apierrors.NewForbidden(corev1.Resource("pods"), "p", errors.New("boom"))
			}
			return nil
		})
		r.pod("p cpu=1")
		r.pod("q cpu=1")
		r.where("q", "") // the place is p's while its binding is under way (B1)
		time.Sleep(time.Second)
		synctest.Wait()
		r.where("q", "n1")
	})
}

func TestAPodDeletedWhileItIsBoundTakesNoPlace(t *testing.T) {
	inCluster(t, func(r *rig) {
		r.node("n1 cpu=1")
		r.onBinding(func(q *client.Request) error {
			if q.Name == "p" {
				time.Sleep(time.Second)
			}
			return nil
		})
		r.pod("p cpu=1")
		r.delete("p")
		r.pod("q cpu=1")
		r.where("q", "n1")
		time.Sleep(time.Minute)
		synctest.Wait()
		for _, e := range r.take() {
			if strings.HasPrefix(e, "Warning") {
				r.t.Errorf("unexpected event %q", e)
			}
		}
	})
}

func TestBindsManyPodsWithoutOvercommitting(t *testing.T) {
	inCluster(t, func(r *rig) {
		for i := range 20 {
			r.node(fmt.Sprintf("n%d cpu=10", i))
		}
		r.onBinding(func(*client.Request) error { time.Sleep(10 * time.Millisecond); return nil })
		for i := range 250 {
			r.create(fmt.Sprintf("p%d cpu=1", i))
		}
		time.Sleep(time.Second)
		synctest.Wait()
		all, err := r.pods.List(r.t.Context(), "", metav1.ListOptions{})
		if err != nil {
			r.t.Fatal(err)
		}
		on := map[string]int{}
		for _, p := range all {
			on[p.Spec.NodeName]++
		}
		if on[""] != 50 || len(on) != 21 {
			r.t.Errorf("%d pods pending on %d nodes, want 50 on 20", on[""], len(on)-1)
		}
		for n, pods := range on {
			if n != "" && pods != 10 {
				r.t.Errorf("node %s has %d pods, want 10", n, pods)
			}
		}
	})
}

func TestPreemptsTheLeastImportantPod(t *testing.T) {
	trace.Proves(t, "C-351", "C-353")
	inCluster(t, func(r *rig) {
		r.node("n1 res:example.com/foo=5")
		r.node("n2 res:example.com/foo=5")
		r.pod("low res:example.com/foo=3 prio=1 select=kubernetes.io/hostname=n1")
		r.pod("medium res:example.com/foo=3 prio=100 select=kubernetes.io/hostname=n2")
		r.where("low", "n1")
		r.where("medium", "n2")
		r.patch("low", "", `{"metadata":{"finalizers":["example.com/stay"]}}`)
		r.take()

		high := r.pod("high res:example.com/foo=3 prio=1000")
		r.where("high", "")
		low := r.get("low")
		c := core.PodCondition(&low.Status, corev1.DisruptionTarget)
		if low.DeletionTimestamp == nil || c == nil || c.Status != corev1.ConditionTrue || c.Reason != "PreemptionByScheduler" ||
			c.Message != "default-scheduler: preempting to accommodate a higher priority pod" {
			r.t.Errorf("victim: deletionTimestamp %v, condition %+v", low.DeletionTimestamp, c)
		}
		if got := r.get("high").Status.NominatedNodeName; got != "n1" {
			r.t.Errorf("nominated node %q, want n1", got)
		}
		if r.get("medium").DeletionTimestamp != nil {
			r.t.Error("the more important pod was preempted too")
		}
		why := "0/2 nodes are available: 2 Insufficient example.com/foo. preemption: found a potential placement for pod on node n1, preempting 1 victims"
		r.said("high", refused(why), "Warning FailedScheduling high: "+why,
			fmt.Sprintf("Normal Preempted low: Preempted by pod %s on node n1", high.UID))
		want := []string{"Scheduled low Binding", "Scheduled medium Binding", "FailedScheduling high Scheduling", "Preempted low Preempting high"}
		if got := r.mu.deeds; !slices.Equal(got, want) {
			r.t.Errorf("events say of what is done %q, want %q", got, want)
		}

		// Another pod does not take the place in the meantime, and no more pods are preempted.
		r.pod("late res:example.com/foo=2 prio=500")
		r.where("late", "n2")
		time.Sleep(6 * time.Minute)
		synctest.Wait()
		if r.get("medium").DeletionTimestamp != nil {
			r.t.Error("a second pod was preempted")
		}
		r.patch("low", "", `{"metadata":{"finalizers":null}}`)
		r.delete("low")
		r.where("high", "n1")
	})
}

func TestEvictsSoManyAtOnce(t *testing.T) {
	for _, parallelism := range []int{2, 16} {
		c := config.Default()
		c.Parallelism = parallelism
		inClusterOf(t, c, nil, func(r *rig) {
			const victims = 5
			r.node("n cpu=5")
			for i := range victims {
				r.pod(fmt.Sprintf("low%d cpu=1", i))
			}
			now, most := 0, 0
			r.mu.Lock()
			r.mu.all = func(q *client.Request) error {
				if !strings.HasPrefix(q.Name, "low") || q.Sub != "status" && q.Verb != "delete" {
					return nil
				}
				r.mu.Lock()
				now++
				most = max(most, now)
				r.mu.Unlock()
				time.Sleep(time.Second)
				r.mu.Lock()
				now--
				r.mu.Unlock()
				return nil
			}
			r.mu.Unlock()
			r.pod("high cpu=5 prio=9")
			time.Sleep(time.Minute)
			synctest.Wait()
			for i := range victims {
				if r.get(fmt.Sprintf("low%d", i)).DeletionTimestamp == nil {
					r.t.Errorf("low%d has not been evicted", i)
				}
			}
			if want := min(parallelism, victims); most != want {
				r.t.Errorf("parallelism %d: %d evictions at once, want %d", parallelism, most, want)
			}
			shows(t, r.shown(),
				`scheduler_preemption_evaluation_duration_seconds_count{preemptor="pod",result="Success"}`,
				`scheduler_preemption_execution_duration_seconds_sum{preemptor="pod",result="success"}`,
				`scheduler_preemption_goroutines_execution_total{result="success"}`,
			)
		})
	}
}

func TestEndsAndBeginsAgainWithWhatIsThere(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		s := New(Options{Transport: r.transport, Events: r.reports})
		for round := range 2 {
			ctx, cancel := context.WithCancel(t.Context())
			var wg sync.WaitGroup
			wg.Go(func() {
				if err := s.Run(ctx); err != nil {
					t.Error(err)
				}
			})
			synctest.Wait()
			if round == 0 {
				r.node("n1 cpu=1")
				r.pod("p cpu=1")
				r.where("p", "n1")
			} else {
				r.pod("q cpu=1")
				r.where("q", "")
			}
			cancel()
			wg.Wait()
		}
	})
}

// The victim's controller makes a successor at once, and the victim takes its time
// to go: the place is not the successor's, and nobody else has to go for it.
func TestPreemptsNoMoreThanNeededWhileSuccessorsWait(t *testing.T) {
	inCluster(t, func(r *rig) {
		r.node("n1 cpu=2")
		r.node("n2 cpu=2")
		for i, n := range []string{"n1", "n1", "n2", "n2"} {
			r.pod(fmt.Sprintf("low%d cpu=1 prio=1 select=kubernetes.io/hostname=%s", i, n))
			r.patch(fmt.Sprintf("low%d", i), "", `{"metadata":{"finalizers":["example.com/stay"]}}`)
		}
		r.pod("high cpu=1 prio=10")
		leaving := func() (names []string) {
			for i := range 4 {
				if p, err := r.pods.Get(r.t.Context(), "default", fmt.Sprintf("low%d", i)); err == nil && p.DeletionTimestamp != nil {
					names = append(names, p.Name)
				}
			}
			return names
		}
		first := leaving()
		if len(first) != 1 {
			r.t.Fatalf("%q are to go, want one", first)
		}
		r.pod("next0 cpu=1 prio=1")
		r.pod("second cpu=1 prio=10") // wants a place of its own
		r.pod("next1 cpu=1 prio=1")
		for range 40 { // attempts after attempts, with nothing changed that matters
			time.Sleep(10 * time.Second)
			r.node(fmt.Sprintf("tiny%d cpu=10m", time.Now().Unix()))
		}
		both := leaving()
		if len(both) != 2 {
			r.t.Fatalf("%q are to go, want two", both)
		}
		for _, name := range both {
			r.patch(name, "", `{"metadata":{"finalizers":null}}`)
			r.delete(name)
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		if r.get("high").Spec.NodeName == "" || r.get("second").Spec.NodeName == "" {
			r.t.Error("the important pods have no place")
		}
		r.where("next0", "")
		r.where("next1", "")
		if now := leaving(); len(now) > 0 {
			r.t.Errorf("%q are to go too, want nobody", now)
		}
	})
}

// A pod whose nominated node goes away has another make room.
func TestAPodWhoseNominatedNodeGoesPreemptsElsewhere(t *testing.T) {
	inCluster(t, func(r *rig) {
		r.node("n1 cpu=1")
		r.node("n2 cpu=1")
		r.pod("a cpu=1 prio=1 select=kubernetes.io/hostname=n1")
		r.pod("b cpu=1 prio=2 select=kubernetes.io/hostname=n2")
		r.patch("a", "", `{"metadata":{"finalizers":["example.com/stay"]}}`)
		r.pod("p cpu=1 prio=10")
		if got := r.get("p").Status.NominatedNodeName; got != "n1" {
			r.t.Fatalf("nominated %q, want n1", got)
		}
		if err := r.nodes.Delete(r.t.Context(), "", "n1", metav1.DeleteOptions{}); err != nil {
			r.t.Fatal(err)
		}
		time.Sleep(6 * time.Minute) // the node took the promise with it
		synctest.Wait()
		if got := r.get("p").Status.NominatedNodeName; got != "n2" || r.get("b").DeletionTimestamp == nil {
			r.t.Errorf("nominated %q, b goes at %v; want n2, and that b goes", got, r.get("b").DeletionTimestamp)
		}
		r.delete("b")
		r.where("p", "n2")
	})
}
