package daemonset

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"

	"github.com/kemudi/kemudi/internal/texttest"
	"github.com/kemudi/kemudi/internal/trace"
)

// TestNextStepsOnNodes runs the blocks of testdata/plan: each describes a DaemonSet
// on its nodes, and what is said then is to be done and reported.
//
//	set [unavailable=N|N%] [surge=N|N%] [ondelete] [ready=SECONDS]
//	node NAME [stays|none|gone] PODS
//
// A node runs pods of the set, lets those that are there stay, or has no place
// for them. Pods are called by their template, new or old, the oldest first;
// what follows says how a pod is: nothing available, ~ ready but not long enough, -
// not ready, ? not bound, ! failed, !! failed and to be left alone for 5 seconds, $ succeeded, . ending.
func TestNextStepsOnNodes(t *testing.T) {
	trace.Proves(t, "DS-001", "DS-020", "DS-045")
	texttest.Run(t, "testdata/plan/*.txt", func(t *testing.T, _, text string) string {
		var out strings.Builder
		for block := range strings.SplitSeq(text, "\n\n") {
			var s *spread
			for line := range strings.Lines(block) {
				words := strings.Fields(line)
				if len(words) == 0 || words[0] == "->" || words[0] == "=" {
					continue
				}
				out.WriteString(strings.TrimRight(line, "\n") + "\n")
				switch words[0] {
				case "#":
				case "set":
					s = readSet(t, words[1:])
				case "node":
					s.places = append(s.places, readPlace(t, s, words[1:]))
				default:
					t.Fatalf("what is %q?", line)
				}
			}
			if s != nil {
				out.WriteString("-> " + showStep(s.next()) + "\n= " + showStatus(s.status(nil)) + "\n\n")
			}
		}
		return strings.TrimRight(out.String(), "\n") + "\n"
	})
}

var noon = time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)

func readSet(t *testing.T, words []string) *spread {
	ds := &appsv1.DaemonSet{}
	u := &ds.Spec.UpdateStrategy
	u.Type = appsv1.RollingUpdateDaemonSetStrategyType
	u.RollingUpdate = &appsv1.RollingUpdateDaemonSet{MaxUnavailable: ptr.To(intstr.FromInt32(0)), MaxSurge: ptr.To(intstr.FromInt32(0))}
	for _, w := range words {
		key, value, _ := strings.Cut(w, "=")
		switch key {
		case "unavailable":
			u.RollingUpdate.MaxUnavailable = ptr.To(intstr.Parse(value))
		case "surge":
			u.RollingUpdate.MaxSurge = ptr.To(intstr.Parse(value))
		case "ondelete":
			u.Type, u.RollingUpdate = appsv1.OnDeleteDaemonSetStrategyType, nil
		case "ready":
			if _, err := fmt.Sscan(value, &ds.Spec.MinReadySeconds); err != nil {
				t.Fatal(err)
			}
		default:
			t.Fatalf("what is %q?", w)
		}
	}
	return &spread{ds: ds, hash: "new", now: noon, held: func(string) time.Duration { return 0 }}
}

func readPlace(t *testing.T, s *spread, words []string) place {
	p := place{name: words[0], runs: true, stays: true}
	for i, w := range words[1:] {
		switch w {
		case "stays":
			p.runs = false
		case "none":
			p.runs, p.stays = false, false
		case "gone":
			p.gone, p.runs, p.stays = true, false, false
		default:
			p.pods = append(p.pods, readPod(t, s, p.name, w, i))
		}
	}
	slices.SortFunc(p.pods, older)
	return p
}

func readPod(t *testing.T, s *spread, node, word string, i int) *corev1.Pod {
	template := strings.TrimRight(word, "~-?!$.")
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
		Name: node + "/" + word, Labels: map[string]string{appsv1.DefaultDaemonSetUniqueLabelKey: template},
		CreationTimestamp: metav1.NewTime(noon.Add(time.Duration(i-100) * time.Minute)),
	}}
	pod.Spec.NodeName, pod.Status.Phase = node, corev1.PodRunning
	ready := corev1.PodCondition{Type: corev1.PodReady, Status: corev1.ConditionTrue, LastTransitionTime: metav1.NewTime(noon.Add(-time.Hour))}
	switch how := strings.TrimPrefix(word, template); how {
	case "":
	case "~":
		ready.LastTransitionTime = metav1.NewTime(noon.Add(-time.Second))
	case "-":
		ready.Status = corev1.ConditionFalse
	case "?":
		pod.Spec.NodeName, pod.Status.Phase, ready.Status = "", corev1.PodPending, corev1.ConditionFalse
	case "!!", "!":
		pod.Status.Phase, ready.Status = corev1.PodFailed, corev1.ConditionFalse
		if how == "!!" {
			s.held = func(string) time.Duration { return 5 * time.Second }
		}
	case "$":
		pod.Status.Phase, ready.Status = corev1.PodSucceeded, corev1.ConditionFalse
	case ".":
		pod.DeletionTimestamp = ptr.To(metav1.NewTime(noon))
	default:
		t.Fatalf("what is %q?", word)
	}
	pod.Status.Conditions = []corev1.PodCondition{ready}
	return pod
}

