package scheduler

import (
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/yaml"

	"github.com/kemudi/kemudi/internal/client"
	"github.com/kemudi/kemudi/internal/scheduler/config"
	"github.com/kemudi/kemudi/internal/scheduler/devices"
	"github.com/kemudi/kemudi/internal/scheduler/plugins"
	"github.com/kemudi/kemudi/internal/scheduler/snapshot"
)

const benchNodes = 5000

// benchCases are upstream's performance cases at 5,000 nodes. Each pod is parsed,
// decided and put on its node; what it takes to bind it is measured elsewhere.
var benchCases = []struct {
	name    string
	pod     string
	running int // pods there from the start
	most    int // pods to schedule before starting anew
}{
	{"plain", "app=a cpu=100m mem=500Mi", 5000, 50000},
	{"node affinity", "app=a cpu=100m mem=500Mi 'affinity=zone in (moon-1,moon-2)'", 5000, 50000},
	{"rare node affinity", "app=a cpu=100m mem=500Mi 'affinity=rare in (yes)'", 5000, 1000},
	{"pod anti-affinity", "color=green cpu=100m mem=500Mi apart=host:color=green", 1000, 3000},
	{"pod affinity", "color=green cpu=100m mem=500Mi near=zone:color=green", 5000, 50000},
	{"topology spread", "color=blue cpu=100m mem=500Mi spread=zone:5:color=blue", 5000, 50000},
	{"topology spread over nodes", "color=blue cpu=100m mem=500Mi spread=host:1:color=blue", 5000, 50000},
	{"default spread of a service", "app=web cpu=100m mem=500Mi", 5000, 50000},
	{"preferred pod anti-affinity", "color=red cpu=100m mem=500Mi wantapart=10:host:color=red", 5000, 50000},
	{"preferred pod affinity", "color=red cpu=100m mem=500Mi wantnear=10:host:color=red", 5000, 50000},
	{"pod anti-affinity by namespace selector", "color=green cpu=100m mem=500Mi apart=host:color=green:team=devops", 1000, 3000},
	{"unschedulable", "cpu=64", 5000, 50000},
}

func benchCluster(pod string, running int) *cycle {
	snap := snapshot.New(nil)
	snap.SetNamespace("default", map[string]string{"team": "devops"})
	for i := range 100 {
		snap.SetNamespace(fmt.Sprintf("team-%d", i), map[string]string{"team": "devops"})
	}
	snap.SetService("default", "web", map[string]string{"app": "web"})
	for i := range benchNodes {
		words := []string{fmt.Sprintf("node-%d", i), "cpu=16", "mem=64Gi", fmt.Sprintf("zone=moon-%d", i%3+1)}
		if i%100 == 0 {
			words = append(words, "rare=yes")
		}
		snap.SetNode(parseNode(words))
	}
	for i := range running {
		p := parsePod(append([]string{fmt.Sprintf("running-%d", i)}, split(pod)...))
		p.Spec.NodeName = fmt.Sprintf("node-%d", i%benchNodes)
		snap.Add(snap.NewPod(p), p.Spec.NodeName)
	}
	return newCycle(snap)
}

func BenchmarkCycle(b *testing.B) {
	for _, bc := range benchCases {
		b.Run(bc.name, func(b *testing.B) {
			b.ReportAllocs()
			c := benchCluster(bc.pod, bc.running)
			template := parsePod(append([]string{"pod"}, split(bc.pod)...))
			placed, total := 0, 0
			var spent time.Duration
			for b.Loop() {
				if placed == bc.most {
					b.StopTimer()
					c, placed = benchCluster(bc.pod, bc.running), 0
					b.StartTimer()
				}
				obj := *template // as decoded: everything its own, but for what is immutable
				obj.UID = types.UID(fmt.Sprintf("pod-%d", total))
				started := time.Now()
				scheduleOne(b, c, &obj)
				spent += time.Since(started)
				placed++
				total++
			}
			b.ReportMetric(float64(total)/spent.Seconds(), "pods/s")
		})
	}
}

func scheduleOne(b *testing.B, c *cycle, obj *corev1.Pod) {
	p := c.snapshot.NewPod(obj)
	d := c.decide(p)
	switch {
	case d.err != nil:
		b.Fatal(d.err)
	case d.node != nil:
		c.snapshot.Add(p, d.node.Name)
	case obj.Spec.Containers[0].Resources.Requests.Cpu().Value() < 64:
		b.Fatal(d.unfit.message())
	default:
		_ = d.unfit.message()
	}
}

