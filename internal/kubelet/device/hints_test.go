package device

import (
	"fmt"
	"testing"

	"github.com/kemudi/kemudi/internal/kubelet/fakemachine"
	"github.com/kemudi/kemudi/internal/kubelet/fakeplugin"
	"github.com/kemudi/kemudi/internal/kubelet/numa"
)

func TestNodesThatHaveDevicesAreHinted(t *testing.T) {
	t.Parallel()
	m := fakemachine.New(t, fakemachine.Shape{Sockets: 2, Cores: 1})
	b := newBed(t).start(nil)
	f := fakeplugin.NewDevices(t, b.dir, gpu)
	for id, node := range map[string]int64{"a": 0, "b": 0, "c": 1} {
		f.SetAt(id, node)
	}
	f.Serve()
	b.register(f)
	hints := func(h numa.Hints) string {
		list, ok := h[gpu]
		if !ok || list == nil {
			return "any"
		}
		out := ""
		for _, one := range list {
			out += fmt.Sprintf("%s,preferred=%t ", one.Nodes, one.Preferred)
		}
		return out
	}
	const zero, one, both = "0,preferred=true ", "1,preferred=true ", "0,1,preferred=false "
	want := func(what, got, want string) {
		t.Helper()
		if got != want {
			t.Errorf("%s: got %q, want %q", what, got, want)
		}
	}
	p := podOf("p", "2")
	want("two", hints(b.m.Hints(m, p, &p.Spec.Containers[0])), zero+both)
	p = podOf("p", "1")
	want("one", hints(b.m.Hints(m, p, &p.Spec.Containers[0])), zero+one+both)
	want("four", hints(b.m.PodHints(m, podOf("p", "2", "2"))), "")
	want("a pod with two, one after another", hints(b.m.PodHints(m, podOf("p", "i2", "1", "1"))), zero+both)

	// Near node 1 there is one: the other is of node 0.
	if _, err := b.m.Give(t.Context(), podOf("q", "1"), &podOf("q", "1").Spec.Containers[0], numa.MaskOf(1)); err != nil {
		t.Fatal(err)
	}
	want("near node 1", b.got(podOf("q", "1"), "c0"), "c")
	p = podOf("p", "1")
	want("what is left", hints(b.m.Hints(m, p, &p.Spec.Containers[0])), zero+both)
	q := podOf("q", "1")
	want("what a container has", hints(b.m.Hints(m, q, &q.Spec.Containers[0])), one+both)
	q = podOf("q", "2")
	want("another number than it has", hints(b.m.Hints(m, q, &q.Spec.Containers[0])), "")

	if _, err := b.m.Give(t.Context(), podOf("r", "i1", "2"), &podOf("r", "i1", "2").Spec.InitContainers[0], 0); err != nil {
		t.Fatal(err)
	}
	r := podOf("r", "i1", "1")
	want("what an init container hands on", hints(b.m.Hints(m, r, &r.Spec.Containers[0])), zero+both)

	other := podOf("other", "1")
	delete(other.Spec.Containers[0].Resources.Limits, gpu)
	want("a container without", hints(b.m.Hints(m, other, &other.Spec.Containers[0])), "any")
	b.plugin("example.com/nowhere", "x")
	other.Spec.Containers[0].Resources.Limits["example.com/nowhere"] = other.Spec.Containers[0].Resources.Limits["example.com/other"]
	if list, ok := b.m.Hints(m, other, &other.Spec.Containers[0])["example.com/nowhere"]; !ok || list != nil {
		t.Errorf("devices that are at no node: got %v, want that they do not care", list)
	}
}