func showStep(st step) string {
	var out []string
	for _, node := range st.create {
		out = append(out, "create "+node)
	}
	for _, r := range st.remove {
		verb := "remove "
		if r.finished {
			verb = "replace "
		}
		out = append(out, verb+r.pod.Name)
	}
	if st.wait > 0 {
		out = append(out, "look again in "+st.wait.String())
	}
	if len(out) == 0 {
		return "nothing"
	}
	return strings.Join(out, ", ")
}

func showStatus(s appsv1.DaemonSetStatus) string {
	return fmt.Sprintf("desired %d, current %d, ready %d, updated %d, available %d, unavailable %d, misscheduled %d",
		s.DesiredNumberScheduled, s.CurrentNumberScheduled, s.NumberReady, s.UpdatedNumberScheduled, s.NumberAvailable, s.NumberUnavailable, s.NumberMisscheduled)
}

// TestRolloutsOfDaemonsKeepTheirLimitsAndEnd plays random rollouts, in which pods
// come, become available and end slowly, and templates change in the middle. At
// every moment no more nodes are without an available pod than may be, or no more
// have two; in the end each has one of the last template.
func TestRolloutsOfDaemonsKeepTheirLimitsAndEnd(t *testing.T) {
	full := 0
	for range 500 {
		seed := rand.Uint64()
		n, err := playRollout(rand.New(rand.NewPCG(seed, 0)))
		if err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		full += n
	}
	if full < 500 {
		t.Errorf("500 rollouts went %d times to their limits, want often", full)
	}
}

// playRollout also tells in how many moments a limit was reached.
func playRollout(rng *rand.Rand) (full int, err error) {
	nodes, limit := 1+rng.IntN(12), 1+rng.IntN(4)
	ds := &appsv1.DaemonSet{}
	surges := rng.IntN(2) == 0
	u := &appsv1.RollingUpdateDaemonSet{MaxUnavailable: ptr.To(intstr.FromInt(limit)), MaxSurge: ptr.To(intstr.FromInt32(0))}
	if surges {
		u.MaxUnavailable, u.MaxSurge = u.MaxSurge, u.MaxUnavailable
	}
	ds.Spec.UpdateStrategy = appsv1.DaemonSetUpdateStrategy{Type: appsv1.RollingUpdateDaemonSetStrategyType, RollingUpdate: u}
	s := &spread{ds: ds, hash: "0", now: noon, held: func(string) time.Duration { return 0 }}
	for i := range nodes {
		s.places = append(s.places, place{name: fmt.Sprint(i), runs: true, stays: true, pods: []*corev1.Pod{daemon(fmt.Sprint(i), "0", noon.Add(-time.Hour))}})
		become(s.places[i].pods[0], true)
	}
	made, changes := 0, 1+rng.IntN(2)
	for moment := range 20000 {
		if moment%60 == 30 && changes > 0 {
			changes--
			s.hash = fmt.Sprint(moment)
		}
		if rng.IntN(2) == 0 {
			st := s.next()
			for _, name := range st.create {
				p := &s.places[slices.IndexFunc(s.places, func(p place) bool { return p.name == name })]
				made++
				p.pods = append(p.pods, daemon(name, s.hash, noon.Add(time.Duration(made)*time.Millisecond)))
			}
			for _, r := range st.remove {
				r.pod.DeletionTimestamp = ptr.To(metav1.NewTime(noon))
				become(r.pod, false)
			}
		}
		without, two, done := 0, 0, 0
		for i := range s.places {
			p := &s.places[i]
			p.pods = slices.DeleteFunc(p.pods, func(pod *corev1.Pod) bool { return pod.DeletionTimestamp != nil && rng.IntN(3) == 0 })
			staying := 0
			for _, pod := range p.pods {
				if pod.DeletionTimestamp != nil {
					continue
				}
				staying++
				if rng.IntN(3) == 0 {
					become(pod, true)
				}
			}
			if !slices.ContainsFunc(p.pods, s.available) {
				without++
			}
			if staying > 1 {
				two++
			}
			if len(p.pods) == 1 && s.fresh(p.pods[0]) && s.available(p.pods[0]) {
				done++
			}
		}
		switch {
		case !surges && (without > limit || two > 0), surges && (without > 0 || two > limit):
			return 0, fmt.Errorf("%d nodes, limit %d, surges %v: got %d without a pod that is available and %d with two", nodes, limit, surges, without, two)
		case without+two == limit:
			full++
		case changes == 0 && done == nodes:
			return full, nil
		}
	}
	return 0, fmt.Errorf("%d nodes, limit %d, surges %v: the rollout does not end", nodes, limit, surges)
}

