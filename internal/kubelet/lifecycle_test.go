package kubelet

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kemudi/kemudi/internal/api/core"
	"github.com/kemudi/kemudi/internal/client"
	"github.com/kemudi/kemudi/internal/kubelet/fakecri"
	"github.com/kemudi/kemudi/internal/task"
	"github.com/kemudi/kemudi/internal/trace"
)

// deaf is a program that does not end when it is told to.
func deaf(*runtimeapi.ContainerConfig) fakecri.Program { return fakecri.Program{TermAfter: -1} }

func TestFailingInitContainerIsTriedAgainWhileTheAppWaits(t *testing.T) {
	trace.Proves(t, "C-267", "INIT-006", "INIT-028")
	inBubble(t, func(t *testing.T) {
		n := newNode(t, fakecri.Options{})
		defer func() { n.end() }()
		createPod(t, n.api, "web", `{initContainers: [{name: one, image: x, command: ["false"]}, {name: two, image: x, command: ["true"]}], containers: [{name: c, image: x}]}`)
		p := n.after(75*time.Second, "web") // 0, 10 and 20 and 40 seconds of back-off
		one, two, app := p.Status.InitContainerStatuses[0], p.Status.InitContainerStatuses[1], p.Status.ContainerStatuses[0]
		if p.Status.Phase != v1.PodPending || one.RestartCount < 3 || one.Ready || one.LastTerminationState.Terminated == nil {
			t.Errorf("got phase %s, first init container %+v; want Pending, 3 restarts", p.Status.Phase, one)
		}
		for _, cs := range []v1.ContainerStatus{two, app} {
			if w := cs.State.Waiting; w == nil || w.Reason != "PodInitializing" || cs.Ready || cs.RestartCount != 0 {
				t.Errorf("%s: got %+v, want waiting, PodInitializing", cs.Name, cs)
			}
		}
		c := core.PodCondition(&p.Status, v1.PodInitialized)
		if c == nil || c.Status != v1.ConditionFalse || c.Reason != "ContainersNotInitialized" || c.Message != "containers with incomplete status: [one two]" {
			t.Errorf("condition: got %+v", c)
		}
	})
}

func TestContainerThatKeepsFailingItsProbeIsRestartedEachTime(t *testing.T) {
	trace.Proves(t, "C-309", "C-306")
	inBubble(t, func(t *testing.T) {
		n := newNode(t, fakecri.Options{Exec: func(*runtimeapi.ContainerConfig, []string) (string, int32) { return "", 1 }})
		defer func() { n.end() }()
		createPod(t, n.api, "web", `{containers: [{name: c, image: x, livenessProbe: {exec: {command: [x]}, initialDelaySeconds: 5, periodSeconds: 3, failureThreshold: 1}}]}`)
		last := int32(0)
		began := time.Now()
		for last < 5 && time.Since(began) < 5*time.Minute {
			p := n.after(time.Second, "web")
			got := p.Status.ContainerStatuses[0].RestartCount
			if got < last || got > last+1 {
				t.Fatalf("restarts went from %d to %d", last, got)
			}
			last = got
		}
		if last != 5 {
			t.Errorf("restarts in %s: got %d, want 5", time.Since(began), last)
		}
	})
}

