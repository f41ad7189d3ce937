package scheduler

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kemudi/kemudi/internal/client"
	"github.com/kemudi/kemudi/internal/scheduler/config"
	"github.com/kemudi/kemudi/internal/scheduler/plugins"
	"github.com/kemudi/kemudi/internal/scheduler/snapshot"
)

// twins are two cycles over one snapshot that decide about the same pods: one remembers,
// the other finds out everything anew. They draw the same lots.
type twins struct {
	t          *testing.T
	r          *rand.Rand
	snap       *snapshot.Snapshot
	remembers  *cycle
	forgets    *cycle
	loop       *loop
	nodes, n   int
	pods       []*snapshot.Pod // on nodes
	holding    []*snapshot.Pod // places
	stood, met int             // decisions that stood; outcomes that were compared
}

// forgetful is a cycle whose plugins share nothing.
func forgetful(snap *snapshot.Snapshot, b *budgets) *cycle {
	c := newCycle(snap)
	c.budgets = b
	c.plugins.Apart, c.plugins.Local, c.plugins.LocalScorers = ^uint32(0), 0, 0
	return c
}

func newTwins(t *testing.T, r *rand.Rand, nodes int) *twins {
	snap := snapshot.New(nil)
	x := &twins{t: t, r: r, snap: snap, nodes: nodes}
	x.loop = &loop{
		Scheduler: New(Options{}), snapshot: snap, queue: newQueue(time.Second, 10*time.Second), held: newHeld(), budgets: newBudgets(),
	}
	x.loop.profiles = newProfiles(config.Default().Profiles, snap, x.loop.budgets, func(string) client.EventSink { return client.NoEvents })
	x.remembers, x.forgets = x.loop.profiles[config.DefaultName].cycle, forgetful(snap, x.loop.budgets)
	snap.SetNamespace("default", map[string]string{"team": "x"})
	snap.SetNamespace("other", map[string]string{"team": "y"})
	for i := range nodes {
		snap.SetNode(x.node(i))
	}
	return x
}

func (x *twins) node(i int) *corev1.Node {
	words := []string{fmt.Sprint("n", i), "cpu=" + choose(x.r, "2", "4", "4"), "mem=8Gi", "pods=" + choose(x.r, "3", "10")}
	if x.r.IntN(8) > 0 {
		words = append(words, "zone="+choose(x.r, "a", "b", "c"))
	}
	if x.r.IntN(8) == 0 {
		words = append(words, "taint=k=v:"+choose(x.r, "NoSchedule", "PreferNoSchedule"))
	}
	if x.r.IntN(12) == 0 {
		words = append(words, "cordoned")
	}
	if x.r.IntN(2) == 0 {
		words = append(words, "disk="+choose(x.r, "ssd", "hdd"))
	}
	return parseNode(words)
}

// pod is of one of few shapes.
func (x *twins) pod() *snapshot.Pod {
	x.n++
	words := []string{choose(x.r, "default", "other") + fmt.Sprint("/p", x.n), "app=" + choose(x.r, "web", "db"), "cpu=" + choose(x.r, "500m", "1", "2", "9"), "prio=" + choose(x.r, "0", "5", "10"), fmt.Sprint("started=", x.n)}
	switch x.r.IntN(12) {
	case 0:
		words = append(words, "port=80")
	case 1:
		words = append(words, "select=disk=ssd", "tol=k")
	case 2:
		words = append(words, "apart=host:app=web")
	case 3:
		words = append(words, "near=zone:app=db")
	case 4:
		words = append(words, "spread=zone:1:app=web")
	case 5:
		words = append(words, "wantapart=10:host:app=web")
	case 6:
		words = append(words, "apart=zone:app=db:team=y")
	case 7:
		words = append(words, "claim=c")
	case 8:
		words = append(words, "never")
	}
	p := parsePod(slices.DeleteFunc(words, func(w string) bool { return w == "never" }))
	if slices.Contains(words, "never") {
		never := corev1.PreemptNever
		p.Spec.PreemptionPolicy = &never
	}
	return x.snap.NewPod(p)
}

