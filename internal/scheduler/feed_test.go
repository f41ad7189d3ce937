package scheduler

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kemudi/kemudi/internal/client"
	"github.com/kemudi/kemudi/internal/client/clienttest"
	"github.com/kemudi/kemudi/internal/resource"
	"github.com/kemudi/kemudi/internal/scheduler/config"
	"github.com/kemudi/kemudi/internal/scheduler/snapshot"
)

// fed is a loop that does not run, and caches that a test fills.
type fed struct {
	*loop
	*clienttest.Filled
	rev int64
}

func newFed(t *testing.T) *fed {
	f := &fed{Filled: clienttest.NewFilled()}
	snap := snapshot.New(nil)
	f.loop = &loop{
		Scheduler: New(Options{Transport: f}), snapshot: snap, queue: newQueue(time.Second, 10*time.Second), budgets: newBudgets(),
		profiles: newProfiles(config.Default().Profiles, snap, newBudgets(), func(string) client.EventSink { return client.NoEvents }), held: newHeld(),
	}
	f.log = f.o.Logger
	f.follow(f)
	return f
}

func (f *fed) put(obj resource.Object) {
	f.rev++
	obj.SetResourceVersion(strconv.FormatInt(f.rev, 10))
	f.Put(obj)
}

// state is what the loop knows: nodes with their pods, and pending pods.
func (f *fed) state() string {
	var lines []string
	for _, n := range f.snapshot.Nodes() {
		var pods []string
		for _, p := range n.Pods {
			pods = append(pods, p.Obj.Name)
		}
		slices.Sort(pods)
		lines = append(lines, fmt.Sprint(n.Name, pods))
	}
	for _, item := range f.queue.pods {
		lines = append(lines, "pending "+item.pod.Obj.Name)
	}
	slices.Sort(lines)
	return strings.Join(lines, ", ")
}

func (f *fed) expect(t *testing.T, want string) {
	t.Helper()
	f.takeIn()
	if got := f.state(); got != want {
		t.Errorf("got %s\nwant %s", got, want)
	}
}

func TestFollowsNodesAndPods(t *testing.T) {
	f := newFed(t)
	pod := func(line string) *corev1.Pod { return parsePod(split(line)) }
	f.put(pod("a on=n1"))
	f.put(pod("b"))
	f.put(parseNode([]string{"n1"}))
	f.expect(t, "n1[a], pending b")
	f.put(pod("b on=n1"))
	ended := pod("a on=n1")
	ended.Status.Phase = corev1.PodSucceeded
	f.put(ended)
	f.expect(t, "n1[b]")
	f.put(pod("c terminating"))
	f.put(pod("d"))
	f.expect(t, "n1[b], pending d")
	f.put(pod("d terminating"))
	f.Remove(pod("b on=n1"))
	f.expect(t, "n1[]")
	f.Remove(parseNode([]string{"n1"}))
	f.expect(t, "")
}

func TestPodsHaveTheirPlaceOnANodeThatComesLater(t *testing.T) {
	f := newFed(t)
	held := func() string {
		var names []string
		for _, n := range f.snapshot.Nodes() {
			for _, p := range n.Nominated {
				names = append(names, n.Name+":"+p.Obj.Name)
			}
		}
		slices.Sort(names)
		return strings.Join(names, " ")
	}
	for i, step := range []struct {
		put, remove resource.Object
		want        string
	}{
		{put: parsePod(split("a nominated=n1"))},
		{put: parsePod(split("b nominated=n1"))},
		{put: parsePod(split("c nominated=n2"))},
		{put: parsePod(split("gone nominated=n1"))},
		{remove: parsePod(split("gone nominated=n1"))},
		{put: parsePod(split("b nominated=n2"))}, // by its status alone
		{put: parsePod(split("c nominated=n2 app=x"))},
		{put: parseNode([]string{"n1"}), want: "n1:a"},
		{put: parseNode([]string{"n2"}), want: "n1:a n2:b n2:c"},
		{remove: parseNode([]string{"n2"}), want: "n1:a"},
		{put: parsePod(split("b on=n1")), want: "n1:a"},
		{put: parseNode([]string{"n2"}), want: "n1:a n2:c"},
	} {
		if step.put != nil {
			f.put(step.put)
		} else {
			f.Remove(step.remove)
		}
		f.takeIn()
		if got := held(); got != step.want {
			t.Errorf("step %d: got %q, want %q", i, got, step.want)
		}
	}
	named := 0
	for _, some := range f.queue.named {
		named += len(some)
	}
	if named != 2 || len(f.queue.named) != 2 {
		t.Errorf("the queue has %v by nodes, want a and c", f.queue.named)
	}
}

func TestMissesNothingWhenItFellBehind(t *testing.T) {
	f := newFed(t)
	for _, name := range []string{"gone", "stays", "anew"} {
		f.put(parsePod([]string{name, "on=n1"}))
		f.put(parsePod([]string{"pending-" + name}))
	}
	f.put(parseNode([]string{"n1"}))
	f.expect(t, "n1[anew gone stays], pending pending-anew, pending pending-gone, pending pending-stays")
	for _, prefix := range []string{"", "pending-"} {
		on := "on=n1"
		if prefix != "" {
			on = "app=x"
		}
		f.Remove(parsePod([]string{prefix + "gone", on}))
		f.Remove(parsePod([]string{prefix + "anew", on}))
		again := parsePod([]string{prefix + "anew", on})
		again.UID = types.UID(prefix + "anew again")
		f.put(again)
	}
	noise := parsePod([]string{"noise", "on=n1"})
	for range 9000 { // more than the cache remembers
		f.put(noise.DeepCopy())
	}
	f.expect(t, "n1[anew noise stays], pending pending-anew, pending pending-stays")
	if f.snapshot.Pod("anew") != nil || f.snapshot.Pod("anew again") == nil {
		t.Error("the pod that was made anew is still known as the old one")
	}
}
