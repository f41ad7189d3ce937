package kubelet

import (
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kemudi/kemudi/internal/api/core"
	"github.com/kemudi/kemudi/internal/client"
	"github.com/kemudi/kemudi/internal/kubelet/fakecri"
	"github.com/kemudi/kemudi/internal/trace"
)

func (n *testNode) node() *v1.Node {
	n.t.Helper()
	synctest.Wait()
	node, err := client.For(n.api, core.Nodes).Get(n.t.Context(), "", "n1")
	if err != nil {
		n.t.Fatal(err)
	}
	return node
}

func TestNodeRegistersWithWhatItWasTold(t *testing.T) {
	trace.Proves(t, "NODE-003", "NODE-005", "NODE-007", "NODE-008", "NODE-011", "NODE-012", "NODE-013", "NODE-015",
		"NODE-070", "NODE-071", "NODE-072", "NODE-073", "NODE-084")
	inBubble(t, func(t *testing.T) {
		n := &testNode{t: t, api: newMemAPI(), cri: fakecri.New(fakecri.Options{}), with: func(o *Options) {
			o.Labels = map[string]string{"disk": "ssd"}
			o.Taints = []v1.Taint{{Key: "team", Value: "a", Effect: v1.TaintEffectNoSchedule}}
			o.NodeIPs = []string{"10.0.0.5", "fd00::5"}
			o.Reserved = v1.ResourceList{v1.ResourceMemory: resource.MustParse("1Gi")}
		}}
		n.run()
		defer func() { n.end() }()
		node := n.node()
		if node.Labels["disk"] != "ssd" || node.Labels[v1.LabelOSStable] != runtime.GOOS || len(node.Spec.Taints) != 1 || node.Spec.Taints[0].Key != "team" {
			t.Errorf("got labels %v and taints %v", node.Labels, node.Spec.Taints)
		}
		want := []v1.NodeAddress{{Type: v1.NodeInternalIP, Address: "10.0.0.5"}, {Type: v1.NodeInternalIP, Address: "fd00::5"}, {Type: v1.NodeHostName, Address: "n1"}}
		if len(node.Status.Addresses) != 3 || node.Status.Addresses[0] != want[0] || node.Status.Addresses[1] != want[1] || node.Status.Addresses[2] != want[2] {
			t.Errorf("got addresses %v, want %v", node.Status.Addresses, want)
		}
		if got := node.Status.Capacity.Memory().String() + " " + node.Status.Allocatable.Memory().String() + " " + node.Status.Capacity.Pods().String(); got != "8Gi 7Gi 20" {
			t.Errorf("got memory, what is left of it for pods, and pods: %s, want 8Gi 7Gi 20", got)
		}
		for kind, status := range map[v1.NodeConditionType]v1.ConditionStatus{
			v1.NodeReady: v1.ConditionTrue, v1.NodeMemoryPressure: v1.ConditionFalse, v1.NodeDiskPressure: v1.ConditionFalse, v1.NodePIDPressure: v1.ConditionFalse,
		} {
			if c := core.NodeCondition(&node.Status, kind); c == nil || c.Status != status || c.LastHeartbeatTime.IsZero() || c.LastTransitionTime.IsZero() {
				t.Errorf("condition %s: got %+v, want %s", kind, c, status)
			}
		}
		if c := core.NodeCondition(&node.Status, v1.NodeReady); c.Reason != "KubeletReady" || c.Message != "kubelet is posting ready status" {
			t.Errorf("got reason %s, message %q", c.Reason, c.Message)
		}
	})
}

func TestNodeKnowsItsMachine(t *testing.T) {
	trace.Proves(t, "NODE-030", "NODE-031")
	m := readMachine()
	if m.kernel == "" || m.bootID == "" || m.osImage == "" {
		t.Errorf("got %+v, want the kernel, the boot and the operating system", m)
	}
	inBubble(t, func(t *testing.T) {
		n := &testNode{t: t, api: newMemAPI(), cri: fakecri.New(fakecri.Options{}), with: func(o *Options) { o.Version = "v1.37.0" }}
		n.run()
		defer func() { n.end() }()
		info := n.node().Status.NodeInfo
		if info.KubeletVersion != "v1.37.0" || info.ContainerRuntimeVersion == "://" || info.OperatingSystem != runtime.GOOS || info.Architecture != runtime.GOARCH {
			t.Errorf("got %+v", info)
		}
	})
}

func TestAdministratorsChangesToANodeStay(t *testing.T) {
	trace.Proves(t, "NODE-078", "NODE-079")
	inBubble(t, func(t *testing.T) {
		n := newNode(t, fakecri.Options{})
		defer func() { n.end() }()
		node := n.node().DeepCopy()
		node.Labels["rack"], node.Spec.Unschedulable = "7", true
		node.Spec.Taints = append(node.Spec.Taints, v1.Taint{Key: "mine", Effect: v1.TaintEffectNoExecute})
		if _, err := client.For(n.api, core.Nodes).Update(t.Context(), node); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Hour)
		n.end()
		n.run()
		time.Sleep(time.Hour)
		if node := n.node(); node.Labels["rack"] != "7" || !node.Spec.Unschedulable || len(node.Spec.Taints) != 1 {
			t.Errorf("got labels %v, unschedulable %t, taints %v", node.Labels, node.Spec.Unschedulable, node.Spec.Taints)
		}
	})
}

func TestNodeThatPeopleMakeIsWaitedFor(t *testing.T) {
	trace.Proves(t, "NODE-071", "NODE-077")
	inBubble(t, func(t *testing.T) {
		n := &testNode{t: t, api: newMemAPI(), cri: fakecri.New(fakecri.Options{}), with: func(o *Options) {
			o.ByHand = true
			o.Taints = []v1.Taint{{Key: "team", Effect: v1.TaintEffectNoSchedule}}
		}}
		n.run()
		defer func() { n.end() }()
		time.Sleep(time.Minute)
		nodes := client.For(n.api, core.Nodes)
		if node, err := nodes.Get(t.Context(), "", "n1"); err == nil {
			t.Fatalf("got node %s, want none before people make it", node.Name)
		}
		if _, err := nodes.Create(t.Context(), &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1"}}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(10 * time.Second)
		node := n.node()
		if c := core.NodeCondition(&node.Status, v1.NodeReady); c == nil || c.Status != v1.ConditionTrue || len(node.Spec.Taints) != 0 || len(node.Labels) != 0 {
			t.Errorf("got condition %+v, taints %v, labels %v; want ready and as it was made", c, node.Spec.Taints, node.Labels)
		}
	})
}
