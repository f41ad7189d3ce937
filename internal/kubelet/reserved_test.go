package kubelet

import (
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

func TestReservedResourcesAreReadFromAFlag(t *testing.T) {
	for text, want := range map[string]string{
		"":                           "",
		"cpu=100m":                   "cpu=100m",
		" memory=1Gi,cpu=0.5 ":       "cpu=500m,memory=1Gi",
		"ephemeral-storage=1000000k": "ephemeral-storage=1G",
		"pid=1000":                   "pid=1k",
	} {
		r := Reserved{"memory": {}}
		if err := r.Set(text); err != nil || r.String() != want {
			t.Errorf("%q: got %s, %v, want %s", text, r.String(), err, want)
		}
	}
	for text, want := range map[string]string{
		"cpu":         `"cpu" is not of the form resource=quantity`,
		"pods=10":     `cannot reserve "pods" resource: only cpu, memory, ephemeral-storage and pid`,
		"memory=-1Gi": `resource quantity for "memory" cannot be negative: -1Gi`,
		"cpu=much":    "quantity of cpu: quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'",
	} {
		var r Reserved
		if err := r.Set(text); err == nil || err.Error() != want {
			t.Errorf("%q: got %v, want %s", text, err, want)
		}
	}
}

func TestNodeTakesSoManyPodsForEachCPU(t *testing.T) {
	t.Parallel()
	for each, want := range map[int]int64{0: 20, 3: 12, 10: 20} {
		f, err := findFacts(&Options{Simulated: true, Capacity: v1.ResourceList{v1.ResourceCPU: resource.MustParse("4")}, Settings: Settings{MaxPods: 20, PodsPerCore: each}})
		if err != nil {
			t.Fatal(err)
		}
		if got := f.capacity.Pods().Value(); got != want {
			t.Errorf("%d for each: got %d pods, want %d", each, got, want)
		}
	}
}