// BenchmarkDaemon puts one pod on each of 15,000 nodes, each bound to its node by
// name as a DaemonSet's are.
func BenchmarkDaemon(b *testing.B) {
	const nodes = 15000
	b.ReportAllocs()
	var c *cycle
	next, total := nodes, 0
	var spent time.Duration
	for b.Loop() {
		if next == nodes {
			b.StopTimer()
			snap := snapshot.New(nil)
			for i := range nodes {
				snap.SetNode(parseNode([]string{fmt.Sprintf("node-%d", i), "cpu=16", "mem=64Gi"}))
			}
			c, next = newCycle(snap), 0
			b.StartTimer()
		}
		obj := parsePod(split(fmt.Sprintf("daemon-%d cpu=100m mem=100Mi names=node-%d", total, next)))
		started := time.Now()
		scheduleOne(b, c, obj)
		spent += time.Since(started)
		next++
		total++
	}
	b.ReportMetric(float64(total)/spent.Seconds(), "pods/s")
}

// BenchmarkPreemptionEverywhere has important pods make room on 5,000 nodes that are full of
// four less important ones each; the victims go at once.
func BenchmarkPreemptionEverywhere(b *testing.B) {
	b.ReportAllocs()
	var c *cycle
	left, total := 0, 0
	var spent time.Duration
	for b.Loop() {
		if left == 0 {
			b.StopTimer()
			c, left = fullCluster(), benchNodes
			b.StartTimer()
		}
		obj := parsePod(split(fmt.Sprintf("high-%d cpu=3 mem=500Mi prio=10", total)))
		started := time.Now()
		p := c.snapshot.NewPod(obj)
		d := c.decide(p)
		if d.unfit == nil {
			b.Fatalf("pod %d fits: %+v", total, d)
		}
		_ = d.unfit.message()
		pre, _ := c.preempt(d.unfit)
		if pre.node == nil {
			b.Fatal(pre.message)
		}
		c.snapshot.Nominate(p, pre.node.Name)
		for _, v := range pre.victims {
			c.snapshot.Remove(v)
		}
		if d = c.decide(p); d.node != pre.node {
			b.Fatalf("pod %d went to %+v, want %s", total, d, pre.node.Name)
		}
		c.snapshot.Nominate(p, "")
		c.snapshot.Add(p, d.node.Name)
		spent += time.Since(started)
		left--
		total++
	}
	b.ReportMetric(float64(total)/spent.Seconds(), "pods/s")
}

func fullCluster() *cycle {
	snap := snapshot.New(nil)
	for i := range benchNodes {
		name := fmt.Sprintf("node-%d", i)
		snap.SetNode(parseNode([]string{name, "cpu=4", "mem=32Gi"}))
		for j := range 4 {
			p := parsePod(split(fmt.Sprintf("low-%d-%d cpu=900m mem=500Mi on=%s", i, j, name)))
			snap.Add(snap.NewPod(p), name)
		}
	}
	return newCycle(snap)
}

// benchLoop is a scheduler's state with 10,000 pods that fit nowhere.
func benchLoop(unschedulable int) *loop {
	snap := benchCluster("cpu=100m mem=500Mi", 5000).snapshot
	l := &loop{
		Scheduler: New(Options{}), snapshot: snap, queue: newQueue(time.Second, 10*time.Second), held: newHeld(), budgets: newBudgets(),
		profiles: newProfiles(config.Default().Profiles, snap, newBudgets(), func(string) client.EventSink { return client.NoEvents }),
	}
	by, now := l.profiles[config.DefaultName], time.Now()
	by.watch = newStopwatch(l.metrics.timings, by.name, by.plugins)
	for i := range unschedulable {
		p := snap.NewPod(parsePod(split(fmt.Sprintf("large-%d cpu=64", i))))
		item := l.queue.add(p, by, now)
		l.queue.pop(now)
		l.queue.refuse(item, by.decide(p).unfit.plugins, now)
	}
	return l
}

