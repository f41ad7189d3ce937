package kubelet

import (
	"context"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/utils/ptr"

	"github.com/kemudi/kemudi/internal/api/core"
	"github.com/kemudi/kemudi/internal/kubelet/fakecri"
	"github.com/kemudi/kemudi/internal/kubelet/podstep"
	"github.com/kemudi/kemudi/internal/trace"
)

// unwell is a runtime that may lack something.
type unwell struct {
	*fakecri.Runtime
	lacks *atomic.Pointer[string] // a condition; nil: nothing
}

func (u unwell) Status(ctx context.Context, in *runtimeapi.StatusRequest, opts ...grpc.CallOption) (*runtimeapi.StatusResponse, error) {
	resp, err := u.Runtime.Status(ctx, in, opts...)
	for _, c := range resp.GetStatus().GetConditions() {
		if lacks := u.lacks.Load(); lacks != nil && c.Type == *lacks {
			c.Status, c.Reason, c.Message = false, "Broken", "it has gone"
		}
	}
	return resp, err
}

// stubborn is a runtime that does not stop sandboxes.
type stubborn struct {
	*fakecri.Runtime
	broken *atomic.Bool
}

func (s stubborn) StopPodSandbox(ctx context.Context, in *runtimeapi.StopPodSandboxRequest, opts ...grpc.CallOption) (*runtimeapi.StopPodSandboxResponse, error) {
	if s.broken.Load() {
		return nil, status.Error(codes.Unknown, "device or resource busy")
	}
	return s.Runtime.StopPodSandbox(ctx, in, opts...)
}

// hoarder is a runtime that does not remove sandboxes.
type hoarder struct {
	*fakecri.Runtime
	broken *atomic.Bool
}

func (h hoarder) RemovePodSandbox(ctx context.Context, in *runtimeapi.RemovePodSandboxRequest, opts ...grpc.CallOption) (*runtimeapi.RemovePodSandboxResponse, error) {
	if h.broken.Load() {
		return nil, status.Error(codes.Unknown, "device or resource busy")
	}
	return h.Runtime.RemovePodSandbox(ctx, in, opts...)
}

func TestPeopleAreToldThatWhatIsLeftOfPodsCannotBeRemoved(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		n := &testNode{t: t, api: newMemAPI(t), cri: fakecri.New(fakecri.Options{})}
		broken := new(atomic.Bool)
		n.with = func(o *Options) { o.Runtime = hoarder{n.cri, broken} }
		n.run()
		defer func() { n.end() }()
		createPod(t, n.api, "web", `{containers: [{name: c, image: x}]}`)
		n.pod("web")
		broken.Store(true)
		deletePod(t, n.api, "web", 1)
		if p := n.after(time.Minute, "web"); p != nil {
			t.Errorf("a pod that has ended: got %+v, want that it leaves the API nevertheless", p.Status)
		}
		if events := n.api.TakeEvents(); !slices.ContainsFunc(events, func(e string) bool {
			return strings.HasPrefix(e, "n1 Warning ContainerGCFailed: ") && strings.Contains(e, "device or resource busy")
		}) {
			t.Errorf("events: got %q", events)
		}
		broken.Store(false)
		n.after(10*time.Minute, "web")
		left, err := n.cri.ListPodSandbox(t.Context(), &runtimeapi.ListPodSandboxRequest{})
		if err != nil || len(left.Items) != 0 {
			t.Errorf("when it can: %v (%v) are left", left, err)
		}
	})
}

func TestPeopleAreToldOfPodsThatCannotBeEnded(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		n := &testNode{t: t, api: newMemAPI(t), cri: fakecri.New(fakecri.Options{})}
		broken := new(atomic.Bool)
		n.with = func(o *Options) { o.Runtime = stubborn{n.cri, broken} }
		n.run()
		defer func() { n.end() }()
		createPod(t, n.api, "web", `{containers: [{name: c, image: x}]}`)
		n.pod("web")
		broken.Store(true)
		deletePod(t, n.api, "web", 1)
		n.after(time.Minute, "web")
		if events := strings.Join(n.api.TakeEvents(), "\n"); !strings.Contains(events, "web Warning FailedKillPod: error killing pod: ") || !strings.Contains(events, "device or resource busy") {
			t.Errorf("events: got\n%s", events)
		}
		broken.Store(false)
		if p := n.after(2*time.Minute, "web"); p != nil {
			t.Errorf("when it can: got %+v", p.Status)
		}
	})
}

func TestNodeIsNotReadyWhileItsRuntimeIsNot(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		n := &testNode{t: t, api: newMemAPI(t), cri: fakecri.New(fakecri.Options{})}
		lacks := new(atomic.Pointer[string])
		n.with = func(o *Options) { o.Runtime = unwell{n.cri, lacks} }
		n.run()
		defer func() { n.end() }()
		for lack, want := range map[string]string{
			runtimeapi.RuntimeReady: "container runtime not ready: RuntimeReady=false reason:Broken message:it has gone",
			runtimeapi.NetworkReady: "container runtime network not ready: NetworkReady=false reason:Broken message:it has gone",
		} {
			lacks.Store(&lack)
			time.Sleep(time.Minute)
			synctest.Wait()
			trace.Proves(t, "NODE-010/false")
			if c := n.condition(v1.NodeReady); c.Status != v1.ConditionFalse || c.Reason != "KubeletNotReady" || c.Message != want {
				t.Errorf("without %s: got %+v, want that the node is not ready: %s", lack, c, want)
			}
			lacks.Store(nil)
			time.Sleep(time.Minute)
			synctest.Wait()
			trace.Proves(t, "NODE-010/true")
			if c := n.condition(v1.NodeReady); c.Status != v1.ConditionTrue {
				t.Errorf("with %s again: got %+v, want that the node is ready", lack, c)
			}
		}
	})
}

