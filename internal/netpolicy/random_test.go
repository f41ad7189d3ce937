package netpolicy

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/kemudi/kemudi/internal/api/networking"
)

// TestRandomHistoriesEndAsPoliciesSay changes policies, pods and namespaces at random, and
// asks after each change whether connections are allowed: the objects themselves, read in the
// plainest way, the model, and the rules that its changes add up to.
func TestRandomHistoriesEndAsPoliciesSay(t *testing.T) {
	t.Parallel()
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 0))
	asked, refused := 0, 0
	for range 30 {
		w := newWorld(t, rng)
		for range 60 {
			w.change()
			if rng.IntN(3) > 0 {
				continue // several changes in one commit
			}
			w.commit()
			for range 20 {
				asked++
				if !w.ask() {
					refused++
				}
			}
			if t.Failed() {
				return
			}
		}
		w.empty()
	}
	if asked < 5000 || refused < asked/20 || refused > asked*19/20 {
		t.Errorf("of %d questions %d were answered with no: that shows little", asked, refused)
	}
}

// world is a small cluster, in which everything is likely to meet.
type world struct {
	t        *testing.T
	rng      *rand.Rand
	m        *Model
	image    *image
	spaces   map[string]*corev1.Namespace
	pods     map[types.NamespacedName]*corev1.Pod
	policies map[types.NamespacedName]*networkingv1.NetworkPolicy
	uid      int
	begun    bool
}

func newWorld(t *testing.T, rng *rand.Rand) *world {
	return &world{
		t: t, rng: rng, m: NewModel("n1"), image: newImage(t), spaces: map[string]*corev1.Namespace{},
		pods: map[types.NamespacedName]*corev1.Pod{}, policies: map[types.NamespacedName]*networkingv1.NetworkPolicy{},
	}
}

func pick[T any](rng *rand.Rand, list ...T) T { return list[rng.IntN(len(list))] }

func (w *world) labels() map[string]string {
	l := map[string]string{}
	for _, k := range []string{"a", "b"} {
		if w.rng.IntN(2) == 0 {
			l[k] = pick(w.rng, "1", "2")
		}
	}
	return l
}

func (w *world) selector() *metav1.LabelSelector {
	s := &metav1.LabelSelector{MatchLabels: w.labels()}
	if w.rng.IntN(4) == 0 {
		s.MatchExpressions = []metav1.LabelSelectorRequirement{{Key: "a", Operator: pick(w.rng, metav1.LabelSelectorOpExists, metav1.LabelSelectorOpDoesNotExist)}}
	}
	return s
}

func (w *world) change() {
	key := types.NamespacedName{Namespace: pick(w.rng, "x", "y"), Name: pick(w.rng, "1", "2", "3", "4", "5")}
	switch w.rng.IntN(10) {
	case 0:
		if w.spaces[key.Namespace] != nil && w.rng.IntN(4) == 0 {
			delete(w.spaces, key.Namespace)
			w.m.DeleteNamespace(key.Namespace)
			return
		}
		ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: key.Namespace, Labels: w.labels()}}
		w.spaces[ns.Name] = ns
		w.m.SetNamespace(ns)
	case 1, 2, 3:
		if w.policies[key] != nil && w.rng.IntN(2) == 0 {
			delete(w.policies, key)
			w.m.DeletePolicy(key.Namespace, key.Name)
			return
		}
		p := w.policy(key)
		w.policies[key] = p
		w.m.SetPolicy(p)
	default:
		if old := w.pods[key]; old != nil && w.rng.IntN(3) == 0 {
			delete(w.pods, key)
			w.m.DeletePod(old)
			return
		}
		p := w.pod(key)
		w.pods[key] = p
		w.m.SetPod(p)
	}
}

// pod has the address that its name says, so that no two have one.
func (w *world) pod(key types.NamespacedName) *corev1.Pod {
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name, Labels: w.labels()}}
	if old := w.pods[key]; old != nil {
		p.UID = old.UID
	} else {
		w.uid++
		p.UID = types.UID(fmt.Sprint(w.uid))
	}
	p.Spec.NodeName = pick(w.rng, "n1", "n1", "n2")
	p.Spec.HostNetwork = w.rng.IntN(10) == 0
	p.Status.Phase = pick(w.rng, corev1.PodRunning, corev1.PodRunning, corev1.PodRunning, corev1.PodPending, corev1.PodFailed)
	number := key.Name
	if key.Namespace == "y" {
		number += "0"
	}
	if w.rng.IntN(8) > 0 {
		p.Status.PodIPs = []corev1.PodIP{{IP: "10.0.0." + number}}
	}
	if w.rng.IntN(2) == 0 {
		p.Status.PodIPs = append(p.Status.PodIPs, corev1.PodIP{IP: "fd00::" + number})
	}
	if w.rng.IntN(2) == 0 {
		p.Spec.Containers = []corev1.Container{{Ports: []corev1.ContainerPort{{Name: "web", ContainerPort: pick(w.rng, int32(80), 81)}}}}
	}
	return p
}