func TestProbeMayHaveAGracePeriodOfItsOwn(t *testing.T) {
	trace.Proves(t, "KEP-2238")
	inBubble(t, func(t *testing.T) {
		n := newNode(t, fakecri.Options{Program: deaf, Exec: func(*runtimeapi.ContainerConfig, []string) (string, int32) { return "", 1 }})
		defer func() { n.end() }()
		const probe = `{exec: {command: [x]}, failureThreshold: 1, periodSeconds: 1, initialDelaySeconds: 1`
		createPod(t, n.api, "pods", `{terminationGracePeriodSeconds: 60, containers: [{name: c, image: x, livenessProbe: `+probe+`}}]}`)
		createPod(t, n.api, "own", `{terminationGracePeriodSeconds: 60, containers: [{name: c, image: x, livenessProbe: `+probe+`, terminationGracePeriodSeconds: 5}}]}`)
		createPod(t, n.api, "startup", `{terminationGracePeriodSeconds: 60, containers: [{name: c, image: x, startupProbe: `+probe+`, terminationGracePeriodSeconds: 5}}]}`)
		if p := n.after(4*time.Second, "own"); p.Status.ContainerStatuses[0].RestartCount != 0 {
			t.Error("killed before the grace period of its probe was over")
		}
		for _, name := range []string{"own", "startup"} {
			if p := n.after(2*time.Second, name); p.Status.ContainerStatuses[0].RestartCount != 1 {
				t.Errorf("%s: got %d restarts after 5 s of grace, want 1", name, p.Status.ContainerStatuses[0].RestartCount)
			}
		}
		if p := n.after(50*time.Second, "pods"); p.Status.ContainerStatuses[0].RestartCount != 0 {
			t.Error("killed before the grace period of the pod was over")
		}
		if p := n.after(5*time.Second, "pods"); p.Status.ContainerStatuses[0].RestartCount != 1 {
			t.Error("not killed after the grace period of the pod")
		}
	})
}

func TestFailingPreStopHookIsToldAndCalledOnce(t *testing.T) {
	trace.Proves(t, "HOOK-019", "HOOK-022", "HOOK-025", "HOOK-027", "POD-036")
	inBubble(t, func(t *testing.T) {
		var calls atomic.Int32
		n := newNode(t, fakecri.Options{Exec: func(*runtimeapi.ContainerConfig, []string) (string, int32) {
			calls.Add(1)
			return "no", 1
		}})
		defer func() { n.end() }()
		createPod(t, n.api, "web", `{containers: [{name: c, image: x, lifecycle: {preStop: {exec: {command: [x]}}}}]}`)
		n.pod("web")
		deletePod(t, n.api, "web", 30)
		if p := n.after(time.Second, "web"); p != nil {
			t.Errorf("left: %+v", p.Status)
		}
		events := n.api.TakeEvents()
		if calls.Load() != 1 || !slices.Contains(events, "web spec.containers{c} Warning FailedPreStopHook: PreStopHook failed") {
			t.Errorf("got %d calls, events\n%s", calls.Load(), strings.Join(events, "\n"))
		}
	})
}

func TestContainerWhosePostStartHookFailsEndsAsAnyOther(t *testing.T) {
	trace.Proves(t, "HOOK-032", "HOOK-001", "HOOK-031")
	inBubble(t, func(t *testing.T) {
		var mu sync.Mutex
		var calls []string
		n := newNode(t, fakecri.Options{Exec: func(_ *runtimeapi.ContainerConfig, command []string) (string, int32) {
			mu.Lock()
			defer mu.Unlock()
			calls = append(calls, command[0])
			if command[0] == "start" {
				return "no", 1
			}
			return "", 0
		}})
		defer func() { n.end() }()
		createPod(t, n.api, "web", `{containers: [{name: c, image: x, lifecycle: {postStart: {exec: {command: [start]}}, preStop: {exec: {command: [stop]}}}}]}`)
		n.pod("web")
		mu.Lock()
		if want := []string{"start", "stop"}; !slices.Equal(calls[:min(2, len(calls))], want) {
			t.Errorf("hooks: got %q, want %q", calls, want)
		}
		mu.Unlock()
		n.after(12*time.Second, "web")
		killed := 0
		for _, e := range n.api.TakeEvents() {
			if e == "web spec.containers{c} Normal Killing: FailedPostStartHook" {
				killed++
			}
		}
		if p := n.after(time.Second, "web"); killed < 2 || p.Status.ContainerStatuses[0].RestartCount == 0 {
			t.Errorf("killed %d times, got %+v, want another try", killed, p.Status.ContainerStatuses[0])
		}
	})
}

