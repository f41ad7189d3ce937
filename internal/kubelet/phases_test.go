package kubelet

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kemudi/kemudi/internal/api/core"
	"github.com/kemudi/kemudi/internal/api/node"
	"github.com/kemudi/kemudi/internal/client"
	"github.com/kemudi/kemudi/internal/kubelet/fakecri"
	"github.com/kemudi/kemudi/internal/trace"
)

// slow is a runtime in which everything takes a second.
func slow() fakecri.Options {
	wait := func(ctx context.Context) error {
		select {
		case <-time.After(time.Second):
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return fakecri.Options{
		Pull:       func(ctx context.Context, _ string) error { return wait(ctx) },
		RunSandbox: func(*runtimeapi.PodSandboxConfig) error { time.Sleep(time.Second); return nil },
		Exec:       func(*runtimeapi.ContainerConfig, []string) (string, int32) { time.Sleep(time.Second); return "", 0 },
		Program: func(c *runtimeapi.ContainerConfig) fakecri.Program {
			if c.Metadata.Name == "init" {
				return fakecri.Program{Ends: true, After: time.Second}
			}
			return fakecri.Program{TermAfter: 2 * time.Second}
		},
	}
}

const slowPod = `{initContainers: [{name: init, image: i}], containers: [{name: c, image: x,
	lifecycle: {postStart: {exec: {command: [x]}}, preStop: {exec: {command: [x]}}}, readinessProbe: {exec: {command: [x]}, periodSeconds: 1, timeoutSeconds: 5}}]}`

// An agent that ends in the middle of anything leaves work that the next one
// finishes: nothing twice, nothing left.
func TestAgentThatEndsInAnyPhaseOfAPodIsTakenOver(t *testing.T) {
	trace.Proves(t, "POD-031", "HOOK-021", "HOOK-024", "PODO-016")
	for at := 100 * time.Millisecond; at < 8*time.Second; at += 300 * time.Millisecond {
		t.Run(fmt.Sprintf("coming up, %s", at), func(t *testing.T) {
			inBubble(t, func(t *testing.T) {
				n := newNode(t, slow())
				defer func() { n.end() }()
				createPod(t, n.api, "web", slowPod)
				time.Sleep(at)
				n.end()
				n.run()
				p := n.after(30*time.Second, "web")
				if !core.PodReady(p) || p.Status.ContainerStatuses[0].RestartCount > 0 {
					t.Errorf("got %+v, want ready without restarts", p.Status)
				}
				if s, c := n.sandboxes(), n.containers(); s != 1 || c != 1 {
					t.Errorf("got %d sandboxes and %d running containers, want one of each", s, c)
				}
			})
		})
	}
	for at := 100 * time.Millisecond; at < 4*time.Second; at += 300 * time.Millisecond {
		t.Run(fmt.Sprintf("going down, %s", at), func(t *testing.T) {
			inBubble(t, func(t *testing.T) {
				n := newNode(t, slow())
				defer func() { n.end() }()
				createPod(t, n.api, "web", slowPod)
				n.after(30*time.Second, "web")
				deletePod(t, n.api, "web", 20)
				time.Sleep(at)
				n.end()
				n.run()
				if p := n.after(30*time.Second, "web"); p != nil {
					t.Errorf("left: %+v", p.Status)
				}
				if s, c := n.sandboxes(), n.containers(); s != 0 || c != 0 {
					t.Errorf("left: %d sandboxes, %d running containers", s, c)
				}
			})
		})
	}
}

// sandboxes is how many sandboxes there are.
func (n *testNode) sandboxes() int {
	n.t.Helper()
	synctest.Wait()
	list, err := n.cri.ListPodSandbox(n.t.Context(), &runtimeapi.ListPodSandboxRequest{})
	if err != nil {
		n.t.Fatal(err)
	}
	return len(list.Items)
}

// As on a node whose network others configure, by pods that use the machine's.
func TestPodsWaitForTheNetworkOfOthers(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		var down atomic.Bool
		down.Store(true)
		n := newNode(t, fakecri.Options{NetworkDown: down.Load})
		defer func() { n.end() }()
		const why = "container runtime network not ready: NetworkReady=false reason:NetworkPluginNotReady message:Network plugin returns error: cni plugin not initialized"
		if c := n.condition(v1.NodeReady); c.Status != v1.ConditionFalse || c.Reason != "KubeletNotReady" || c.Message != why {
			t.Errorf("node: got %+v", c)
		}
		createPod(t, n.api, "net", `{hostNetwork: true, containers: [{name: c, image: x}]}`)
		if p := n.pod("net"); !core.PodReady(p) {
			t.Errorf("pod with the machine's network: got %+v", p.Status)
		}
		refused := func(pod string) {
			t.Helper()
			createPod(t, n.api, pod, `{containers: [{name: c, image: x}]}`)
			n.api.TakeEvents()
			if p := n.after(10*time.Minute, pod); p.Status.Phase != v1.PodPending || len(p.Status.PodIPs) > 0 {
				t.Errorf("pod %s without a network: got %+v", pod, p.Status)
			}
			events := n.api.TakeEvents()
			if want := pod + " Warning NetworkNotReady: network is not ready: " + why; !slices.Contains(events, want) ||
				slices.ContainsFunc(events, func(e string) bool { return strings.Contains(e, "FailedCreatePodSandBox") }) {
				t.Errorf("events: got %q, want %q and nothing else of the kind", events, want)
			}
			down.Store(false)
			if p := n.after(networkPatience, pod); !core.PodReady(p) {
				t.Errorf("pod %s when there is the network: got %+v", pod, p.Status)
			}
		}
		refused("early")
		down.Store(true) // its configuration is taken away
		refused("late")
	})
}