// turn changes something.
func (x *twins) turn() {
	r := x.r
	switch r.IntN(14) {
	case 0:
		x.snap.SetNode(x.node(r.IntN(x.nodes)))
	case 1:
		x.snap.RemoveNode(fmt.Sprint("n", r.IntN(x.nodes)))
		x.pods = slices.DeleteFunc(x.pods, func(p *snapshot.Pod) bool { return p.Node() == nil })
	case 2, 3, 4:
		if len(x.pods) > 0 {
			i := r.IntN(len(x.pods))
			x.snap.Remove(x.pods[i])
			x.pods = slices.Delete(x.pods, i, i+1)
		}
	case 5:
		if len(x.pods) > 0 {
			p := x.pods[r.IntN(len(x.pods))]
			obj := p.Obj.DeepCopy()
			x.n++
			obj.Status.StartTime = &metav1.Time{Time: time.Unix(int64(x.n), 0)} // no two are equally important
			x.snap.Update(p, obj)
		}
	case 6:
		b := guarding(choose(r, "default", "other"), choose(r, "a", "b"), choose(r, "web", "db"))
		b.Status.DisruptionsAllowed = int32(r.IntN(2))
		x.loop.budgets.set(b)
	case 7:
		x.loop.budgets.remove(choose(r, "default", "other"), choose(r, "a", "b"))
	case 8:
		x.snap.SetNamespace("other", map[string]string{"team": choose(r, "x", "y")})
	case 9:
		if len(x.holding) > 0 {
			i := r.IntN(len(x.holding))
			x.snap.Nominate(x.holding[i], "")
			x.holding = slices.Delete(x.holding, i, i+1)
		}
	case 10:
		if r.IntN(10) == 0 {
			x.snap.Sweep()
		}
	}
}

func (x *twins) saysOf(c *cycle, d decision) string {
	var b strings.Builder
	for i, n := range c.feasible {
		fmt.Fprint(&b, n.Name, " ")
		if len(c.feasible) > 1 {
			fmt.Fprint(&b, c.total[i], " ")
		}
	}
	if d.node != nil {
		fmt.Fprint(&b, "to ", d.node.Name)
	}
	if d.unfit != nil {
		fmt.Fprintf(&b, "%b %s", d.unfit.plugins, d.unfit.message())
		for _, r := range d.unfit.refusals {
			fmt.Fprint(&b, " ", r.node.Name, *r.reason)
		}
	}
	return b.String()
}

func (x *twins) saysOfRoom(pre preemption, list []*candidate) string {
	var b strings.Builder
	fmt.Fprint(&b, pre.message, pre.keep)
	for _, cand := range append(list, &candidate{node: pre.node, victims: pre.victims}) {
		if cand.node != nil {
			fmt.Fprint(&b, " ", cand.node.Name, cand.violations)
			for _, v := range cand.victims {
				fmt.Fprint(&b, " ", v.Obj.Name)
			}
		}
	}
	return b.String()
}

// decide has both decide about a pod, and does what they say.
func (x *twins) decide(p *snapshot.Pod) {
	x.t.Helper()
	lot := x.r.Uint64()
	var d [2]decision
	var says, room [2]string
	var pre [2]preemption
	for i, c := range []*cycle{x.remembers, x.forgets} {
		c.rand = rand.New(rand.NewPCG(lot, 1))
		d[i] = c.decide(p)
		if d[i].setback != nil {
			continue
		}
		says[i] = x.saysOf(c, d[i])
		if u := d[i].unfit; u != nil {
			var list []*candidate
			pre[i], list = c.preempt(u)
			room[i] = x.saysOfRoom(pre[i], list)
		}
	}
	if s := d[0].setback; s != nil {
		x.stood++
		want := d[1].unfit
		if want == nil || pre[1].node != nil || s.plugins != want.plugins || s.keep != pre[1].keep || s.message != want.message()+" preemption: "+pre[1].message {
			x.t.Fatalf("pod %v\nstands: %+v\nwant %s %s", p.Obj.Name, s, says[1], room[1])
		}
		x.remembers.start = x.forgets.start
		return
	}
	if says[0] != says[1] || room[0] != room[1] {
		x.t.Fatalf("pod %v: got\n%s\n%s\nwant\n%s\n%s", p.Obj.Name, says[0], room[0], says[1], room[1])
	}
	x.met++
	switch {
	case d[0].node != nil:
		x.snap.Nominate(p, "")
		x.snap.Add(p, d[0].node.Name)
		x.pods = append(x.pods, p)
		x.loop.wake(plugins.Event{Kind: plugins.PodAdded, Node: d[0].node, Pod: p})
	case pre[0].node != nil:
		x.snap.Nominate(p, pre[0].node.Name)
		x.holding = append(x.holding, p)
	case d[0].unfit != nil:
		x.remembers.stands(setback{message: d[0].unfit.message() + " preemption: " + pre[0].message, plugins: d[0].unfit.plugins, keep: pre[0].keep})
	}
}

