package kubelet

import (
	"bytes"
	"fmt"
	"log/slog"
	"runtime"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kemudi/kemudi/internal/api/core"
	"github.com/kemudi/kemudi/internal/client"
	"github.com/kemudi/kemudi/internal/kubelet/fakecri"
	"github.com/kemudi/kemudi/internal/kubelet/machine"
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

func TestPeopleAreToldOfSecretsThatMayBeSwapped(t *testing.T) {
	const told = "The tmpfs noswap option is not supported. Memory-backed volumes (e.g. secrets, emptyDirs, etc.) might be swapped to disk and should no longer be considered secure."
	for _, c := range []struct {
		swap int64
		stay bool
		want string
	}{{0, false, ""}, {1 << 30, true, ""}, {1 << 30, false, told}} {
		if got := swapped(c.swap, c.stay); got != c.want {
			t.Errorf("%d bytes of swap, volumes that stay in memory %v: got %q, want %q", c.swap, c.stay, got, c.want)
		}
	}
}

func TestNodeThatRegistersClosedTakesPodsWhenItIsUncordoned(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		n := &testNode{t: t, api: newMemAPI(t), cri: fakecri.New(fakecri.Options{}), with: func(o *Options) {
			o.Closed = true
			o.Taints = []v1.Taint{{Key: "team", Value: "a", Effect: v1.TaintEffectNoSchedule}}
		}}
		n.run()
		defer func() { n.end() }()
		node := n.node()
		var keys []string
		for _, taint := range node.Spec.Taints {
			keys = append(keys, taint.Key+":"+string(taint.Effect))
		}
		if want := []string{"team:NoSchedule", "node.kubernetes.io/unschedulable:NoSchedule"}; !node.Spec.Unschedulable || !slices.Equal(keys, want) {
			t.Errorf("got unschedulable %v, taints %v, want it cordoned, with taints %v", node.Spec.Unschedulable, keys, want)
		}
		n.end()
		node = node.DeepCopy()
		node.Spec.Unschedulable, node.Spec.Taints = false, nil
		if _, err := client.For(n.api, core.Nodes).Update(t.Context(), node); err != nil {
			t.Fatal(err)
		}
		n.run() // a node that is there already stays as people have made it
		if node := n.node(); node.Spec.Unschedulable || len(node.Spec.Taints) != 0 {
			t.Errorf("when it has been uncordoned, and the agent starts anew: got %+v", node.Spec)
		}
	})
}

