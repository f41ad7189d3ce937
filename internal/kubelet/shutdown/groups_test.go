package shutdown

import (
	"fmt"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"
)

func TestPodsEndByTheirPriorities(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		settings Settings
		groups   string
		shared   string
	}{
		{Settings{}, "[]", ""},
		{Settings{Period: 30 * time.Second, Critical: 10 * time.Second}, "[{0 20s} {2000000000 10s}]", "none -5 7 1000 | critical"},
		{Settings{Period: 30 * time.Second}, "[{0 30s} {2000000000 0s}]", "none -5 7 1000 | critical"},
		{Settings{ByPriority: Groups{{1000, 20 * time.Second}, {0, 10 * time.Second}, {2000000000, time.Second}}}, "[{0 10s} {1000 20s} {2000000000 1s}]", "none -5 7 | 1000 | critical"},
		{Settings{ByPriority: Groups{{7, time.Second}}}, "[{7 1s}]", "none -5 7 1000 critical"},
	} {
		var pods []*v1.Pod
		for _, p := range []struct {
			name     string
			priority *int32
		}{{"none", nil}, {"-5", ptr.To(int32(-5))}, {"7", ptr.To(int32(7))}, {"1000", ptr.To(int32(1000))}, {"critical", ptr.To(int32(2000001000))}} {
			pod := &v1.Pod{Spec: v1.PodSpec{Priority: p.priority}}
			pod.Name = p.name
			pods = append(pods, pod)
		}
		groups := tc.settings.Groups()
		if len(groups) == 0 { // nobody shares
			pods = nil
		}
		var parts []string
		for _, list := range share(groups, pods) {
			var names []string
			for _, pod := range list {
				names = append(names, pod.Name)
			}
			parts = append(parts, strings.Join(names, " "))
		}
		if got := fmt.Sprint(groups); got != tc.groups || strings.Join(parts, " | ") != tc.shared {
			t.Errorf("%+v: got %s, shared as %q, want %s, %q", tc.settings, got, strings.Join(parts, " | "), tc.groups, tc.shared)
		}
	}
}

func TestTimesThatMakeNoSenseAreRefused(t *testing.T) {
	t.Parallel()
	for want, s := range map[string]Settings{
		"": {Period: time.Minute, Critical: time.Minute},
		"shutdown-grace-period: 500ms: must be either zero or otherwise >= 1 sec":                 {Period: 500 * time.Millisecond},
		"shutdown-grace-period-critical-pods: 1ms: must be either zero or otherwise >= 1 sec":     {Period: time.Minute, Critical: time.Millisecond},
		"shutdown-grace-period-critical-pods: 30s: must be <= shutdown-grace-period: 20s":         {Period: 20 * time.Second, Critical: 30 * time.Second},
		"shutdown-grace-period and shutdown-grace-period-by-pod-priority: give one of them":       {Period: time.Minute, ByPriority: Groups{{0, time.Second}}},
		"shutdown-grace-period-by-pod-priority: 7=-1s: must be either zero or otherwise >= 1 sec": {ByPriority: Groups{{7, -time.Second}}},
	} {
		got := ""
		if err := s.Check(); err != nil {
			got = err.Error()
		}
		if got != want {
			t.Errorf("%+v: got %q, want %q", s, got, want)
		}
	}
	var g Groups
	if err := g.Set("0=10s, 1000=1m"); err != nil || g.String() != "0=10s,1000=1m0s" {
		t.Errorf("got %q, %v", g.String(), err)
	}
	for _, text := range []string{"0", "x=1s", "0=soon", "0=1s,0=2s", "3000000000=1s"} {
		if err := g.Set(text); err == nil {
			t.Errorf("%q: got no error", text)
		}
	}
}