func TestHookThatIsNoneFails(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		n := newNode(t, fakecri.Options{})
		defer func() { n.end() }()
		createPod(t, n.api, "web", `{containers: [{name: c, image: x, lifecycle: {postStart: {tcpSocket: {port: 80}}}}]}`)
		p := n.after(5*time.Second, "web")
		if st := p.Status.ContainerStatuses[0]; st.State.Running != nil || st.LastTerminationState.Terminated == nil {
			t.Errorf("got %+v, want that its container is ended each time", st)
		}
		if events := n.api.TakeEvents(); !slices.Contains(events, "web spec.containers{c} Warning FailedPostStartHook: PostStartHook failed") {
			t.Errorf("events: got %q", events)
		}
		createPod(t, n.api, "end", `{containers: [{name: c, image: x, lifecycle: {preStop: {tcpSocket: {port: 80}}}}]}`)
		n.pod("end")
		deletePod(t, n.api, "end", 30)
		if p := n.after(5*time.Second, "end"); p != nil {
			t.Errorf("one before the end of its container: got %+v, want that it holds nothing up", p.Status)
		}
		if events := strings.Join(n.api.TakeEvents(), "\n"); !strings.Contains(events, "end spec.containers{c} Warning FailedPreStopHook: ") {
			t.Errorf("events: got\n%s", events)
		}
	})
}

func TestRuleStartsAllContainersAnew(t *testing.T) {
	trace.Proves(t, "KEP-5532")
	inBubble(t, func(t *testing.T) {
		var mu sync.Mutex
		starts := map[string]int{}
		var stops atomic.Int32
		n := newNode(t, fakecri.Options{
			Program: func(c *runtimeapi.ContainerConfig) fakecri.Program {
				mu.Lock()
				defer mu.Unlock()
				starts[c.Metadata.Name]++
				switch {
				case c.Metadata.Name == "init":
					return fakecri.Program{Ends: true, After: time.Second}
				case c.Metadata.Name == "watch" && starts["watch"] == 1:
					return fakecri.Program{Ends: true, After: 10 * time.Second, ExitCode: 88}
				}
				return deaf(c)
			},
			Exec: func(*runtimeapi.ContainerConfig, []string) (string, int32) { stops.Add(1); return "", 0 },
		})
		defer func() { n.end() }()
		createPod(t, n.api, "web", `{restartPolicy: Never, initContainers: [{name: init, image: i}], terminationGracePeriodSeconds: 60, containers: [
			{name: c, image: x, lifecycle: {preStop: {exec: {command: [x]}}}},
			{name: watch, image: x, restartPolicy: Never, restartPolicyRules: [{action: RestartAllContainers, exitCodes: {operator: In, values: [88]}}]}]}`)
		before := n.after(5*time.Second, "web")
		restarting := func(p *v1.Pod) bool { return core.PodConditionTrue(p, v1.AllContainersRestarting) }
		if p := n.after(7*time.Second, "web"); !restarting(p) {
			t.Errorf("got %+v, want it to be restarting", p.Status.Conditions)
		}
		p := n.after(20*time.Second, "web")
		if restarting(p) || !core.PodReady(p) || p.Status.PodIP != before.Status.PodIP || n.sandboxes() != 1 || stops.Load() != 0 {
			t.Errorf("got %+v, %d sandboxes, %d hooks", p.Status, n.sandboxes(), stops.Load())
		}
		for _, list := range [][]v1.ContainerStatus{p.Status.InitContainerStatuses, p.Status.ContainerStatuses} {
			for _, c := range list {
				if c.RestartCount != 1 {
					t.Errorf("%s: got %d restarts, want 1", c.Name, c.RestartCount)
				}
			}
		}
	})
}

