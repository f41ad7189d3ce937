package kubelet

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"testing"
	"testing/synctest"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/kemudi/kemudi/internal/kubelet/cgroup"
	kind "github.com/kemudi/kemudi/internal/resource"
)

func TestPodsAreHeldToWhatIsNotReservedForOthers(t *testing.T) {
	capacity := v1.ResourceList{v1.ResourceCPU: resource.MustParse("4"), v1.ResourceMemory: resource.MustParse("8Gi"), v1.ResourcePods: resource.MustParse("110")}
	kube, system := Reserved{}, Reserved{}
	if err := errors.Join(kube.Set("cpu=500m,memory=1Gi"), system.Set("cpu=500m,memory=512Mi")); err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		enforce []string
		want    cgroup.Bound
	}{
		{[]string{enforcePods}, cgroup.Bound{Shares: 3072, Memory: 13 << 29}},
		{[]string{enforceNone}, cgroup.Bound{Shares: 4096, Memory: 8 << 30}},
	} {
		e := &enforcement{s: Settings{Enforce: tc.enforce, KubeReserved: kube, SystemReserved: system}, capacity: capacity}
		if got, err := e.podsBound(); err != nil || got != tc.want {
			t.Errorf("%v: got %+v, %v, want %+v", tc.enforce, got, err, tc.want)
		}
	}
	if err := system.Set("pid=1000"); err != nil {
		t.Fatal(err)
	}
	e := &enforcement{s: Settings{Enforce: []string{enforcePods}, SystemReserved: system}, capacity: capacity}
	if got, err := e.podsBound(); err != nil || got.Processes <= 0 {
		t.Errorf("with reserved processes: got %+v, %v", got, err)
	}
}

func TestEnforcementIsCheckedByTheNamesOfItsFlags(t *testing.T) {
	cpu := Reserved{v1.ResourceCPU: resource.MustParse("1")}
	for _, tc := range []struct {
		s    Settings
		want string
	}{
		{Settings{Enforce: []string{"pods", "kube-reserved", "system-reserved"}, KubeCgroup: "/k", SystemCgroup: "/s", KubeReserved: cpu, SystemReserved: cpu}, ""},
		{Settings{Enforce: []string{"none"}}, ""},
		{Settings{Enforce: []string{"all"}}, `enforce-node-allocatable: option "all": valid options are none, pods, system-reserved and kube-reserved`},
		{Settings{Enforce: []string{"pods", "none"}}, "enforce-node-allocatable: nothing else may be named beside none"},
		{Settings{Enforce: []string{"kube-reserved"}, KubeReserved: cpu}, "kube-reserved-cgroup: must be given when enforce-node-allocatable names kube-reserved"},
		{Settings{Enforce: []string{"system-reserved"}, SystemReserved: cpu}, "system-reserved-cgroup: must be given when enforce-node-allocatable names system-reserved"},
		{Settings{Enforce: []string{"kube-reserved"}, KubeCgroup: "/k"}, "kube-reserved: must be given when enforce-node-allocatable names kube-reserved"},
		{Settings{Enforce: []string{"system-reserved"}, SystemCgroup: "/s"}, "system-reserved: must be given when enforce-node-allocatable names system-reserved"},
	} {
		got := ""
		if err := tc.s.checkEnforcement(); err != nil {
			got = err.Error()
		}
		if got != tc.want {
			t.Errorf("%+v: got %q, want %q", tc.s, got, tc.want)
		}
	}
}

// told collects events.
type told []string

func (e *told) Event(_ kind.Object, severity, reason, message string) {
	*e = append(*e, severity+" "+reason+": "+message)
}

func TestWhatCannotBeEnforcedIsToldAndTriedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var events told
		e := &enforcement{log: slog.New(slog.DiscardHandler), events: &events, node: func() *v1.Node { return &v1.Node{} }}
		left := 2
		list := []holding{
			{func() error { return nil }, "one", "not one"},
			{func() error {
				if left--; left < 0 {
					return nil
				}
				return errors.New("read-only file system")
			}, "two", "not two"},
		}
		if err := e.hold(t.Context(), list); err != nil {
			t.Fatal(err)
		}
		want := told{
			"Normal NodeAllocatableEnforced: one", "Warning FailedNodeAllocatableEnforcement: not two: read-only file system",
			"Warning FailedNodeAllocatableEnforcement: not two: read-only file system", "Normal NodeAllocatableEnforced: two",
		}
		if !slices.Equal(events, want) {
			t.Errorf("got %q, want %q", events, want)
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		left = 1
		if err := e.hold(ctx, list); !errors.Is(err, context.Canceled) {
			t.Errorf("a node agent that ends: got %v", err)
		}
	})
}
