package plugins

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/kemudi/kemudi/internal/scheduler/snapshot"
)

func node(name, cpu string, change ...func(*corev1.Node)) *corev1.Node {
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"host": name}}}
	n.Status.Allocatable = corev1.ResourceList{"cpu": resource.MustParse(cpu), "pods": resource.MustParse("10")}
	for _, f := range change {
		f(n)
	}
	return n
}

func pod(name, cpu string, change ...func(*corev1.Pod)) *corev1.Pod {
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, UID: types.UID(name), Labels: map[string]string{"app": name}}}
	p.Spec.Containers = []corev1.Container{{Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{"cpu": resource.MustParse(cpu)}}}}
	for _, f := range change {
		f(p)
	}
	return p
}

func apartFrom(app string) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		p.Spec.Affinity = &corev1.Affinity{PodAntiAffinity: &corev1.PodAntiAffinity{RequiredDuringSchedulingIgnoredDuringExecution: []corev1.PodAffinityTerm{term(app)}}}
	}
}

func nearTo(app string) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		p.Spec.Affinity = &corev1.Affinity{PodAffinity: &corev1.PodAffinity{RequiredDuringSchedulingIgnoredDuringExecution: []corev1.PodAffinityTerm{term(app)}}}
	}
}

func term(app string) corev1.PodAffinityTerm {
	return corev1.PodAffinityTerm{TopologyKey: "host", LabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": app}}}
}

func spreadOf(app string) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		p.Spec.TopologySpreadConstraints = []corev1.TopologySpreadConstraint{{
			MaxSkew: 1, TopologyKey: "host", WhenUnsatisfiable: corev1.DoNotSchedule, LabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": app}},
		}}
	}
}

func claim(name string) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		p.Spec.Volumes = []corev1.Volume{{VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: name}}}}
	}
}

func hostPort(p *corev1.Pod) { p.Spec.Containers[0].Ports = []corev1.ContainerPort{{HostPort: 80}} }

func otherPort(p *corev1.Pod) { p.Spec.Containers[0].Ports = []corev1.ContainerPort{{HostPort: 81}} }

// busyPort adds the port that the busy pod has.
func busyPort(p *corev1.Pod) {
	p.Spec.Containers[0].Ports = append(p.Spec.Containers[0].Ports, corev1.ContainerPort{HostPort: 8080})
}

func important(p *corev1.Pod) { p.Spec.Priority = ptr.To[int32](10) }
func peaceful(p *corev1.Pod)  { p.Spec.PreemptionPolicy = ptr.To(corev1.PreemptNever) }
func grouped(p *corev1.Pod) {
	p.Spec.SchedulingGroup = &corev1.PodSchedulingGroup{PodGroupName: ptr.To("g")}
}