func TestNodeRegistersWithWhatItWasTold(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		n := &testNode{t: t, api: newMemAPI(t), cri: fakecri.New(fakecri.Options{}), with: func(o *Options) {
			o.Labels = map[string]string{"disk": "ssd"}
			o.Taints = []v1.Taint{{Key: "team", Value: "a", Effect: v1.TaintEffectNoSchedule}}
			o.NodeIPs = []string{"10.0.0.5", "fd00::5"}
			o.Settings.KubeReserved = Reserved{v1.ResourceMemory: resource.MustParse("768Mi"), v1.ResourceCPU: resource.MustParse("500m")}
			o.Settings.SystemReserved = Reserved{v1.ResourceMemory: resource.MustParse("256Mi")}
			o.Settings.ProviderID = "cloud://a/5"
			o.Capacity = o.Capacity.DeepCopy()
			o.Capacity["hugepages-2Mi"] = resource.MustParse("512Mi")
		}}
		n.run()
		defer func() { n.end() }()
		node := n.node()
		trace.Proves(t, "NODE-070", "NODE-071/given", "NODE-073")
		if node.Labels["disk"] != "ssd" || node.Labels[v1.LabelOSStable] != runtime.GOOS || len(node.Spec.Taints) != 1 || node.Spec.Taints[0].Key != "team" {
			t.Errorf("got labels %v and taints %v", node.Labels, node.Spec.Taints)
		}
		if node.Spec.ProviderID != "cloud://a/5" {
			t.Errorf("got provider ID %q, want cloud://a/5", node.Spec.ProviderID)
		}
		want := []v1.NodeAddress{{Type: v1.NodeInternalIP, Address: "10.0.0.5"}, {Type: v1.NodeInternalIP, Address: "fd00::5"}, {Type: v1.NodeHostName, Address: "n1"}}
		trace.Proves(t, "NODE-005/override", "NODE-007", "NODE-072")
		if len(node.Status.Addresses) != 3 || node.Status.Addresses[0] != want[0] || node.Status.Addresses[1] != want[1] || node.Status.Addresses[2] != want[2] {
			t.Errorf("got addresses %v, want %v", node.Status.Addresses, want)
		}
		trace.Proves(t, "NODE-084")
		if got := node.Status.Capacity.Cpu().String() + " " + node.Status.Capacity.Memory().String() + " " + node.Status.Allocatable.Memory().String() + " " + node.Status.Capacity.Pods().String(); got != "4 8Gi 6656Mi 20" {
			t.Errorf("got CPUs, memory, what is left of it for pods without huge pages, and pods: %s, want 4 8Gi 6656Mi 20", got)
		}
		if got := node.Status.Allocatable.Cpu().String(); got != "3500m" {
			t.Errorf("got %s CPUs for pods, want 3500m of 4", got)
		}
		trace.Proves(t, "NODE-003")
		if s := node.Status; len(s.Addresses) == 0 || len(s.Conditions) == 0 || len(s.Capacity) == 0 || s.NodeInfo.OperatingSystem == "" {
			t.Errorf("got the status %+v, want addresses, conditions, capacity and info", s)
		}
		for _, want := range []struct {
			kind   v1.NodeConditionType
			status v1.ConditionStatus
			proves string
		}{
			{v1.NodeReady, v1.ConditionTrue, "NODE-008"},
			{v1.NodeMemoryPressure, v1.ConditionFalse, "NODE-011/otherwise"},
			{v1.NodePIDPressure, v1.ConditionFalse, "NODE-012/otherwise"},
			{v1.NodeDiskPressure, v1.ConditionFalse, "NODE-013/otherwise"},
		} {
			trace.Proves(t, want.proves)
			if c := core.NodeCondition(&node.Status, want.kind); c == nil || c.Status != want.status || c.LastHeartbeatTime.IsZero() || c.LastTransitionTime.IsZero() {
				t.Errorf("condition %s: got %+v, want %s", want.kind, c, want.status)
			}
		}
		trace.Proves(t, "NODE-015", "NODE-010/true")
		if c := core.NodeCondition(&node.Status, v1.NodeReady); c.Status != v1.ConditionTrue || c.Reason != "KubeletReady" || c.Message != "kubelet is posting ready status" {
			t.Errorf("got reason %s, message %q", c.Reason, c.Message)
		}
	})
}

func TestNodeKnowsItsMachine(t *testing.T) {
	m := machine.Identify()
	if m.Kernel == "" || m.BootID == "" || m.OSImage == "" {
		t.Errorf("got %+v, want the kernel, the boot and the operating system", m)
	}
	inBubble(t, func(t *testing.T) {
		n := &testNode{t: t, api: newMemAPI(t), cri: fakecri.New(fakecri.Options{}), with: func(o *Options) { o.Version = "v1.37.0" }}
		n.run()
		defer func() { n.end() }()
		info := n.node().Status.NodeInfo
		if info.KubeletVersion != "v1.37.0" || info.ContainerRuntimeVersion == "://" || info.OperatingSystem != runtime.GOOS || info.Architecture != runtime.GOARCH {
			t.Errorf("got %+v", info)
		}
	})
}

func TestAdministratorsChangesToANodeStay(t *testing.T) {
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
		trace.Proves(t, "NODE-078", "NODE-079")
		if node := n.node(); node.Labels["rack"] != "7" || !node.Spec.Unschedulable || len(node.Spec.Taints) != 1 {
			t.Errorf("got labels %v, unschedulable %t, taints %v", node.Labels, node.Spec.Unschedulable, node.Spec.Taints)
		}
	})
}

