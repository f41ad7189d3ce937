package usage_test

import (
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"github.com/kemudi/kemudi/internal/api"
	"github.com/kemudi/kemudi/internal/api/apps"
	"github.com/kemudi/kemudi/internal/api/core"
	"github.com/kemudi/kemudi/internal/api/core/usage"
	"github.com/kemudi/kemudi/internal/resource"
)

func counter(t *testing.T, def *resource.Def) usage.Counter {
	t.Helper()
	c, ok := usage.For(def)
	if !ok {
		t.Fatalf("%s is not counted", def)
	}
	return c
}

func TestEveryStoredKindWithNamespacesIsCountedButEvents(t *testing.T) {
	for _, def := range api.All() {
		c, ok := usage.For(def)
		if want := def.Namespaced && def.Stored() && def != core.Events.Def; ok != want {
			t.Errorf("%s: got %t, want %t", def, ok, want)
		}
		name := corev1.ResourceName("count/" + def.String())
		if ok && (!c.TakesAny(corev1.ResourceList{name: {}}) || c.TakesAny(corev1.ResourceList{name + "x": {}})) {
			t.Errorf("%s: it is not counted as %s, or as something else too", def, name)
		}
	}
	names := counter(t, apps.Deployments.Def).Names(corev1.ResourceList{"count/deployments.apps": {}, "count/deployments.extensions": {}, "count/deployments": {}, "pods": {}})
	if got, want := fmt.Sprint(names), "[count/deployments.apps count/deployments.extensions]"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

func TestPodsTakeNothingButTheirNumberOnceTheyHaveEnded(t *testing.T) {
	c := counter(t, core.Pods.Def)
	deleted := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	for _, p := range []struct {
		status string
		now    time.Time
		want   string
	}{
		{"{}", deleted, "1 1 100m"},
		{"{status: {phase: Failed}}", deleted, "1 0 0"},
		{"{status: {phase: Succeeded}}", deleted, "1 0 0"},
		{"{metadata: {deletionTimestamp: '2026-01-02T03:04:05Z', deletionGracePeriodSeconds: 30}}", deleted.Add(30 * time.Second), "1 1 100m"},
		{"{metadata: {deletionTimestamp: '2026-01-02T03:04:05Z', deletionGracePeriodSeconds: 30}}", deleted.Add(31 * time.Second), "1 0 0"},
	} {
		pod := &corev1.Pod{}
		if err := yaml.Unmarshal([]byte("spec: {containers: [{name: a, resources: {requests: {cpu: 100m}}}]}"), pod); err != nil {
			t.Fatal(err)
		}
		if err := yaml.Unmarshal([]byte(p.status), pod); err != nil {
			t.Fatal(err)
		}
		u := c.Of(pod)
		count, pods, cpu := u.At(p.now, "count/pods"), u.At(p.now, "pods"), u.At(p.now, "requests.cpu")
		if got := fmt.Sprint(&count, " ", &pods, " ", &cpu); got != p.want {
			t.Errorf("%s at %s: got %s, want %s", p.status, p.now, got, p.want)
		}
	}
}

func TestOnlyWhatQuotasCountIsAChange(t *testing.T) {
	pod := "metadata: {uid: u}\nspec: {containers: [{name: a, resources: {requests: {cpu: 100m}}}]}\n"
	for _, q := range []struct {
		name, before, after string
		same                bool
	}{
		{"a status", "status: {phase: Running}", "status: {phase: Running, podIP: 192.0.2.1}", true},
		{"given just what was asked for", "status: {phase: Running}", "status: {phase: Running, containerStatuses: [{name: a, resources: {requests: {cpu: 100m}}}]}", true},
		{"given more", "status: {phase: Running}", "status: {phase: Running, containerStatuses: [{name: a, resources: {requests: {cpu: 300m}}}]}", false},
		{"over", "status: {phase: Running}", "status: {phase: Succeeded}", false},
		{"bounded", "", "spec: {activeDeadlineSeconds: 5, containers: [{name: a, resources: {requests: {cpu: 100m}}}]}", false},
		{"deleted", "", "metadata: {uid: u, deletionTimestamp: '2026-01-02T03:04:05Z'}", false},
		{"another of the name", "", "metadata: {uid: v}", false},
	} {
		var states [2]corev1.Pod
		for i, text := range []string{q.before, q.after} {
			for _, text := range []string{pod, text} {
				if err := yaml.Unmarshal([]byte(text), &states[i]); err != nil {
					t.Fatal(err)
				}
			}
		}
		if got := counter(t, core.Pods.Def).Same(&states[0], &states[1]); got != q.same {
			t.Errorf("%s: got %t, want %t", q.name, got, q.same)
		}
	}
}