func (w *world) policy(key types.NamespacedName) *networkingv1.NetworkPolicy {
	p := &networkingv1.NetworkPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name}}
	p.Spec.PodSelector = *w.selector()
	for range w.rng.IntN(3) {
		p.Spec.Ingress = append(p.Spec.Ingress, networkingv1.NetworkPolicyIngressRule{From: w.peers(), Ports: w.ports()})
	}
	for range w.rng.IntN(3) {
		p.Spec.Egress = append(p.Spec.Egress, networkingv1.NetworkPolicyEgressRule{To: w.peers(), Ports: w.ports()})
	}
	p.Spec.PolicyTypes = pick(w.rng, nil, []networkingv1.PolicyType{"Egress"}, []networkingv1.PolicyType{"Ingress", "Egress"})
	networking.NetworkPolicies.Default(p)
	return p
}

func (w *world) peers() (list []networkingv1.NetworkPolicyPeer) {
	for range w.rng.IntN(3) {
		var p networkingv1.NetworkPolicyPeer
		switch w.rng.IntN(4) {
		case 0:
			p.IPBlock = pick(w.rng,
				&networkingv1.IPBlock{CIDR: "10.0.0.0/29", Except: []string{"10.0.0.2/32", "10.0.0.4/31"}}, &networkingv1.IPBlock{CIDR: "fd00::/120", Except: []string{"fd00::1/128"}},
				&networkingv1.IPBlock{CIDR: "0.0.0.0/0"}, &networkingv1.IPBlock{CIDR: "10.0.0.3/32"})
		case 1:
			p.PodSelector = w.selector()
		case 2:
			p.NamespaceSelector = w.selector()
		default:
			p.PodSelector, p.NamespaceSelector = w.selector(), w.selector()
		}
		list = append(list, p)
	}
	return list
}

func (w *world) ports() (list []networkingv1.NetworkPolicyPort) {
	for range w.rng.IntN(3) {
		var p networkingv1.NetworkPolicyPort
		protocol := pick(w.rng, corev1.ProtocolTCP, corev1.ProtocolTCP, corev1.ProtocolUDP, corev1.ProtocolSCTP)
		p.Protocol = &protocol
		switch w.rng.IntN(4) {
		case 0:
		case 1:
			web := intstr.FromString("web")
			p.Port = &web
		case 2:
			first, last := intstr.FromInt32(80), pick(w.rng, int32(80), 81, 82)
			p.Port, p.EndPort = &first, &last
		default:
			one := intstr.FromInt32(pick(w.rng, int32(80), 81, 82))
			p.Port = &one
		}
		list = append(list, p)
	}
	return list
}

func (w *world) commit() {
	w.t.Helper()
	changes := w.m.Commit()
	if !w.begun || w.rng.IntN(10) == 0 {
		changes, w.begun = w.m.Full(), true
	}
	w.image.apply(changes)
	if round, due := w.m.Round(); due && w.rng.IntN(2) == 0 {
		w.m.Rechecked(round)
		w.image.apply(w.m.Commit())
	}
}

// ask asks whether a connection is allowed, and returns the answer.
func (w *world) ask() bool {
	w.t.Helper()
	where := []string{"10.0.0.", "fd00::"}[w.rng.IntN(2)]
	addr := func() netip.Addr {
		return netip.MustParseAddr(where + pick(w.rng, "1", "2", "3", "4", "5", "10", "20", "30", "40", "50", "99"))
	}
	f := Flow{Src: addr(), Dst: addr(), Proto: pick(w.rng, uint8(6), 6, 17, 132, 1), Port: pick(w.rng, uint16(80), 81, 82, 83)}
	if f.Proto == 1 {
		f.Port = 0
	}
	want := w.allows(f)
	if got := w.m.Allows(f); got != want {
		w.t.Errorf("%+v: the model says %t, the policies %t", f, got, want)
	}
	if got := w.image.passes(packet{Flow: f}); got != want {
		w.t.Errorf("%+v: the rules say %t, the policies %t", f, got, want)
	}
	if !w.image.passes(packet{Flow: Flow{f.Dst, f.Src, f.Proto, 1234}, known: true, reply: true}) {
		w.t.Errorf("%+v: a reply does not pass", f)
	}
	return want
}

// allows reads the objects.
func (w *world) allows(f Flow) bool {
	if f.Src == f.Dst {
		return true
	}
	src, dst := w.at(f.Src), w.at(f.Dst)
	return (src == nil || src.Spec.NodeName != "n1" || w.lets(src, dst, f, networkingv1.PolicyTypeEgress)) &&
		(dst == nil || dst.Spec.NodeName != "n1" || w.lets(dst, src, f, networkingv1.PolicyTypeIngress))
}

// at is the pod that has an address.
func (w *world) at(a netip.Addr) *corev1.Pod {
	for _, p := range w.pods {
		if !p.Spec.HostNetwork && p.Status.Phase != corev1.PodFailed && slices.ContainsFunc(p.Status.PodIPs, func(ip corev1.PodIP) bool { return ip.IP == a.String() }) {
			return p
		}
	}
	return nil
}

