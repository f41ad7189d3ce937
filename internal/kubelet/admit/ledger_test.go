package admit

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"
)

// asking is a pod with one container that asks for so many CPUs.
func asking(name, cpus string, priority int32, guaranteed bool) *v1.Pod {
	list := v1.ResourceList{v1.ResourceCPU: resource.MustParse(cpus), v1.ResourceMemory: resource.MustParse("1Mi")}
	c := v1.Container{Name: "c", Resources: v1.ResourceRequirements{Requests: list}}
	if guaranteed {
		c.Resources.Limits = list
	}
	pod := &v1.Pod{Spec: v1.PodSpec{Priority: &priority, Containers: []v1.Container{c}}}
	pod.Name, pod.UID = name, types.UID(name)
	return pod
}

// Proves: KEP-1287
func TestWhatIsGivenBackGoesToWhoMattersMost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		node := v1.ResourceList{v1.ResourceCPU: resource.MustParse("8"), v1.ResourceMemory: resource.MustParse("1Gi")}
		l := NewLedger()
		var told []string
		take := func(pod *v1.Pod) { l.Take(pod, nil) }
		for _, name := range []string{"low", "early", "late", "guaranteed", "high"} {
			take(asking(name, "1", 0, name == "guaranteed"))
		}
		take(asking("big", "3", 0, false))
		want := func(cpus, name string, priority int32) string {
			time.Sleep(time.Second)
			reason, _ := l.Resize(asking(name, cpus, priority, name == "guaranteed"), node, func(string) { told = append(told, name) })
			return reason
		}
		for _, name := range []string{"low", "early", "late", "guaranteed", "high"} {
			priority := map[string]int32{"low": -1, "high": 5}[name]
			if got := want("2", name, priority); got != v1.PodReasonDeferred {
				t.Fatalf("%s on a full node: got %q", name, got)
			}
		}
		if got := want("9", "high", 5); got != v1.PodReasonInfeasible {
			t.Errorf("more than the node has: got %q", got)
		}
		if got := want("2", "high", 5); got != v1.PodReasonDeferred {
			t.Errorf("less again: got %q", got)
		}
		for _, step := range []struct {
			what string
			do   func()
			told string
		}{
			{"one asks for less", func() { want("2", "big", 0) }, "high"},
			{"it asks for less again", func() { want("1", "big", 0) }, "guaranteed"},
			{"it is gone", func() { l.Release("big") }, "early"},
			{"one that has got more is gone", func() { l.Release("high") }, "late low"},
			{"the next one is gone", func() { l.Release("early") }, ""},
		} {
			told = nil
			step.do()
			if got := strings.Join(told, " "); got != step.told {
				t.Errorf("%s: told %q, want %q", step.what, got, step.told)
			}
		}
		used := l.mu.taken.Used(v1.ResourceCPU)
		if got := fmt.Sprint(used.Value(), len(l.mu.waiting)); got != "6 0" {
			t.Errorf("used and waiting: got %s, want 6 0", got)
		}
	})
}