// TestEventsWakeOnlyWhomTheyCanHelp: node n1 has 2 CPUs, of which "busy" takes
// one, and port 8080; the event is about n1.
func TestEventsWakeOnlyWhomTheyCanHelp(t *testing.T) {
	on := func(label string) func(*corev1.Pod) {
		return func(p *corev1.Pod) { p.Spec.NodeSelector = map[string]string{"host": label} }
	}
	for _, tc := range []struct {
		name   string
		plugin string // that refused
		pod    *corev1.Pod
		kind   Events
		other  *corev1.Pod // whom a pod event is about
		want   bool
	}{
		{"enough CPU was freed", "NodeResourcesFit", pod("p", "1"), PodRemoved, pod("o", "1"), true},
		{"not enough CPU was freed", "NodeResourcesFit", pod("p", "2"), PodRemoved, pod("o", "1"), false},
		{"enough CPU is had by a less important pod", "NodeResourcesFit", pod("p", "2", important), PodRemoved, pod("o", "1"), true},
		{"but nobody may be preempted", "NodeResourcesFit", pod("p", "2", important, peaceful), PodRemoved, pod("o", "1"), false},
		{"more than the node has at all", "NodeResourcesFit", pod("p", "3", important), PodRemoved, pod("o", "1"), false},
		{"how important a group is it does not know", "NodeResourcesFit", pod("p", "2", grouped), PodRemoved, pod("o", "1"), true},
		{"a node grew, and has less important pods", "NodeResourcesFit", pod("p", "2", important), NodeAllocatable, nil, true},
		{"a large node came", "NodeResourcesFit", pod("p", "1"), NodeAdded, nil, true},
		{"a small node came", "NodeResourcesFit", pod("p", "2"), NodeAdded, nil, false},
		{"labels give no CPU", "NodeResourcesFit", pod("p", "1"), NodeLabels, nil, false},
		{"another pod takes, and gives not", "NodeResourcesFit", pod("p", "1"), PodAdded, pod("o", "1"), false},
		{"a node got the label", "NodeAffinity", pod("p", "1", on("n1")), NodeLabels, nil, true},
		{"a node got another label", "NodeAffinity", pod("p", "1", on("n2")), NodeLabels, nil, false},
		{"a pod that left changes no labels", "NodeAffinity", pod("p", "1", on("n1")), PodRemoved, pod("o", "1"), false},
		{"a node lost its taint", "TaintToleration", pod("p", "1"), NodeTaints, nil, true},
		{"a node was uncordoned", "NodeUnschedulable", pod("p", "1"), NodeTaints, nil, true},
		{"a port was freed", "NodePorts", pod("p", "1", hostPort), PodRemoved, pod("o", "1", hostPort), true},
		{"a pod without a port left", "NodePorts", pod("p", "1", hostPort), PodRemoved, pod("o", "1"), false},
		{"another port was freed", "NodePorts", pod("p", "1", hostPort), PodRemoved, pod("o", "1", otherPort), false},
		{"another port is taken yet", "NodePorts", pod("p", "1", hostPort, busyPort), PodRemoved, pod("o", "1", hostPort), false},
		{"by a less important pod", "NodePorts", pod("p", "1", hostPort, busyPort, important), PodRemoved, pod("o", "1", hostPort), true},
		{"whom it must be near came", "InterPodAffinity", pod("p", "1", nearTo("o")), PodAdded, pod("o", "1"), true},
		{"somebody else came", "InterPodAffinity", pod("p", "1", nearTo("x")), PodAdded, pod("o", "1"), false},
		{"whom it must not be near left", "InterPodAffinity", pod("p", "1", apartFrom("o")), PodRemoved, pod("o", "1"), true},
		{"who did not want it near left", "InterPodAffinity", pod("p", "1"), PodRemoved, pod("o", "1", apartFrom("p")), true},
		{"somebody indifferent left", "InterPodAffinity", pod("p", "1", apartFrom("x")), PodRemoved, pod("o", "1"), false},
		{"a pod that counts left", "PodTopologySpread", pod("p", "1", spreadOf("o")), PodRemoved, pod("o", "1"), true},
		{"a pod that counts came", "PodTopologySpread", pod("p", "1", spreadOf("o")), PodAdded, pod("o", "1"), true},
		{"a pod that does not count left", "PodTopologySpread", pod("p", "1", spreadOf("x")), PodRemoved, pod("o", "1"), false},
		{"a domain went away", "PodTopologySpread", pod("p", "1", spreadOf("x")), NodeRemoved, nil, true},
		{"a claim was bound", "VolumeBinding", pod("p", "1"), ClaimChanged, nil, true},
		{"who used the claim left", "VolumeRestrictions", pod("p", "1", claim("c")), PodRemoved, pod("o", "1", claim("c")), true},
		{"who used another claim left", "VolumeRestrictions", pod("p", "1", claim("c")), PodRemoved, pod("o", "1", claim("d")), false},
		{"a taint does not bind claims", "VolumeBinding", pod("p", "1"), NodeTaints, nil, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s := snapshot.New(nil)
			n, _ := s.SetNode(node("n1", "2"))
			s.Add(s.NewPod(pod("busy", "1", busyPort)), "n1")
			e := &Event{Kind: tc.kind, Node: n}
			if tc.other != nil {
				e.Pod = s.NewPod(tc.other)
			}
			set := New()
			refused := uint32(0)
			for i, p := range set.All {
				if p.Name() == tc.plugin {
					refused = 1 << i
				}
			}
			got := set.Cares(refused, tc.kind) && set.Wakes(refused, &Cycle{Snapshot: s, Pod: s.NewPod(tc.pod)}, e)
			if got != tc.want {
				t.Errorf("woken: %t, want %t", got, tc.want)
			}
		})
	}
}