// networkPatience is enough for a node to see how its network is, and for its pods to be tried again.
const networkPatience = 30 * time.Second

func TestRuntimeClassChoosesTheHandler(t *testing.T) {
	trace.Proves(t, "RTC-012", "RTC-015", "RTC-016")
	inBubble(t, func(t *testing.T) {
		n := newNode(t, fakecri.Options{})
		defer func() { n.end() }()
		createPod(t, n.api, "vm", `{runtimeClassName: vm, containers: [{name: c, image: x}]}`)
		if p := n.pod("vm"); p.Status.Phase != v1.PodPending || n.containers() != 0 {
			t.Errorf("pod of no class: got %s, want it to wait", p.Status.Phase)
		}
		const want = `vm Warning FailedCreatePodSandBox: Failed to create pod sandbox: failed to get RuntimeClass "vm": `
		if events := n.api.TakeEvents(); !slices.ContainsFunc(events, func(e string) bool { return strings.HasPrefix(e, want) }) {
			t.Errorf("events: no %q in %q", want, events)
		}
		class := &nodev1.RuntimeClass{ObjectMeta: metav1.ObjectMeta{Name: "vm"}, Handler: "kata"}
		if _, err := client.For(n.api, node.RuntimeClasses).Create(t.Context(), class); err != nil {
			t.Fatal(err)
		}
		if p := n.after(3*time.Minute, "vm"); !core.PodReady(p) {
			t.Errorf("when there is the class: got %+v", p.Status)
		}
		createPod(t, n.api, "plain", `{containers: [{name: c, image: x}]}`)
		n.pod("plain")
		list, err := n.cri.ListPodSandbox(t.Context(), &runtimeapi.ListPodSandboxRequest{})
		if err != nil {
			t.Fatal(err)
		}
		for _, s := range list.Items {
			st, err := n.cri.PodSandboxStatus(t.Context(), &runtimeapi.PodSandboxStatusRequest{PodSandboxId: s.Id})
			if want := map[string]string{"vm": "kata", "plain": ""}[s.Metadata.Name]; err != nil || st.Status.RuntimeHandler != want {
				t.Errorf("%s: got handler %q, %v, want %q", s.Metadata.Name, st.GetStatus().GetRuntimeHandler(), err, want)
			}
		}
	})
}

func TestFinishedContainerHasNoPreStopHook(t *testing.T) {
	trace.Proves(t, "HOOK-007")
	inBubble(t, func(t *testing.T) {
		var calls atomic.Int32
		n := newNode(t, fakecri.Options{Exec: func(*runtimeapi.ContainerConfig, []string) (string, int32) { calls.Add(1); return "", 0 }})
		defer func() { n.end() }()
		createPod(t, n.api, "web", `{restartPolicy: Never, containers: [{name: c, image: x, command: ["true"], lifecycle: {preStop: {exec: {command: [x]}}}}]}`)
		if p := n.after(time.Second, "web"); p.Status.Phase != v1.PodSucceeded {
			t.Fatalf("got %s", p.Status.Phase)
		}
		deletePod(t, n.api, "web", 0)
		if p := n.after(time.Second, "web"); p != nil || calls.Load() != 0 {
			t.Errorf("got %+v and %d calls of the hook, want none of both", p, calls.Load())
		}
	})
}

func TestKilledSandboxIsMadeAnewWithAllThatRanInIt(t *testing.T) {
	trace.Proves(t, "INIT-043")
	inBubble(t, func(t *testing.T) {
		n := newNode(t, fakecri.Options{})
		defer func() { n.end() }()
		createPod(t, n.api, "web", `{initContainers: [{name: i, image: x, command: ["true"]}], containers: [{name: c, image: x}]}`)
		n.pod("web")
		for range 3 { // the pause process is killed, again and again
			n.cri.LoseSandbox("default/web")
			n.after(6*time.Minute, "web")
		}
		p := n.pod("web")
		// The sandbox before keeps the log of the container before.
		if !core.PodReady(p) || n.sandboxes() != 2 || n.containers() != 1 {
			t.Errorf("got %d sandboxes, %d running containers, status %+v", n.sandboxes(), n.containers(), p.Status)
		}
		if got := p.Status.InitContainerStatuses[0]; got.State.Terminated == nil || got.State.Terminated.ExitCode != 0 || got.RestartCount != 3 {
			t.Errorf("init container: got %+v, want it run once in each sandbox", got)
		}
		deletePod(t, n.api, "web", 5)
		if p := n.after(10*time.Second, "web"); p != nil || n.sandboxes() != 0 {
			t.Errorf("deleted: left %+v and %d sandboxes", p, n.sandboxes())
		}
	})
}