func TestNodeSaysItselfWhichSystemItHas(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		n := newNode(t, fakecri.Options{})
		defer func() { n.end() }()
		for _, labels := range []map[string]string{{v1.LabelOSStable: "dummy", v1.LabelArchStable: "dummy", "rack": "7"}, nil} {
			node := n.node().DeepCopy()
			node.Labels = labels
			if _, err := client.For(n.api, core.Nodes).Update(t.Context(), node); err != nil {
				t.Fatal(err)
			}
			time.Sleep(time.Minute)
			if got := n.node().Labels; got[v1.LabelOSStable] != runtime.GOOS || got[v1.LabelArchStable] != runtime.GOARCH || got["rack"] != labels["rack"] {
				t.Errorf("after somebody has made them %v: got labels %v", labels, got)
			}
		}
	})
}

func TestNodeTellsWhenPodsMayNotCome(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		n := newNode(t, fakecri.Options{})
		defer func() { n.end() }()
		told := func(want ...string) {
			t.Helper()
			time.Sleep(10 * time.Second)
			synctest.Wait()
			var got []string
			for _, e := range n.api.TakeEvents() {
				if strings.Contains(e, "chedulable") {
					got = append(got, e)
				}
			}
			if !slices.Equal(got, want) {
				t.Errorf("events: got %q, want %q", got, want)
			}
		}
		cordon := func(is bool) {
			t.Helper()
			node := n.node().DeepCopy()
			node.Spec.Unschedulable = is
			if _, err := client.For(n.api, core.Nodes).Update(t.Context(), node); err != nil {
				t.Fatal(err)
			}
		}
		told()
		cordon(true)
		told("n1 Normal NodeNotSchedulable: Node n1 status is now: NodeNotSchedulable")
		cordon(false)
		told("n1 Normal NodeSchedulable: Node n1 status is now: NodeSchedulable")
		told()
	})
}

func TestNodeTellsHowItIsWhenItsAgentStarts(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		n := newNode(t, fakecri.Options{})
		defer func() { n.end() }()
		told := func(when string, want ...string) {
			t.Helper()
			synctest.Wait()
			var got []string
			for _, e := range n.api.TakeEvents() {
				kind, reason, _ := strings.Cut(strings.TrimPrefix(e, "n1 "), " ")
				reason, _, _ = strings.Cut(reason, ":")
				got = append(got, kind+" "+reason)
			}
			if !slices.Equal(got, want) {
				t.Errorf("%s: got events %q, want %q", when, got, want)
			}
		}
		well := []string{"Normal Starting", "Normal NodeHasSufficientMemory", "Normal NodeHasNoDiskPressure", "Normal NodeHasSufficientPID"}
		told("a new node", append(well, "Normal NodeReady")...)
		time.Sleep(time.Hour)
		told("an hour later")
		n.end()
		n.run()
		told("another agent", well...) // the node was ready, and is

		n.lose()
		time.Sleep(11 * time.Second)
		if node := n.node(); !core.NodeIsReady(node) {
			t.Errorf("a node that was taken for lost says of itself %+v", node.Status.Conditions)
		}
		told("lost for a while", "Normal NodeReady")
		n.end()
		n.lose()
		n.run()
		told("an agent of a lost node", append(well, "Normal NodeReady")...)
	})
}

// lose has the API say of the node what the control plane says that has not heard of it for long.
func (n *testNode) lose() {
	n.t.Helper()
	node := n.node().DeepCopy()
	for i := range node.Status.Conditions {
		node.Status.Conditions[i].Status, node.Status.Conditions[i].Reason = v1.ConditionUnknown, "NodeStatusUnknown"
	}
	if _, err := client.For(n.api, core.Nodes).UpdateStatus(n.t.Context(), node); err != nil {
		n.t.Fatal(err)
	}
}

