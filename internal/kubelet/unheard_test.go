package kubelet

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kemudi/kemudi/internal/api/core"
	"github.com/kemudi/kemudi/internal/cache"
	"github.com/kemudi/kemudi/internal/kubelet/fakecri"
	"github.com/kemudi/kemudi/internal/resource"
	"github.com/kemudi/kemudi/internal/trace"
)

// remembering is an API of which only the pods that were known earlier can be seen.
type remembering struct {
	*memAPI
	pods *cache.Cache
}

func (r *remembering) Cache(def *resource.Def, scope string) *cache.Cache {
	if def == core.Pods.Def {
		return r.pods
	}
	return r.memAPI.Cache(def, scope)
}

// items are the pods that the API has of those named.
func (r *remembering) items(t *testing.T, names ...string) (items []*cache.Item) {
	t.Helper()
	for _, name := range names {
		if p := getPod(t, r.memAPI, name); p != nil {
			items = append(items, &cache.Item{Key: "default/" + name, Rev: resource.Revision(p), Object: p})
		}
	}
	return items
}

// TestNothingIsRemovedUntilTheAPIHasSpoken starts an agent without an API, with what it knew
// of before one of its pods was made and another one was deleted.
func TestNothingIsRemovedUntilTheAPIHasSpoken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t, fakecri.Options{})
		defer func() { n.end() }()
		names := []string{"web", "young", "gone"}
		for _, name := range names {
			createPod(t, n.api, name, `{containers: [{name: c, image: x}]}`)
		}
		before := map[string]string{}
		for _, name := range names {
			before[name] = n.pod(name).Status.ContainerStatuses[0].ContainerID
		}
		n.end()
		api := &remembering{n.api, cache.New(core.Pods.Def, &cache.Progress{})}
		api.pods.Recall(api.items(t, "web"), 1)
		deletePod(t, n.api, "gone", 0)
		n.api.BreakWith(errors.New("no server answers"))
		n.with = func(o *Options) { o.Transport = api }
		n.run()
		time.Sleep(time.Hour)
		if got := sandboxes(t, n); got != 3 {
			t.Errorf("without the API: got %d sandboxes, want all 3", got)
		}
		n.api.BreakWith(nil)
		all := api.items(t, names...)
		api.pods.Replace(all, n.api.Progress.Rev())
		api.pods.Progress.Advance(n.api.Progress.Rev())
		time.Sleep(time.Minute)
		for _, name := range []string{"web", "young"} {
			p := n.pod(name)
			if cs := p.Status.ContainerStatuses[0]; cs.ContainerID != before[name] || cs.RestartCount != 0 || p.Status.Phase != v1.PodRunning {
				t.Errorf("%s: got %s in phase %s, want %s still running", name, cs.ContainerID, p.Status.Phase, before[name])
			}
		}
		if got := sandboxes(t, n); got != 2 {
			t.Errorf("once the API has spoken: got %d sandboxes, want 2", got)
		}
		if got := n.cri.Calls("CreateContainer"); got != 3 {
			t.Errorf("containers made: got %d, want 3", got)
		}
	})
}

func sandboxes(t *testing.T, n *testNode) int {
	t.Helper()
	list, err := n.cri.ListPodSandbox(t.Context(), &runtimeapi.ListPodSandboxRequest{})
	if err != nil {
		t.Fatal(err)
	}
	return len(list.Items)
}

// TestPodsRunOnWithoutAnAPI starts an agent without an API after a reboot: nothing runs any
// more.
func TestPodsRunOnWithoutAnAPI(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t, fakecri.Options{})
		defer func() { n.end() }()
		createPod(t, n.api, "web", `{containers: [{name: c, image: x, command: [sh, -c, "sleep 60; exit 1"]}]}`)
		createPod(t, n.api, "done", `{restartPolicy: Never, containers: [{name: c, image: x, command: [sh, -c, "exit 0"]}]}`)
		if p := n.pod("done"); p.Status.Phase != v1.PodSucceeded {
			t.Fatalf("done: got %s", p.Status.Phase)
		}
		n.end()
		api := &remembering{n.api, cache.New(core.Pods.Def, &cache.Progress{})}
		api.pods.Recall(api.items(t, "web", "done"), 1)
		n.api.BreakWith(errors.New("no server answers"))
		n.cri = fakecri.New(fakecri.Options{})
		n.with = func(o *Options) { o.Transport = api }
		n.run()
		time.Sleep(90 * time.Second)
		if got := n.cri.Calls("CreateContainer"); got < 2 {
			t.Errorf("containers made: got %d, want the first and, when that had ended, another", got)
		}
		if got := sandboxes(t, n); got != 1 {
			t.Errorf("got %d sandboxes, want that of the pod that was not done", got)
		}
		n.api.BreakWith(nil)
		api.pods.Replace(api.items(t, "web", "done"), n.api.Progress.Rev())
		api.pods.Progress.Advance(n.api.Progress.Rev())
		if p := n.after(time.Minute, "web"); p.Status.Phase != v1.PodRunning || p.Status.ContainerStatuses[0].RestartCount < 1 {
			t.Errorf("once the API is back: got phase %s, %+v", p.Status.Phase, p.Status.ContainerStatuses)
		}
	})
}

// TestPodsToldToEndGoOnWhileTheirNodeIsCutOff until the node hears of it.
func TestPodsToldToEndGoOnWhileTheirNodeIsCutOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t, fakecri.Options{})
		defer func() { n.end() }()
		createPod(t, n.api, "web", `{containers: [{name: c, image: x}]}`)
		before := n.pod("web").Status.ContainerStatuses[0].ContainerID
		n.end()
		api := &remembering{n.api, cache.New(core.Pods.Def, &cache.Progress{})}
		heard := func() {
			api.pods.Replace(api.items(t, "web"), n.api.Progress.Rev())
			api.pods.Progress.Advance(n.api.Progress.Rev())
		}
		heard()
		n.with = func(o *Options) { o.Transport = api }
		n.run()
		time.Sleep(time.Minute)
		deletePod(t, n.api, "web", 30)
		n.api.BreakWith(errors.New("no server answers"))
		trace.Proves(t, "NODE-018", "NODE-019")
		time.Sleep(time.Hour)
		if got := n.containers(); got != 1 || n.cri.Calls("StopContainer") != 0 {
			t.Errorf("while the node is cut off: got %d containers, and %d calls to stop one; want it to run on", got, n.cri.Calls("StopContainer"))
		}
		n.api.BreakWith(nil)
		if p := getPod(t, n.api, "web"); p == nil || p.DeletionTimestamp == nil || p.Status.ContainerStatuses[0].ContainerID != before {
			t.Errorf("while the node is cut off: got of the API %+v, want the pod as it was, told to end", p)
		}
		heard()
		time.Sleep(time.Minute)
		if p := getPod(t, n.api, "web"); p != nil || n.containers() != 0 {
			t.Errorf("once the node has heard: got %+v and %d containers, want neither", p, n.containers())
		}
	})
}