// TestWhatIsRememberedChangesNoDecision compares, in random clusters that change, each decision with that
// of a scheduler that remembers nothing: nodes, scores, reasons, candidates for preemption and victims.
func TestWhatIsRememberedChangesNoDecision(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 2))
	stood, met := 0, 0
	for round := range 60 {
		nodes := 2 + r.IntN(8)
		if round%10 == 0 {
			nodes = 130
		}
		x := newTwins(t, r, nodes)
		for range 150 {
			if r.IntN(2) == 0 {
				x.turn()
			}
			p := x.pod()
			if len(x.holding) > 0 && r.IntN(4) == 0 {
				p = x.holding[r.IntN(len(x.holding))]
				x.holding = slices.DeleteFunc(x.holding, func(q *snapshot.Pod) bool { return q == p })
			}
			x.decide(p)
			if p.Node() == nil && p.Nominated() == nil && r.IntN(2) == 0 { // another one of its shape
				again := p.Obj.DeepCopy()
				again.Name, again.UID = again.Name+"-again", again.UID+"-again"
				x.decide(x.snap.NewPod(again))
			}
			if p.Node() == nil && p.Nominated() != nil && !slices.Contains(x.holding, p) {
				x.holding = append(x.holding, p)
			}
		}
		stood, met = stood+x.stood, met+x.met
	}
	if stood < 100 || met < 1000 {
		t.Errorf("%d setbacks stood and %d decisions were compared, want 100 and 1000", stood, met)
	}
}

func TestNothingIsRememberedAtRest(t *testing.T) {
	x := newTwins(t, rand.New(rand.NewPCG(1, 1)), 5)
	l, c := x.loop, x.remembers
	for i := range 3 {
		p := x.snap.NewPod(parsePod(split(fmt.Sprint("p", i, " cpu=100"))))
		c.preempt(c.decide(p).unfit)
	}
	if len(c.memos.byShape) != 1 {
		t.Errorf("%d shapes are remembered, want 1", len(c.memos.byShape))
	}
	l.tried = dawn
	l.rest(second(59))
	if next := l.next(); len(c.memos.byShape) != 1 || !next.Equal(second(60)) {
		t.Errorf("after 59s: %d shapes, next at %v; want 1 shape, and to forget it after 60s", len(c.memos.byShape), next.Sub(dawn))
	}
	l.rest(second(60))
	if next := l.next(); len(c.memos.byShape) != 0 || !next.IsZero() {
		t.Errorf("after 60s: %d shapes, next at %v; want nothing", len(c.memos.byShape), next)
	}
}

// TestEventsWakePodsOfAShapeTogether compares whom random events wake with what the plugins say of each
// waiting pod.
func TestEventsWakePodsOfAShapeTogether(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 3))
	woken, left := 0, 0
	for range 40 {
		x := newTwins(t, r, 2+r.IntN(6))
		by := x.loop.profiles[config.DefaultName]
		for range 40 {
			x.turn()
			item := x.loop.queue.add(x.pod(), by, dawn)
			d := by.decide(item.pod)
			if d.unfit != nil {
				x.loop.queue.refuse(item, d.unfit.plugins, dawn)
				continue
			}
			x.loop.queue.remove(item)
			if d.node != nil {
				x.snap.Add(item.pod, d.node.Name)
				x.pods = append(x.pods, item.pod)
			}
		}
		for range 10 {
			x.turn()
			e := plugins.Event{Kind: plugins.NodeAdded << r.IntN(8)}
			if n := x.snap.Node(fmt.Sprint("n", r.IntN(x.nodes))); n != nil && e.Kind != plugins.NodeRemoved {
				e.Node = n
			}
			if e.Kind == plugins.PodAdded || e.Kind == plugins.PodRemoved {
				e.Pod = x.pod()
			}
			want := map[*pending]bool{}
			for _, item := range x.loop.queue.pods {
				if item.place == unschedulable {
					want[item] = by.plugins.Cares(item.refused, e.Kind) && by.plugins.Wakes(item.refused, &plugins.Cycle{Snapshot: x.snap, Pod: item.pod}, &e)
				}
			}
			x.loop.wake(e)
			for item, wakes := range want {
				if got := item.place != unschedulable; got != wakes {
					t.Fatalf("event %v wakes pod %s: %t, want %t", e.Kind, item.pod.Obj.Name, got, wakes)
				}
				if wakes {
					woken++
					x.loop.queue.remove(item)
				} else {
					left++
				}
			}
		}
	}
	if woken < 100 || left < 100 {
		t.Errorf("%d woken, %d not, want 100 of each", woken, left)
	}
}
