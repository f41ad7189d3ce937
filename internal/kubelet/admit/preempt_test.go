package admit

import (
	"slices"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kemudi/kemudi/internal/kubelet/manifest"
)

func TestCriticalPodsTakeThePlaceOfAsFewAsWillDo(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name, cpus, want string
		pods             int64 // that the node takes
	}{
		{"what is free will do", "1", "", 20},
		{"a burstable one", "2", "burst-low", 20},
		{"two of them", "4", "burst-high burst-low", 20},
		{"then a guaranteed one", "5", "burst-high burst-low guaranteed", 20},
		{"more than all of them have", "7", "none", 20},
		{"a best-effort one, for its place", "1", "best", 5},
	} {
		l := NewLedger()
		best := &v1.Pod{Spec: v1.PodSpec{Priority: new(int32), Containers: []v1.Container{{Name: "c"}}}}
		best.Name, best.UID = "best", "best"
		for _, pod := range []*v1.Pod{
			best, asking("burst-low", "1", 0, false), asking("burst-high", "2", 7, false), asking("guaranteed", "1", 0, true), asking("vital", "1", 2000000000, false),
		} {
			l.Take(pod, nil)
		}
		node := v1.ResourceList{v1.ResourceCPU: resource.MustParse("6"), v1.ResourceMemory: resource.MustParse("1Gi"), v1.ResourcePods: *resource.NewQuantity(tc.pods, resource.DecimalSI)}
		pod := asking("new", tc.cpus, 2000000000, false)
		refuse := func(others Allocations, own Allocation) (string, string) { return others.Reject(pod, own, nil, node) }
		got := "none"
		if reason, _ := l.Take(pod, refuse); reason == "" {
			got = ""
		} else if victims := l.Preempt(pod, refuse); victims != nil {
			var names []string
			for _, v := range victims {
				names = append(names, string(v))
				if _, ok := l.mu.taken[v]; ok {
					t.Errorf("%s: %s has what it had", tc.name, v)
				}
			}
			slices.Sort(names)
			got = strings.Join(names, " ")
		}
		if _, taken := l.mu.taken[pod.UID]; got != tc.want || taken != (got != "none") {
			t.Errorf("%s: ended %q, want %q; taken on: %v", tc.name, got, tc.want, taken)
		}
	}
}

func TestCriticalPodsGiveWayToThoseThatMatterMore(t *testing.T) {
	t.Parallel()
	const cluster, node = 2000000000, 2000001000
	for _, tc := range []struct {
		name     string
		priority int32
		cpus     string
		want     []types.UID
	}{
		{"one that matters less", node, "4", []types.UID{"dns", "web"}},
		{"none while others will do", node, "1", []types.UID{"web"}},
		{"none that matters as much", cluster, "4", nil},
		{"no static pod", node, "5", nil},
	} {
		static := asking("static", "1", 0, false)
		static.Spec.Priority, static.Annotations = nil, map[string]string{manifest.AnnotationSource: "file"}
		l := NewLedger()
		for _, pod := range []*v1.Pod{static, asking("dns", "2", cluster, false), asking("proxy", "1", node, false), asking("web", "2", 0, true)} {
			l.Take(pod, nil)
		}
		room := v1.ResourceList{v1.ResourceCPU: resource.MustParse("6"), v1.ResourceMemory: resource.MustParse("1Gi"), v1.ResourcePods: resource.MustParse("20")}
		pod := asking("new", tc.cpus, tc.priority, false)
		got := l.Preempt(pod, func(others Allocations, own Allocation) (string, string) { return others.Reject(pod, own, nil, room) })
		slices.Sort(got)
		if !slices.Equal(got, tc.want) {
			t.Errorf("%s: ended %q, want %q", tc.name, got, tc.want)
		}
	}
}