// BenchmarkNodeComes has a node come and go beside 10,000 pods that fit nowhere, none of which was
// promised it.
func BenchmarkNodeComes(b *testing.B) {
	l := benchLoop(10000)
	b.ReportAllocs()
	for b.Loop() {
		n := parseNode([]string{"late", "cpu=1"})
		l.takeNode(n, false)
		l.takeNode(n, true)
	}
}

// BenchmarkLoop schedules plain pods, what it takes to bind them excepted, beside
// others that fit nowhere, and while nodes, services and pods come and go.
func BenchmarkLoop(b *testing.B) {
	for _, bc := range []struct {
		name          string
		unschedulable int
		churn         int // pods between two changes of the cluster; 0: none
	}{{"beside 10,000 unschedulable", 10000, 0}, {"mixed churn", 100, 500}} {
		b.Run(bc.name, func(b *testing.B) {
			b.ReportAllocs()
			var l *loop
			placed, total := 50000, 0
			var spent time.Duration
			for b.Loop() {
				if placed == 50000 {
					b.StopTimer()
					l, placed = benchLoop(bc.unschedulable), 0
					b.StartTimer()
				}
				obj := parsePod(split(fmt.Sprintf("pod-%d cpu=100m mem=500Mi", total)))
				started := time.Now()
				if bc.churn > 0 && total%bc.churn == 0 {
					churn(l, total)
				}
				l.scheduleOne(b, obj)
				spent += time.Since(started)
				placed++
				total++
			}
			b.ReportMetric(float64(total)/spent.Seconds(), "pods/s")
		})
	}
}

// BenchmarkWake has pods leave their node while others wait that this does not help: as many as are
// alike cost what one does.
func BenchmarkWake(b *testing.B) {
	for _, waiting := range []int{1000, 10000} {
		b.Run(fmt.Sprintf("waiting=%d", waiting), func(b *testing.B) {
			b.ReportAllocs()
			l := benchLoop(waiting)
			n := l.snapshot.Node("node-0")
			e := plugins.Event{Kind: plugins.PodRemoved, Node: n, Pod: n.Pods[0]}
			for b.Loop() {
				l.wake(e)
			}
			if l.queue.counts[unschedulable] != waiting {
				b.Fatal("some were woken")
			}
		})
	}
}

// scheduleOne takes a pending pod in and puts it on its node.
func (l *loop) scheduleOne(b *testing.B, obj *corev1.Pod) {
	now := time.Now()
	item := l.queue.add(l.snapshot.NewPod(obj), l.profiles[config.DefaultName], now)
	for popped := l.queue.pop(now); popped != item; popped = l.queue.pop(now) {
		switch d := popped.by.decide(popped.pod); {
		case d.setback != nil:
			l.queue.refuse(popped, d.setback.plugins, now)
		case d.unfit != nil:
			s := setback{message: d.unfit.message(), plugins: d.unfit.plugins}
			if pre, _ := popped.by.preempt(d.unfit); pre.node == nil {
				popped.by.stands(s)
			}
			l.queue.refuse(popped, s.plugins, now)
		}
	}
	d := item.by.decide(item.pod)
	if d.node == nil {
		b.Fatalf("pod %s: %v", obj.Name, d.err)
	}
	l.snapshot.Add(item.pod, d.node.Name)
	l.wake(plugins.Event{Kind: plugins.PodAdded, Node: d.node, Pod: item.pod})
	l.queue.remove(item)
}

// churn has a node, a service and an important pod that is too large come, as upstream's benchmark of
// this name does each second, and those of the time before go; a pod that runs goes too.
func churn(l *loop, n int) {
	for _, item := range l.queue.pods {
		if item.pod.Priority > 0 {
			l.queue.remove(item)
		}
	}
	l.queue.add(l.snapshot.NewPod(parsePod(split(fmt.Sprintf("important-%d cpu=64 prio=10", n)))), l.profiles[config.DefaultName], time.Now())
	name := fmt.Sprintf("churn-%d", n%2)
	l.snapshot.RemoveNode(name)
	l.wake(plugins.Event{Kind: plugins.NodeRemoved})
	node, _ := l.snapshot.SetNode(parseNode([]string{name, "cpu=16", "mem=64Gi", "zone=moon-1"}))
	l.wake(plugins.Event{Kind: plugins.NodeAdded, Node: node})
	l.snapshot.SetService("default", name, map[string]string{"churn": name})
	for p := range l.snapshot.Pods() {
		l.takeOff(p)
		break
	}
}