func TestExtendedResourcesThatOthersAddAreOffered(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		n := newNode(t, fakecri.Options{})
		defer func() { n.end() }()
		const dongle = v1.ResourceName("example.com/dongle")
		tell := func(count string) {
			t.Helper()
			node := n.node().DeepCopy()
			if delete(node.Status.Capacity, dongle); count != "" {
				node.Status.Capacity[dongle] = resource.MustParse(count)
			}
			node.Status.Capacity[v1.ResourceCPU] = resource.MustParse("64") // which the node knows better
			if _, err := client.For(n.api, core.Nodes).UpdateStatus(t.Context(), node); err != nil {
				t.Fatal(err)
			}
		}
		offered := func(want string) {
			t.Helper()
			time.Sleep(10 * time.Second)
			s := n.node().Status
			capacity, some := s.Capacity[dongle]
			allocatable, free := s.Allocatable[dongle]
			if some != (want != "") || free != some || some && (capacity.String() != want || allocatable.String() != want) || s.Capacity.Cpu().String() != "4" {
				t.Errorf("got capacity %v, allocatable %v, want dongles: %q", s.Capacity, s.Allocatable, want)
			}
		}
		const pod = `{containers: [{name: c, image: x, resources: {limits: {example.com/dongle: %d}, requests: {example.com/dongle: %d}}}]}`
		phase := func(name string, want v1.PodPhase, reason string) {
			t.Helper()
			if p := n.pod(name); p.Status.Phase != want || p.Status.Reason != reason {
				t.Errorf("%s: got %s %s %q, want %s %s", name, p.Status.Phase, p.Status.Reason, p.Status.Message, want, reason)
			}
		}
		createPod(t, n.api, "elsewhere", fmt.Sprintf(pod, 1, 1))
		phase("elsewhere", v1.PodRunning, "") // the node knows of no dongles: others count them
		deletePod(t, n.api, "elsewhere", 0)

		tell("4")
		offered("4")
		createPod(t, n.api, "a", fmt.Sprintf(pod, 3, 3))
		createPod(t, n.api, "b", fmt.Sprintf(pod, 2, 2))
		phase("a", v1.PodRunning, "")
		phase("b", v1.PodFailed, "OutOfexample.com/dongle")
		time.Sleep(time.Hour)
		offered("4")
		n.end()
		n.run()
		offered("4")
		createPod(t, n.api, "c", fmt.Sprintf(pod, 1, 1))
		phase("c", v1.PodRunning, "")
		tell("")
		offered("")
	})
}

func TestNodeThatPeopleMakeIsWaitedFor(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		n := &testNode{t: t, api: newMemAPI(t), cri: fakecri.New(fakecri.Options{}), with: func(o *Options) {
			o.ByHand = true
			o.Taints = []v1.Taint{{Key: "team", Effect: v1.TaintEffectNoSchedule}}
		}}
		n.run()
		defer func() { n.end() }()
		time.Sleep(time.Minute)
		nodes := client.For(n.api, core.Nodes)
		trace.Proves(t, "NODE-077")
		if node, err := nodes.Get(t.Context(), "", "n1"); err == nil {
			t.Fatalf("got node %s, want none before people make it", node.Name)
		}
		if _, err := nodes.Create(t.Context(), &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1"}}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(10 * time.Second)
		node := n.node()
		trace.Proves(t, "NODE-071/not-registered")
		if c := core.NodeCondition(&node.Status, v1.NodeReady); c == nil || c.Status != v1.ConditionTrue || len(node.Spec.Taints) != 0 || len(node.Labels) != 0 {
			t.Errorf("got condition %+v, taints %v, labels %v; want ready and as it was made", c, node.Spec.Taints, node.Labels)
		}
	})
}