func daemon(node, template string, made time.Time) *corev1.Pod {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
		Name: node + "-" + fmt.Sprint(made.UnixNano()), CreationTimestamp: metav1.NewTime(made),
		Labels: map[string]string{appsv1.DefaultDaemonSetUniqueLabelKey: template},
	}}
	pod.Spec.NodeName = node
	become(pod, false)
	return pod
}

// become makes a pod ready, long enough to be available, or not.
func become(pod *corev1.Pod, ready bool) {
	c := corev1.PodCondition{Type: corev1.PodReady, Status: corev1.ConditionFalse, LastTransitionTime: metav1.NewTime(noon.Add(-time.Minute))}
	if ready {
		c.Status = corev1.ConditionTrue
	}
	pod.Status.Conditions = []corev1.PodCondition{c}
}

func node(name string, labels map[string]string, taints ...corev1.Taint) *corev1.Node {
	return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels}, Spec: corev1.NodeSpec{Taints: taints}}
}

func TestNodesFitByNameLabelsAndTaints(t *testing.T) {
	trace.Proves(t, "DS-017", "DS-018", "DS-019", "DS-027")
	ssd := map[string]string{"disk": "ssd"}
	required := func(key, value string) *corev1.Affinity {
		return &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{
			NodeSelectorTerms: []corev1.NodeSelectorTerm{{MatchExpressions: []corev1.NodeSelectorRequirement{{Key: key, Operator: corev1.NodeSelectorOpIn, Values: []string{value}}}}},
		}}}
	}
	taint := func(key string, effect corev1.TaintEffect) corev1.Taint {
		return corev1.Taint{Key: key, Effect: effect}
	}
	for _, tc := range []struct {
		name        string
		spec        corev1.PodSpec
		node        *corev1.Node
		runs, stays bool
	}{
		{"nothing asked", corev1.PodSpec{}, node("a", nil), true, true},
		{"another node by name", corev1.PodSpec{NodeName: "b"}, node("a", nil), false, false},
		{"the node by name", corev1.PodSpec{NodeName: "a"}, node("a", nil), true, true},
		{"selector matches", corev1.PodSpec{NodeSelector: ssd}, node("a", ssd), true, true},
		{"selector does not match", corev1.PodSpec{NodeSelector: ssd}, node("a", nil), false, false},
		{"affinity matches", corev1.PodSpec{Affinity: required("disk", "ssd")}, node("a", ssd), true, true},
		{"affinity does not match", corev1.PodSpec{Affinity: required("disk", "hdd")}, node("a", ssd), false, false},
		{"a taint", corev1.PodSpec{}, node("a", nil, taint("gpu", corev1.TaintEffectNoSchedule)), false, true},
		{"a taint that evicts", corev1.PodSpec{}, node("a", nil, taint("gpu", corev1.TaintEffectNoExecute)), false, false},
		{"a taint that only warns", corev1.PodSpec{}, node("a", nil, taint("gpu", corev1.TaintEffectPreferNoSchedule)), true, true},
		{"a taint that is tolerated", corev1.PodSpec{Tolerations: []corev1.Toleration{{Key: "gpu", Operator: corev1.TolerationOpExists}}}, node("a", nil, taint("gpu", corev1.TaintEffectNoExecute)), true, true},
		{"cordoned", corev1.PodSpec{}, node("a", nil, taint(corev1.TaintNodeUnschedulable, corev1.TaintEffectNoSchedule)), true, true},
		{"not reachable", corev1.PodSpec{}, node("a", nil, taint(corev1.TaintNodeUnreachable, corev1.TaintEffectNoSchedule), taint(corev1.TaintNodeUnreachable, corev1.TaintEffectNoExecute)), false, true},
		{"no network", corev1.PodSpec{}, node("a", nil, taint(corev1.TaintNodeNetworkUnavailable, corev1.TaintEffectNoSchedule)), false, true},
		{"no network, and it needs none", corev1.PodSpec{HostNetwork: true}, node("a", nil, taint(corev1.TaintNodeNetworkUnavailable, corev1.TaintEffectNoSchedule)), true, true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			runs, stays := newFit(&corev1.PodTemplateSpec{Spec: tc.spec}).on(tc.node)
			if runs != tc.runs || stays != tc.stays {
				t.Errorf("got runs %v, stays %v; want %v, %v", runs, stays, tc.runs, tc.stays)
			}
		})
	}
}

