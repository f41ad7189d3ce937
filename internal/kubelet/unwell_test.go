package kubelet

import (
	"context"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kemudi/kemudi/internal/kubelet/fakecri"
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