// TestNodeThatCannotRegisterSaysSoNowAndThen waits a day for a Node.
func TestNodeThatCannotRegisterSaysSoNowAndThen(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		var log bytes.Buffer
		n := &testNode{t: t, api: newMemAPI(t), cri: fakecri.New(fakecri.Options{}), with: func(o *Options) {
			o.ByHand, o.Log = true, slog.New(slog.NewTextHandler(&log, nil))
		}}
		n.run()
		time.Sleep(24 * time.Hour)
		n.end()
		if got := strings.Count(log.String(), "register node"); got < 2 || got > 30 {
			t.Errorf("got %d warnings in a day, want one and then some at growing intervals:\n%s", got, log.String())
		}
	})
}

func TestNodeOfACloudWaitsToBeToldWhatItIs(t *testing.T) {
	for _, said := range [][]string{nil, {"10.0.0.5", "fd00::5"}} {
		t.Run(strings.Join(append([]string{"said"}, said...), " "), func(t *testing.T) {
			inBubble(t, func(t *testing.T) {
				n := &testNode{t: t, api: newMemAPI(t), cri: fakecri.New(fakecri.Options{}), with: func(o *Options) {
					o.Settings.External, o.Settings.SaidIPs, o.NodeIPs = true, said, []string{"10.0.0.5", "fd00::5"}
				}}
				n.run()
				defer func() { n.end() }()
				node := n.node()
				trace.Proves(t, "CCM-020", "CCM-021", "CCM-022", "NODE-069")
				if want := (v1.Taint{Key: "node.cloudprovider.kubernetes.io/uninitialized", Value: "true", Effect: v1.TaintEffectNoSchedule}); len(node.Spec.Taints) != 1 || !node.Spec.Taints[0].MatchTaint(&want) || node.Spec.Taints[0].Value != "true" {
					t.Errorf("got taints %v, want %v", node.Spec.Taints, want)
				}
				if node.Spec.ProviderID != "" || node.Labels[v1.LabelTopologyZone] != "" || node.Labels[v1.LabelInstanceTypeStable] != "" {
					t.Errorf("got provider ID %q and labels %v, want nothing of the cloud", node.Spec.ProviderID, node.Labels)
				}
				if got, want := node.Annotations["alpha.kubernetes.io/provided-node-ip"], strings.Join(said, ","); got != want {
					t.Errorf("got annotation %q, want %q", got, want)
				}
				if got := node.Status.Addresses; len(got) != len(said)+1 || got[len(got)-1] != (v1.NodeAddress{Type: v1.NodeHostName, Address: "n1"}) {
					t.Errorf("got addresses %v, want %v and the host name", got, said)
				}
				// What the cloud says stays, whatever the node reports later.
				told := node.DeepCopy()
				told.Status.Addresses = []v1.NodeAddress{{Type: v1.NodeExternalIP, Address: "192.0.2.1"}}
				if _, err := client.For(n.api, core.Nodes).UpdateStatus(t.Context(), told); err != nil {
					t.Fatal(err)
				}
				time.Sleep(6 * time.Minute)
				if got := n.node().Status.Addresses; len(got) != 1 || got[0].Address != "192.0.2.1" {
					t.Errorf("got addresses %v, want what the cloud has said", got)
				}
			})
		})
	}
}

// TestStatusIsPostedAsOftenAsIsSaid also where that is more often than a lease is renewed.
func TestStatusIsPostedAsOftenAsIsSaid(t *testing.T) {
	for _, period := range []time.Duration{2 * time.Second, 20 * time.Second, time.Minute} {
		synctest.Test(t, func(t *testing.T) {
			n := newNode(t, fakecri.Options{})
			defer func() { n.end() }()
			n.end()
			n.with = func(o *Options) { o.Settings.StatusPeriod = period }
			n.run()
			time.Sleep(time.Hour) // it is not looked at how it began
			before := n.api.Updates("nodes/status")
			time.Sleep(time.Hour)
			synctest.Wait()
			trace.Proves(t, "NODE-075")
			got, want := n.api.Updates("nodes/status")-before, int(time.Hour/period)
			if got < want-1 || got > want+1 {
				t.Errorf("every %s: got %d writes in an hour, want %d", period, got, want)
			}
		})
	}
}