func TestTolerationOfADaemonLastsForEver(t *testing.T) {
	s := &corev1.PodSpec{Tolerations: []corev1.Toleration{
		{Key: corev1.TaintNodeNotReady, Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoExecute, TolerationSeconds: ptr.To[int64](300)},
		{Key: "gpu", Operator: corev1.TolerationOpExists},
	}}
	got := tolerations(s)
	if got[0].TolerationSeconds != nil || got[1].Key != "gpu" || len(got) != 7 {
		t.Errorf("got %v, want not-ready tolerated without an end, gpu and five more", got)
	}
	if s.Tolerations[0].TolerationSeconds == nil {
		t.Error("the template was changed, which others read")
	}
}

func TestAffinityOfADaemonLeadsToItsNode(t *testing.T) {
	preferred := []corev1.PreferredSchedulingTerm{{Weight: 1}}
	has := &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{
		RequiredDuringSchedulingIgnoredDuringExecution:  &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{}, {}}},
		PreferredDuringSchedulingIgnoredDuringExecution: preferred,
	}, PodAntiAffinity: &corev1.PodAntiAffinity{}}
	for _, a := range []*corev1.Affinity{nil, {}, has} {
		got := onNode(a, "n1")
		if terms := got.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms; len(terms) != 1 || len(terms[0].MatchExpressions) != 0 {
			t.Errorf("got %v, want the node's name alone", terms)
		}
		if a == has && (got.PodAntiAffinity == nil || len(got.NodeAffinity.PreferredDuringSchedulingIgnoredDuringExecution) != 1) {
			t.Errorf("got %v, want all else kept", got)
		}
		if node := nodeOf(&corev1.Pod{Spec: corev1.PodSpec{Affinity: got}}); node != "n1" {
			t.Errorf("got a pod for %q, want n1", node)
		}
	}
	if len(has.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms) != 2 {
		t.Error("the template was changed, which others read")
	}
	if node := nodeOf(&corev1.Pod{Spec: corev1.PodSpec{Affinity: has}}); node != "" {
		t.Errorf("got a pod for %q, want for no node", node)
	}
}

func TestFailedPodsAreLeftAloneForLonger(t *testing.T) {
	var b backoff
	set := func(generation int64) *appsv1.DaemonSet {
		return &appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "logs", UID: "1", Generation: generation}}
	}
	at := noon
	var waits []time.Duration
	for range 12 {
		b.removed(set(1), "n1", at)
		wait := b.held(set(1), "n1", at)
		waits = append(waits, wait)
		at = at.Add(wait)
	}
	if waits[0] != time.Second || waits[1] != 2*time.Second || waits[11] != 15*time.Minute || !slices.IsSorted(waits) {
		t.Errorf("got %v, want 1s, 2s and so on up to 15m", waits)
	}
	before := at.Add(-time.Second)
	if wait := b.held(set(1), "n1", before); wait != time.Second {
		t.Errorf("got held for %s, want the last second", wait)
	}
	for _, tc := range []struct {
		name string
		set  *appsv1.DaemonSet
		node string
		at   time.Time
	}{{"another node", set(1), "n2", before}, {"the set was changed", set(2), "n1", before}, {"the time is over", set(1), "n1", at}} {
		if wait := b.held(tc.set, tc.node, tc.at); wait != 0 {
			t.Errorf("%s: got held for %s", tc.name, wait)
		}
	}
	b.removed(set(1), "n2", at.Add(time.Hour))
	if wait := b.held(set(1), "n2", at.Add(time.Hour)); wait != time.Second {
		t.Errorf("got held for %s after a first failure, want 1s", wait)
	}
	if n := len(b.mu.of["default/logs"].nodes); n != 1 {
		t.Errorf("got %d nodes known, want those that failed of late", n)
	}
	b.forget("default/logs")
	if len(b.mu.of) != 0 {
		t.Errorf("got %v known of a set that is gone", b.mu.of)
	}
}