func TestEndOfAContainerIsHeardAndAnswered(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		n := newNode(t, fakecri.Options{})
		defer func() { n.end() }()
		createPod(t, n.api, "web", `{containers: [{name: c, image: x}]}`)
		first := n.pod("web").Status.ContainerStatuses[0].ContainerID
		calls := n.cri.Calls("ListContainers")
		n.cri.Exit("default/web", "c", 3, "Error")
		p := n.after(10*time.Millisecond, "web") // the agent does not look so often by itself
		trace.Proves(t, "CON-005")
		if cs := p.Status.ContainerStatuses[0]; cs.RestartCount != 1 || cs.ContainerID == first || cs.State.Running == nil || cs.LastTerminationState.Terminated.ExitCode != 3 {
			t.Errorf("10 ms after its container has ended: got %+v, want another one that runs", cs)
		}
		if more := n.cri.Calls("ListContainers") - calls; more > 0 {
			t.Errorf("the agent has listed containers %d times, want that it heard of the end", more)
		}
		if events := strings.Join(n.api.TakeEvents(), "\n"); strings.Count(events, "Normal Started: Container started") != 2 {
			t.Errorf("events: got\n%s\nwant two starts", events)
		}
	})
}

// Proves: KEP-2000
func TestNodeThatGoesDownTakesNoPods(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		n := newNode(t, fakecri.Options{})
		defer func() { n.end() }()
		createPod(t, n.api, "web", `{containers: [{name: c, image: x}]}`)
		n.pod("web")
		n.agent.node.SetGoingDown(true)
		if c := n.condition(v1.NodeReady); c.Status != v1.ConditionFalse || c.Reason != "KubeletNotReady" || c.Message != "node is shutting down" {
			t.Errorf("the node: got %+v", c)
		}
		createPod(t, n.api, "late", `{containers: [{name: c, image: x}]}`)
		if p := n.pod("late"); p.Status.Phase != v1.PodFailed || p.Status.Reason != "NodeShutdown" || p.Status.Message != "Pod was rejected: Pod was rejected as the node is shutting down." {
			t.Errorf("late: got %+v", p.Status)
		}
		web := n.pod("web")
		n.agent.pods.Evict(web.UID, podstep.Eviction{Reason: "Terminated", Message: "Pod was terminated in response to imminent node shutdown.", Grace: ptr.To(int64(5))})
		p := n.after(10*time.Second, "web")
		c := core.PodCondition(&p.Status, v1.DisruptionTarget)
		if p.Status.Phase != v1.PodFailed || p.Status.Reason != "Terminated" || p.Status.Message != "Pod was terminated in response to imminent node shutdown." ||
			c == nil || c.Reason != "TerminationByKubelet" || c.Message != p.Status.Message {
			t.Errorf("web: got %+v", p.Status)
		}
		if events := strings.Join(n.api.TakeEvents(), "\n"); strings.Contains(events, "web Warning Evicted") {
			t.Errorf("events: got %s, want none of an eviction", events)
		}
		n.agent.node.SetGoingDown(false)
		if c := n.condition(v1.NodeReady); c.Status != v1.ConditionTrue {
			t.Errorf("the node after it was called off: got %+v", c)
		}
	})
}

func TestPodThatTheClusterNeedsTakesThePlaceOfAnother(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		n := newNode(t, fakecri.Options{}) // which has 4 CPUs
		defer func() { n.end() }()
		createPod(t, n.api, "big", `{terminationGracePeriodSeconds: 5, containers: [{name: c, image: x, resources: {requests: {cpu: 3}}}]}`)
		createPod(t, n.api, "small", `{containers: [{name: c, image: x, resources: {requests: {cpu: 100m}}}]}`)
		n.pod("small")
		createPod(t, n.api, "plain", `{containers: [{name: c, image: x, resources: {requests: {cpu: 2}}}]}`)
		if p := n.pod("plain"); p.Status.Reason != "OutOfcpu" {
			t.Errorf("plain: got %+v, want that it is rejected", p.Status)
		}
		createPod(t, n.api, "vital", `{priority: 2000001000, containers: [{name: c, image: x, resources: {requests: {cpu: 2}}}]}`)
		if p := n.after(10*time.Second, "vital"); p.Status.Phase != v1.PodRunning {
			t.Errorf("vital: got %+v", p.Status)
		}
		big := n.pod("big")
		c := core.PodCondition(&big.Status, v1.DisruptionTarget)
		if s := big.Status; s.Phase != v1.PodFailed || s.Reason != "Preempting" || s.Message != "Preempted in order to admit critical pod" ||
			c == nil || c.Reason != "TerminationByKubelet" || c.Message != "Pod was preempted by Kubelet to accommodate a critical pod." {
			t.Errorf("big: got %+v", s)
		}
		if p := n.pod("small"); p.Status.Phase != v1.PodRunning {
			t.Errorf("small: got %+v", p.Status)
		}
		n.tells("/metrics", `kubelet_preemptions\{preemption_signal="cpu"\} 1`)
		if events := strings.Join(n.api.TakeEvents(), "\n"); !strings.Contains(events, "big Warning Preempting: Preempted in order to admit critical pod") {
			t.Errorf("events: got %s", events)
		}
	})
}