func TestHangingHookLeavesTheContainerTwoSeconds(t *testing.T) {
	trace.Proves(t, "POD-043", "HOOK-017")
	inBubble(t, func(t *testing.T) {
		n := newNode(t, fakecri.Options{Program: deaf})
		defer func() { n.end() }()
		createPod(t, n.api, "web", `{containers: [{name: c, image: x, lifecycle: {preStop: {sleep: {seconds: 29}}}}]}`)
		n.pod("web")
		deletePod(t, n.api, "web", 10)
		if n.after(11*time.Second, "web") == nil {
			t.Error("gone before the extra grace was over")
		}
		if p := n.after(2*time.Second, "web"); p != nil {
			t.Errorf("left after 13 s: %+v", p.Status)
		}
	})
}

func TestHangingHooksGoOnAsLongAsTheirContainers(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		var mu sync.Mutex
		var log []string
		began := time.Now()
		n := newNode(t, fakecri.Options{Program: deaf, Hang: func(ctx context.Context, c *runtimeapi.ContainerConfig, _ []string) error {
			<-ctx.Done()
			mu.Lock()
			defer mu.Unlock()
			log = append(log, fmt.Sprintf("%s %s", time.Since(began), c.Metadata.Name))
			return ctx.Err()
		}})
		defer func() { n.end() }()
		const hook = `lifecycle: {preStop: {exec: {command: [x]}}}}`
		createPod(t, n.api, "web", `{initContainers: [{name: side, image: x, restartPolicy: Always, `+hook+`], containers: [{name: c, image: x, `+hook+`]}`)
		n.pod("web")
		n.api.TakeEvents()
		began = time.Now()
		deletePod(t, n.api, "web", 10)
		if p := n.after(13*time.Second, "web"); p != nil {
			t.Errorf("left after 13 s: %+v", p.Status)
		}
		mu.Lock()
		defer mu.Unlock()
		slices.Sort(log)
		if got, want := strings.Join(log, ", "), "12s c, 12s side"; got != want { // with the extra grace
			t.Errorf("hooks were given up: got %s, want %s", got, want)
		}
		told := 0
		for _, e := range n.api.TakeEvents() {
			if strings.Contains(e, "Warning FailedPreStopHook: PreStopHook failed") {
				told++
			}
		}
		if told != 2 {
			t.Errorf("got %d events of failed hooks, want one of each", told)
		}
	})
}

func TestHooksOfSidecarsRunAtOnceAndTheirContainersEndLast(t *testing.T) {
	trace.Proves(t, "KEP-753", "HOOK-014")
	inBubble(t, func(t *testing.T) {
		var mu sync.Mutex
		var log []string
		began := time.Now()
		note := func(what string) {
			mu.Lock()
			defer mu.Unlock()
			log = append(log, fmt.Sprintf("%s %s", time.Since(began), what))
		}
		n := newNode(t, fakecri.Options{
			Program: func(*runtimeapi.ContainerConfig) fakecri.Program { return fakecri.Program{TermAfter: 3 * time.Second} },
			Exec: func(_ *runtimeapi.ContainerConfig, command []string) (string, int32) {
				note("hook " + command[0])
				return "", 0
			},
			Stop: func(c *runtimeapi.ContainerConfig) { note("stop " + c.Metadata.Name) },
		})
		defer func() { n.end() }()
		const hook = `lifecycle: {preStop: {exec: {command: [`
		createPod(t, n.api, "web", `{initContainers: [{name: s1, image: x, restartPolicy: Always, `+hook+`s1]}}}}, {name: s2, image: x, restartPolicy: Always, `+hook+`s2]}}}},
			{name: s3, image: x, restartPolicy: Always, lifecycle: {preStop: {sleep: {seconds: 29}}}}], containers: [{name: c, image: x, `+hook+`c]}}}}]}`)
		n.pod("web")
		began = time.Now()
		deletePod(t, n.api, "web", 20)
		n.after(19*time.Second, "web")
		mu.Lock()
		slices.Sort(log[:min(4, len(log))]) // all in the same moment
		got := strings.Join(log, ", ")
		mu.Unlock()
		// The hook of s3 takes all the time there is.
		if want := "0s hook c, 0s hook s1, 0s hook s2, 0s stop c"; got != want {
			t.Errorf("order within the grace period: got %s, want %s", got, want)
		}
		if p := n.after(5*time.Second, "web"); p != nil { // with the extra grace, which all have together
			t.Errorf("left after 24 s: %+v", p.Status)
		}
		mu.Lock()
		defer mu.Unlock()
		late := log[min(4, len(log)):]
		slices.Sort(late) // nobody waits for a turn any more
		if got, want := strings.Join(late, ", "), "20s stop s1, 20s stop s2, 20s stop s3"; got != want {
			t.Errorf("after it: got %s, want %s", got, want)
		}
	})
}

