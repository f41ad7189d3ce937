package priority

import (
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	schedulingv1beta1 "k8s.io/api/scheduling/v1beta1"

	"github.com/kemudi/kemudi/internal/admission"
	"github.com/kemudi/kemudi/internal/admission/admissiontest"
)

func TestPriorityComesFromTheClass(t *testing.T) {
	classes := []string{
		"PriorityClass: {metadata: {name: high}, value: 1000, preemptionPolicy: Never}",
		"PriorityClass: {metadata: {name: system-node-critical}, value: 2000001000}",
	}
	preferred := append([]string{"PriorityClass: {metadata: {name: usual}, value: 5, globalDefault: true}", "PriorityClass: {metadata: {name: more}, value: 7, globalDefault: true}"}, classes...)
	pod := func(spec string) string { return "Pod: {metadata: {namespace: team, name: x}, spec: {" + spec + "}}" }
	for _, q := range []struct {
		name          string
		classes       []string
		now, old      string
		want, refused string
	}{
		{name: "no class", classes: classes, now: pod(""), want: " 0 PreemptLowerPriority"},
		{name: "default class of the lowest value", classes: preferred, now: pod(""), want: "usual 5 PreemptLowerPriority"},
		{name: "named class", classes: preferred, now: pod("priorityClassName: high"), want: "high 1000 Never"},
		{name: "system class", classes: classes, now: pod("priorityClassName: system-node-critical"), want: "system-node-critical 2000001000 PreemptLowerPriority"},
		{name: "same values given", classes: classes, now: pod("priorityClassName: high, priority: 1000, preemptionPolicy: Never"), want: "high 1000 Never"},
		{name: "class that is not there", classes: classes, now: pod("priorityClassName: gone"), refused: `pods "x" is forbidden: no PriorityClass with name gone was found`},
		{name: "other value given", classes: classes, now: pod("priorityClassName: high, priority: 7"), refused: `pods "x" is forbidden: the integer value of priority (7) must not be provided in pod spec; priority admission controller computed 1000 from the given PriorityClass name`},
		{name: "value without class", classes: classes, now: pod("priority: 7"), refused: `pods "x" is forbidden: the integer value of priority (7) must not be provided in pod spec; priority admission controller computed 0 from the given PriorityClass name`},
		{name: "other policy given", classes: classes, now: pod("priorityClassName: high, preemptionPolicy: PreemptLowerPriority"), refused: `pods "x" is forbidden: the string value of PreemptionPolicy (PreemptLowerPriority) must not be provided in pod spec; priority admission controller computed Never from the given PriorityClass name`},
		{name: "update by a client that does not know the fields", classes: preferred, now: pod("priorityClassName: high"), old: pod("priorityClassName: high, priority: 900, preemptionPolicy: Never"), want: "high 900 Never"},
	} {
		w := admissiontest.New(t, q.classes...)
		a := admissiontest.Request(t, q.now, q.old)
		refused := admissiontest.Run(t, admission.NewChain(New(w.Options())), a)
		if refused != q.refused {
			t.Errorf("%s: got %q, want %q", q.name, refused, q.refused)
		}
		s := a.Object.(*corev1.Pod).Spec
		if refused != "" {
			continue
		}
		if got := fmt.Sprintf("%s %d %s", s.PriorityClassName, *s.Priority, *s.PreemptionPolicy); got != q.want {
			t.Errorf("%s: got %s, want %s", q.name, got, q.want)
		}
	}
}

func TestAGroupOfPodsHasThePriorityOfItsClass(t *testing.T) {
	classes := []string{"PriorityClass: {metadata: {name: high}, value: 1000}", "PriorityClass: {metadata: {name: usual}, value: 5, globalDefault: true}"}
	group := func(spec string) string {
		return "PodGroup: {metadata: {namespace: team, name: x}, spec: {schedulingPolicy: {basic: {}}, " + spec + "}}"
	}
	for _, q := range []struct{ name, now, old, want, refused string }{
		{name: "no class", now: group(""), want: "usual 5"},
		{name: "named class", now: group("priorityClassName: high"), want: "high 1000"},
		{name: "class that is not there", now: group("priorityClassName: gone"), refused: `podgroups.scheduling.k8s.io "x" is forbidden: no PriorityClass with name gone was found`},
		{name: "other value given", now: group("priorityClassName: high, priority: 7"), refused: `podgroups.scheduling.k8s.io "x" is forbidden: the integer value of priority (7) must not be provided in pod group spec; priority admission controller computed 1000 from the given PriorityClass name`},
		{name: "update that leaves it out", now: group("priorityClassName: high"), old: group("priorityClassName: high, priority: 900"), want: "high 900"},
	} {
		w := admissiontest.New(t, classes...)
		a := admissiontest.Request(t, q.now, q.old)
		if refused := admissiontest.Run(t, admission.NewChain(New(w.Options())), a); refused != q.refused {
			t.Errorf("%s: got %q, want %q", q.name, refused, q.refused)
		}
		s := a.Object.(*schedulingv1beta1.PodGroup).Spec
		if q.refused != "" {
			continue
		}
		if got := fmt.Sprintf("%s %d", s.PriorityClassName, *s.Priority); got != q.want {
			t.Errorf("%s: got %s, want %s", q.name, got, q.want)
		}
	}
}

func TestOnlyOnePriorityClassIsTheDefault(t *testing.T) {
	w := admissiontest.New(t, "PriorityClass: {metadata: {name: usual}, value: 5, globalDefault: true}")
	c := admission.NewChain(New(w.Options()))
	const want = `priorityclasses.scheduling.k8s.io "more" is forbidden: PriorityClass usual is already marked as default. Only one default can exist`
	if got := admissiontest.Run(t, c, admissiontest.Request(t, "PriorityClass: {metadata: {name: more}, value: 7, globalDefault: true}", "")); got != want {
		t.Errorf("second default: got %s, want %s", got, want)
	}
	usual := "PriorityClass: {metadata: {name: usual}, value: 5, globalDefault: true}"
	if got := admissiontest.Run(t, c, admissiontest.Request(t, usual, usual)); got != "" {
		t.Errorf("update of the default: got %s", got)
	}
}
