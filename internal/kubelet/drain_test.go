package kubelet

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/kemudi/kemudi/internal/api/core"
	"github.com/kemudi/kemudi/internal/kubelet/fakecri"
)

// draining is a node whose network says what it is told to when pods are being deleted.
func draining(t *testing.T, drained func(context.Context, *v1.Pod) error) *testNode {
	n := &testNode{t: t, api: newMemAPI(t), cri: fakecri.New(fakecri.Options{}), with: func(o *Options) { o.Network.Drained = drained }}
	n.run()
	return n
}

// TestPodIsToldToEndWhenNothingNewIsSentToIt and serves meanwhile.
func TestPodIsToldToEndWhenNothingNewIsSentToIt(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		over := make(chan error)
		asked := 0
		n := draining(t, func(_ context.Context, pod *v1.Pod) error {
			if asked++; pod.DeletionTimestamp == nil || pod.Status.PodIP == "" {
				t.Errorf("asked of %+v, want a pod that is being deleted, with its addresses", pod)
			}
			return <-over
		})
		defer func() { n.end() }()
		createPod(t, n.api, "web", `{containers: [{name: c, image: x}]}`)
		n.pod("web")
		n.api.TakeEvents()
		deletePod(t, n.api, "web", 30)
		p := n.after(3*time.Second, "web")
		if p == nil || !core.PodReady(p) || n.cri.Calls("StopContainer") > 0 || asked != 1 {
			t.Fatalf("before the nodes have left it out: got %+v, %d containers stopped, asked %d times; want it ready, none and once", p, n.cri.Calls("StopContainer"), asked)
		}
		over <- nil
		if n.pod("web") != nil {
			t.Error("the pod has not gone")
		}
		if got := strings.Join(n.api.TakeEvents(), "\n"); strings.Contains(got, "NotDrained") || !strings.Contains(got, "Killing: Stopping container c") {
			t.Errorf("events: got\n%s", got)
		}
	})
}

// TestPodDoesNotWaitForEver for a node that is silent, and says so. Who deletes it by force
// waits for nothing.
func TestPodDoesNotWaitForEver(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		n := draining(t, func(ctx context.Context, _ *v1.Pod) error {
			<-ctx.Done()
			return errors.New("not confirmed by node n2")
		})
		defer func() { n.end() }()
		for _, tc := range []struct {
			name  string
			grace int64
			after time.Duration
			event bool
		}{{"long", 30, 5 * time.Second, true}, {"short", 4, 2 * time.Second, true}, {"force", 0, 0, false}} {
			createPod(t, n.api, tc.name, `{terminationGracePeriodSeconds: 30, containers: [{name: c, image: x}]}`)
			n.pod(tc.name)
			n.api.TakeEvents()
			before := n.cri.Calls("StopContainer")
			deletePod(t, n.api, tc.name, tc.grace)
			if tc.after > 0 {
				if n.after(tc.after-time.Millisecond, tc.name); n.cri.Calls("StopContainer") != before {
					t.Errorf("%s: told to end before %s", tc.name, tc.after)
				}
			}
			n.after(2*time.Millisecond, tc.name)
			if n.cri.Calls("StopContainer") == before {
				t.Errorf("%s: not told to end after %s", tc.name, tc.after)
			}
			n.after(time.Minute, tc.name)
			got := strings.Join(n.api.TakeEvents(), "\n")
			if want := tc.name + " Warning NotDrained: Stopping, though Services may still send it connections: not confirmed by node n2"; strings.Contains(got, want) != tc.event {
				t.Errorf("%s: events: got\n%s\nwant %q: %t", tc.name, got, want, tc.event)
			}
		}
	})
}

// TestHookRunsWhilePodIsDrained and is told of with the end, once.
func TestHookRunsWhilePodIsDrained(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		n := draining(t, func(ctx context.Context, _ *v1.Pod) error {
			<-ctx.Done()
			return errors.New("not confirmed by node n2")
		})
		defer func() { n.end() }()
		createPod(t, n.api, "web", `{terminationGracePeriodSeconds: 60, containers: [{name: c, image: x, lifecycle: {preStop: {sleep: {seconds: 8}}}}]}`)
		n.pod("web")
		n.api.TakeEvents()
		deletePod(t, n.api, "web", 60)
		n.after(time.Second, "web")
		const told = "Killing: Stopping container c"
		if got := strings.Join(n.api.TakeEvents(), "\n"); strings.Count(got, told) != 1 {
			t.Errorf("events after a second: got\n%s\nwant that it is told with the hook", got)
		}
		if n.after(6900*time.Millisecond, "web"); n.cri.Calls("StopContainer") > 0 {
			t.Error("told to end before the hook has returned")
		}
		if n.after(200*time.Millisecond, "web") != nil {
			t.Error("the pod has not gone: the hook and the nodes are waited for at the same time")
		}
		if got := strings.Join(n.api.TakeEvents(), "\n"); strings.Contains(got, told) {
			t.Errorf("events: got\n%s\nwant that it is told once", got)
		}
	})
}

// TestNewAgentWaitsForWhatIsSentToAPod that was being deleted when the one before it ended.
func TestNewAgentWaitsForWhatIsSentToAPod(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		over := make(chan error)
		n := draining(t, func(ctx context.Context, _ *v1.Pod) error {
			select {
			case err := <-over:
				return err
			case <-ctx.Done():
				return context.Cause(ctx)
			}
		})
		defer func() { n.end() }()
		createPod(t, n.api, "web", `{containers: [{name: c, image: x}]}`)
		n.pod("web")
		deletePod(t, n.api, "web", 30)
		n.after(time.Second, "web")
		n.end()
		n.run()
		if n.after(time.Second, "web"); n.cri.Calls("StopContainer") > 0 {
			t.Error("the new agent has not waited")
		}
		over <- nil
		if n.pod("web") != nil {
			t.Error("the pod has not gone")
		}
	})
}