// TestClaimsWakeOnlyWhomTheyCanHelp: the pod uses claim "a".
func TestClaimsWakeOnlyWhomTheyCanHelp(t *testing.T) {
	named := func(name string) *resourcev1.ResourceClaim {
		return &resourcev1.ResourceClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name}}
	}
	uses := func(p *corev1.Pod) {
		p.Spec.ResourceClaims = []corev1.PodResourceClaim{{Name: "x", ResourceClaimName: ptr.To("a")}}
	}
	s := snapshot.New(nil)
	for _, tc := range []struct {
		name string
		e    Event
		want bool
	}{
		{"its claim changed", Event{Kind: ResourceClaimChanged, Claim: named("a")}, true},
		{"another claim changed", Event{Kind: ResourceClaimChanged, Claim: named("b")}, false},
		{"another claim gave devices back", Event{Kind: ResourceClaimChanged, Claim: named("b"), Freed: true}, true},
		{"devices came", Event{Kind: DevicesChanged}, true},
		{"a class came", Event{Kind: DeviceClassChanged}, true},
		{"a pod left that had some", Event{Kind: PodRemoved, Pod: s.NewPod(pod("o", "1", uses))}, true},
		{"a pod left that had none", Event{Kind: PodRemoved, Pod: s.NewPod(pod("o", "1"))}, false},
		{"a taint changed", Event{Kind: NodeTaints}, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			p := newDynamicResources(0, nil)
			if got := p.Wakers()&tc.e.Kind != 0 && p.Hint(&Cycle{Snapshot: s, Pod: s.NewPod(pod("p", "1", uses))}, &tc.e); got != tc.want {
				t.Errorf("woken: %t, want %t", got, tc.want)
			}
		})
	}
}

func TestPluginsAreInUpstreamsOrderWithItsWeights(t *testing.T) {
	want := []struct {
		name   string
		weight int64
	}{
		{"NodeUnschedulable", 0}, {"NodeName", 0}, {"TaintToleration", 3}, {"NodeAffinity", 2}, {"NodePorts", 0},
		{"NodeResourcesFit", 1}, {"VolumeRestrictions", 0}, {"NodeVolumeLimits", 0}, {"VolumeBinding", 1}, {"VolumeZone", 0}, {"PodTopologySpread", 2}, {"InterPodAffinity", 2},
		{"DynamicResources", 1}, {"NodeDeclaredFeatures", 0}, {"NodeResourcesBalancedAllocation", 1}, {"ImageLocality", 1},
	}
	set := New()
	for i, p := range set.All {
		if p.Name() != want[i].name || set.Weights[i] != want[i].weight {
			t.Errorf("plugin %d: got %s with weight %d, want %v", i, p.Name(), set.Weights[i], want[i])
		}
		if set.Scorers[i] == nil && set.Weights[i] != 0 {
			t.Errorf("%s has a weight but no score", p.Name())
		}
	}
}

func TestImageNamesGetTheTagThatIsMeant(t *testing.T) {
	for name, want := range map[string]string{
		"nginx": "nginx:latest", "nginx:1": "nginx:1", "host:5000/nginx": "host:5000/nginx:latest", "host:5000/nginx:1": "host:5000/nginx:1",
		"nginx@sha256:aa": "nginx@sha256:aa",
	} {
		if got := imageName(name); got != want {
			t.Errorf("%s: got %s, want %s", name, got, want)
		}
	}
}