// BenchmarkDevices gives each pod a claim of its own, on 500 nodes with ten devices each: pods are parsed
// and decided, and their claims promised devices; what it takes to write that is measured elsewhere.
func BenchmarkDevices(b *testing.B) {
	const nodes, each = 500, 10
	for _, bc := range []struct{ name, claim string }{
		{"one device", "{requests: [{name: r, exactly: {deviceClassName: gpu}}]}"},
		{"a selector", `{requests: [{name: r, exactly: {deviceClassName: gpu, selectors: [{cel: {expression: 'device.attributes["d.io"].numa == 1'}}]}}]}`},
		{"two that match", "{requests: [{name: r, exactly: {deviceClassName: gpu, count: 2}}], constraints: [{matchAttribute: d.io/numa}]}"},
		{"the second of two", "{requests: [{name: r, firstAvailable: [{name: many, deviceClassName: gpu, count: 11}, {name: one, deviceClassName: gpu}]}]}"},
	} {
		b.Run(bc.name, func(b *testing.B) {
			b.ReportAllocs()
			var claim resourcev1.ResourceClaim
			if err := yaml.UnmarshalStrict([]byte(bc.claim), &claim.Spec.Devices); err != nil {
				b.Fatal(err)
			}
			var c *cycle
			left, total := 0, 0
			var spent time.Duration
			for b.Loop() {
				if left == 0 {
					b.StopTimer()
					c, left = deviceCluster(b, nodes, each), nodes*each/4
					b.StartTimer()
				}
				name := fmt.Sprintf("pod-%d", total)
				obj := parsePod([]string{name, "cpu=10m", "uses=" + name})
				mine := claim
				mine.Namespace, mine.Name, mine.UID = "default", name, types.UID(name)
				started := time.Now()
				c.snapshot.SetResourceClaim(&mine)
				p := c.snapshot.NewPod(obj)
				d := c.decide(p)
				if d.node == nil {
					b.Fatal(d.err, d.unfit)
				}
				c.snapshot.Add(p, d.node.Name)
				for i := range c.plugins.Late {
					if late := &c.plugins.Late[i]; late.Reserver != nil && !late.Idle(c.idle) {
						if why := late.Reserve(&c.pod, d.node); why != nil {
							b.Fatal(why.Texts)
						}
					}
				}
				spent += time.Since(started)
				left--
				total++
			}
			b.ReportMetric(float64(total)/spent.Seconds(), "pods/s")
		})
	}
}

// deviceCluster is nodes with so many devices each.
func deviceCluster(b *testing.B, nodes, each int) *cycle {
	b.Helper()
	snap := snapshot.New(nil)
	snap.Compile(devices.Expressions(b.Context()))
	snap.SetDeviceClass(benchClass())
	for i := range nodes {
		snap.SetNode(parseNode([]string{fmt.Sprintf("node-%d", i), "cpu=16", "mem=64Gi"}))
		snap.Devices().SetSlice(benchSlice(i, each))
	}
	return newCycle(snap)
}

func benchClass() *resourcev1.DeviceClass {
	return &resourcev1.DeviceClass{ObjectMeta: metav1.ObjectMeta{Name: "gpu"}, Spec: resourcev1.DeviceClassSpec{
		Selectors: []resourcev1.DeviceSelector{{CEL: &resourcev1.CELDeviceSelector{Expression: `device.driver == "d.io"`}}},
	}}
}

// benchSlice is the devices of the node with the number.
func benchSlice(node, devices int) *resourcev1.ResourceSlice {
	name := fmt.Sprintf("node-%d", node)
	s := &resourcev1.ResourceSlice{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: resourcev1.ResourceSliceSpec{
		Driver: "d.io", NodeName: &name, Pool: resourcev1.ResourcePool{Name: name, Generation: 1, ResourceSliceCount: 1},
	}}
	for i := range devices {
		s.Spec.Devices = append(s.Spec.Devices, resourcev1.Device{
			Name:       fmt.Sprintf("gpu-%d", i),
			Attributes: map[resourcev1.QualifiedName]resourcev1.DeviceAttribute{"numa": {IntValue: ptr.To(int64(i % 2))}},
		})
	}
	return s
}