func (w *world) lets(pod, peer *corev1.Pod, f Flow, way networkingv1.PolicyType) bool {
	isolated := false
	for key, np := range w.policies {
		if key.Namespace != pod.Namespace || !slices.Contains(np.Spec.PolicyTypes, way) || !selects(&np.Spec.PodSelector, pod.Labels) {
			continue
		}
		isolated = true
		if way == networkingv1.PolicyTypeIngress {
			for _, r := range np.Spec.Ingress {
				if w.isPeer(r.From, np.Namespace, peer, f.Src) && hasPort(r.Ports, pod, f) {
					return true
				}
			}
			continue
		}
		for _, r := range np.Spec.Egress {
			if w.isPeer(r.To, np.Namespace, peer, f.Dst) && hasPort(r.Ports, w.reachedByName(r.To, np.Namespace, peer), f) {
				return true
			}
		}
	}
	return !isolated
}

// reachedByName is the pod whose names of ports count: who is a peer only because of an
// address has none.
func (w *world) reachedByName(peers []networkingv1.NetworkPolicyPeer, namespace string, peer *corev1.Pod) *corev1.Pod {
	if len(peers) > 0 && !w.isPeer(slices.DeleteFunc(slices.Clone(peers), func(p networkingv1.NetworkPolicyPeer) bool { return p.IPBlock != nil }), namespace, peer, netip.Addr{}) {
		return nil
	}
	if len(peers) > 0 && !slices.ContainsFunc(peers, func(p networkingv1.NetworkPolicyPeer) bool { return p.IPBlock == nil }) {
		return nil
	}
	return peer
}

func (w *world) isPeer(peers []networkingv1.NetworkPolicyPeer, namespace string, pod *corev1.Pod, a netip.Addr) bool {
	if len(peers) == 0 {
		return true
	}
	for _, p := range peers {
		if b := p.IPBlock; b != nil {
			in := netip.MustParsePrefix(b.CIDR).Contains(a)
			for _, e := range b.Except {
				in = in && !netip.MustParsePrefix(e).Contains(a)
			}
			if in {
				return true
			}
			continue
		}
		if pod == nil || p.PodSelector != nil && !selects(p.PodSelector, pod.Labels) {
			continue
		}
		if p.NamespaceSelector == nil && pod.Namespace == namespace {
			return true
		}
		if p.NamespaceSelector != nil {
			var l map[string]string
			if ns := w.spaces[pod.Namespace]; ns != nil {
				l = ns.Labels
			}
			if selects(p.NamespaceSelector, l) {
				return true
			}
		}
	}
	return false
}

func hasPort(ports []networkingv1.NetworkPolicyPort, dst *corev1.Pod, f Flow) bool {
	if len(ports) == 0 {
		return true
	}
	for _, p := range ports {
		if map[corev1.Protocol]uint8{"TCP": 6, "UDP": 17, "SCTP": 132}[*p.Protocol] != f.Proto {
			continue
		}
		switch {
		case p.Port == nil:
			return true
		case p.Port.Type == intstr.String:
			if dst == nil || *p.Protocol != corev1.ProtocolTCP {
				continue
			}
			for _, c := range dst.Spec.Containers {
				if c.Ports[0].Name == p.Port.StrVal && uint16(c.Ports[0].ContainerPort) == f.Port {
					return true
				}
			}
		case p.EndPort != nil:
			if int32(f.Port) >= p.Port.IntVal && int32(f.Port) <= *p.EndPort {
				return true
			}
		case int32(f.Port) == p.Port.IntVal:
			return true
		}
	}
	return false
}

func selects(s *metav1.LabelSelector, l map[string]string) bool {
	sel, err := metav1.LabelSelectorAsSelector(s)
	return err == nil && sel.Matches(labels.Set(l))
}

// empty takes everything away, and checks that nothing is left.
func (w *world) empty() {
	w.t.Helper()
	for key := range w.policies {
		w.m.DeletePolicy(key.Namespace, key.Name)
	}
	for _, p := range w.pods {
		w.m.DeletePod(p)
	}
	for name := range w.spaces {
		w.m.DeleteNamespace(name)
	}
	w.image.apply(w.m.Commit())
	round, _ := w.m.Round()
	w.m.Rechecked(round)
	w.image.apply(w.m.Commit())
	if n := len(w.m.pods) + len(w.m.spaces) + len(w.m.at) + len(w.m.peers) + len(w.m.anywhere.by) + len(w.m.anywhere.rest) + len(w.m.profiles) + len(w.m.rechecks); n > 0 {
		w.t.Errorf("%d things are left of an empty cluster: pods %v, namespaces %v, peers %v, profiles %v", n, w.m.pods, w.m.spaces, w.m.peers, w.m.profiles)
	}
	for i := range w.image.tables {
		to := &w.image.tables[i]
		if len(to.elems) > 0 || len(to.chains) != 4 || len(to.sets) != 5 {
			w.t.Errorf("the rules of an empty cluster have %d elements, %d chains and %d sets, want 0, 4 and 5", len(to.elems), len(to.chains), len(to.sets))
		}
	}
}