func TestPodWhoseContainerNeverStartedGoesAtOnce(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		n := newNode(t, fakecri.Options{})
		defer func() { n.end() }()
		createPod(t, n.api, "web", `{containers: [{name: c, image: x, envFrom: [{configMapRef: {name: none}}]}, {name: d, image: x, command: ["true"]}]}`)
		p := n.after(5*time.Second, "web")
		if w := p.Status.ContainerStatuses[0].State.Waiting; w == nil || w.Reason != "CreateContainerConfigError" || w.Message != `configmap "none" not found` {
			t.Fatalf("got %+v", p.Status.ContainerStatuses[0].State)
		}
		deletePod(t, n.api, "web", 30)
		if p := n.pod("web"); p != nil {
			t.Errorf("left although nothing runs: %+v", p.Status)
		}
	})
}

func TestPodThatIsDeletedWhileItsContainerStartsHasNoFailedStart(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		n := newNode(t, fakecri.Options{
			Program: func(*runtimeapi.ContainerConfig) fakecri.Program { return fakecri.Program{TermCode: 143} },
			Create:  func(*runtimeapi.ContainerConfig) error { return task.Sleep(t.Context(), 5*time.Second) },
		})
		defer func() { n.end() }()
		var last atomic.Pointer[v1.ContainerState]
		n.api.RefuseWith(func(r *client.Request) error {
			if pod, ok := r.Object.(*v1.Pod); ok && r.Sub == "status" {
				last.Store(&pod.Status.ContainerStatuses[0].State)
			}
			return nil
		})
		createPod(t, n.api, "web", `{containers: [{name: c, image: x}]}`)
		if p := n.after(time.Second, "web"); p.Status.ContainerStatuses[0].State.Waiting == nil {
			t.Fatalf("got %+v, want it to be starting", p.Status.ContainerStatuses[0])
		}
		deletePod(t, n.api, "web", 30)
		if p := n.after(10*time.Second, "web"); p != nil {
			t.Fatalf("left although nothing runs: %+v", p.Status)
		}
		if got := last.Load().Terminated; got == nil || got.ExitCode != 143 || got.Reason != "Error" {
			t.Errorf("got %+v, want the end that its signal made", last.Load())
		}
		for _, e := range n.api.TakeEvents() {
			if strings.Contains(e, "Failed") {
				t.Errorf("told %q", e)
			}
		}
	})
}

func TestContainerThatLivedLongBacksOffAfresh(t *testing.T) {
	trace.Proves(t, "PLC-064")
	inBubble(t, func(t *testing.T) {
		n := newNode(t, fakecri.Options{})
		defer func() { n.end() }()
		createPod(t, n.api, "web", `{containers: [{name: c, image: x}]}`)
		n.pod("web")
		for range 4 { // 0, 10, 20, 40 seconds of back-off
			n.cri.Exit("default/web", "c", 1, "")
			n.after(45*time.Second, "web")
		}
		if p := n.after(11*time.Minute, "web"); p.Status.ContainerStatuses[0].RestartCount != 4 || !core.PodReady(p) {
			t.Fatalf("got %+v", p.Status.ContainerStatuses)
		}
		n.cri.Exit("default/web", "c", 1, "")
		if p := n.after(time.Second, "web"); p.Status.ContainerStatuses[0].RestartCount != 5 {
			t.Errorf("after ten minutes of life: got %d restarts, want the fifth at once", p.Status.ContainerStatuses[0].RestartCount)
		}
	})
}
