package podautoscaler

import (
	"fmt"
	"strings"
	"testing"
	"time"

	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	quantity "k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
)

// podsOf makes pods of words: ready, unready, starting, pending, failed, ending. Each
// asks for 100m; those that are ready or unready have been so for an hour.
func podsOf(words string) []*corev1.Pod {
	var pods []*corev1.Pod
	for i, word := range strings.Fields(words) {
		long := metav1.NewTime(time.Now().Add(-time.Hour))
		p := &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint("p", i)},
			Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "main", Resources: corev1.ResourceRequirements{
				Requests: corev1.ResourceList{corev1.ResourceCPU: quantity.MustParse("100m")},
			}}}},
			Status: corev1.PodStatus{Phase: corev1.PodRunning, StartTime: &long, Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue, LastTransitionTime: long}}},
		}
		switch word {
		case "unready": // and never was ready
			p.Status.Conditions[0].Status = corev1.ConditionFalse
		case "lost": // it was ready for most of the hour
			p.Status.Conditions[0].Status, p.Status.Conditions[0].LastTransitionTime = corev1.ConditionFalse, metav1.Now()
		case "starting":
			now := metav1.Now()
			p.Status.StartTime, p.Status.Conditions[0].LastTransitionTime = &now, now
		case "pending":
			p.Status.Phase = corev1.PodPending
		case "failed":
			p.Status.Phase = corev1.PodFailed
		case "ending":
			p.DeletionTimestamp = &metav1.Time{Time: time.Now()}
		}
		pods = append(pods, p)
	}
	return pods
}

// of makes a metric of the pods' values, in thousandths; "-" is a pod that has none.
func of(pods, values string, current int32) *measured {
	m := &measured{
		pods: podsOf(pods), values: map[string]usage{}, name: corev1.ResourceCPU, current: current, tolerance: tolerance{0.1, 0.1},
		readiness: readiness{5 * time.Minute, 30 * time.Second},
	}
	for i, v := range strings.Fields(values) {
		var n int64
		if _, err := fmt.Sscan(v, &n); err == nil {
			m.values[fmt.Sprint("p", i)] = usage{n, time.Now(), 15 * time.Second}
		}
	}
	return m
}

func TestReplicasFollowTheShareOfRequests(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name, pods, values string
		current, percent   int32
		want               string
	}{
		{"as wanted", "ready ready", "50 50", 2, 50, "2 50%"},
		{"within the tolerance", "ready ready", "54 54", 2, 50, "2 54%"},
		{"twice as much", "ready ready", "100 100", 2, 50, "4 100%"},
		{"half as much", "ready ready ready ready", "25 25 25 25", 4, 50, "2 25%"},
		{"nothing", "ready ready", "0 0", 2, 50, "0 0%"},
		{"rounded up", "ready ready ready", "60 60 60", 3, 50, "4 60%"},
		{"no pods", "", "", 2, 50, "no pods returned by selector while calculating replica count"},
		{"none that says", "ready", "-", 1, 50, "did not receive metrics for targeted pods (pods might be unready)"},
		{"a missing one counts as busy when there would be fewer", "ready ready ready", "10 10 -", 3, 50, "3 10%"},
		{"a missing one counts as idle when there would be more", "ready ready ready", "100 100 -", 3, 50, "4 100%"},
		{"a missing one that turns the direction leaves all as it is", "ready ready ready", "40 40 -", 3, 50, "3 40%"},
		{"one that starts counts as idle when there would be more", "ready starting", "150 150", 2, 50, "3 150%"},
		{"one that starts does not count when there would be fewer", "ready ready starting", "10 10 500", 3, 50, "1 10%"},
		{"one that was never ready does not count", "ready unready", "100 900", 2, 50, "2 100%"},
		{"one that was ready does", "ready lost", "100 100", 2, 50, "4 100%"},
		{"one that waits counts as idle", "ready pending", "100 -", 2, 50, "2 100%"},
		{"those that end do not count", "ready failed ending", "100 900 900", 3, 50, "2 100%"},
		{"a target above all", "ready ready ready", "150 150 -", 3, 200, "3 150%"},
	} {
		p, err := of(c.pods, c.values, c.current).byShare(c.percent, "")
		got := fmt.Sprintf("%d %d%%", p.replicas, p.utilization)
		if err != nil {
			got = err.Error()
		}
		if got != c.want {
			t.Errorf("%s: got %s, want %s", c.name, got, c.want)
		}
	}
}

func TestReplicasFollowAnAverage(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name, pods, values string
		current            int32
		want               string
	}{
		{"as wanted", "ready ready", "10 10", 2, "2 10"},
		{"more", "ready ready", "25 15", 2, "4 20"},
		{"less", "ready ready ready ready", "1 1 1 1", 4, "1 1"},
		{"a missing one counts as on target when there would be fewer", "ready ready ready", "1 1 -", 3, "2 1"},
		{"a missing one counts as nothing when there would be more", "ready ready ready", "30 30 -", 3, "6 30"},
	} {
		m := of(c.pods, c.values, c.current)
		m.name = ""
		p, err := m.byAverage(10)
		if got := fmt.Sprint(p.replicas, " ", p.value); err != nil || got != c.want {
			t.Errorf("%s: got %s, %v, want %s", c.name, got, err, c.want)
		}
	}
}

func TestReplicasFollowAValueOfAll(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name          string
		pods          string
		current       int32
		value, target int64
		want          string
	}{
		{"as wanted", "ready ready", 2, 100, 100, "2"},
		{"three times", "ready ready", 2, 300, 100, "6"},
		{"only those that are ready count", "ready unready", 2, 300, 100, "3"},
		{"from zero", "", 0, 250, 100, "3"},
		{"at zero", "", 0, 0, 100, "0"},
		{"pods that are not there", "", 2, 300, 100, "unable to calculate ready pods: no pods returned by selector while calculating replica count"},
	} {
		p, err := of(c.pods, "", c.current).byValue(c.value, c.target)
		got := fmt.Sprint(p.replicas)
		if err != nil {
			got = err.Error()
		}
		if got != c.want {
			t.Errorf("%s: got %s, want %s", c.name, got, c.want)
		}
	}
	for _, c := range []struct {
		value int64
		pods  int32
		want  string
	}{{100, 2, "10 50"}, {21, 2, "2 11"}, {0, 3, "0 0"}, {35, 0, "4 35"}} {
		p := of("", "", c.pods).byValuePerPod(c.value, 10, c.pods)
		if got := fmt.Sprint(p.replicas, " ", p.value); got != c.want {
			t.Errorf("%d for %d pods: got %s, want %s", c.value, c.pods, got, c.want)
		}
	}
}

func TestRequestsAreThoseOfAllThatRuns(t *testing.T) {
	t.Parallel()
	pod := podsOf("ready")[0]
	always := corev1.ContainerRestartPolicyAlways
	request := func(q string) corev1.ResourceRequirements {
		return corev1.ResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceCPU: quantity.MustParse(q)}}
	}
	pod.Spec.InitContainers = []corev1.Container{{Name: "once", Resources: request("9")}, {Name: "side", RestartPolicy: &always, Resources: request("50m")}}
	ask := func(container string) any {
		got, err := requestsOf([]*corev1.Pod{pod}, corev1.ResourceCPU, container)
		if err != nil {
			return err.Error()
		}
		return got["p0"]
	}
	if got := ask(""); got != int64(150) {
		t.Errorf("the pod: got %v, want 150: the container and the one beside it", got)
	}
	if got := ask("side"); got != int64(50) {
		t.Errorf("one container: got %v, want 50", got)
	}
	pod.Spec.Resources = ptr.To(request("2"))
	if got := ask(""); got != int64(2000) {
		t.Errorf("a pod with requests of its own: got %v, want 2000", got)
	}
	pod.Spec.Resources, pod.Spec.Containers[0].Resources.Requests = nil, nil
	if got := ask(""); got != "missing request for cpu in container main of Pod p0" {
		t.Errorf("without a request: got %v", got)
	}
}

// step is what is wanted at a time, and what comes of it.
type step struct {
	after  time.Duration
	wanted int32
	want   string
}

func TestWantedNumbersAreFollowedWithinLimits(t *testing.T) {
	t.Parallel()
	rules := func(window int32, selected autoscalingv2.ScalingPolicySelect, policies ...autoscalingv2.HPAScalingPolicy) *autoscalingv2.HPAScalingRules {
		return &autoscalingv2.HPAScalingRules{StabilizationWindowSeconds: &window, SelectPolicy: &selected, Policies: policies}
	}
	pods := func(n, period int32) autoscalingv2.HPAScalingPolicy {
		return autoscalingv2.HPAScalingPolicy{Type: autoscalingv2.PodsScalingPolicy, Value: n, PeriodSeconds: period}
	}
	percent := func(n, period int32) autoscalingv2.HPAScalingPolicy {
		return autoscalingv2.HPAScalingPolicy{Type: autoscalingv2.PercentScalingPolicy, Value: n, PeriodSeconds: period}
	}
	const s = time.Second
	free := rules(0, autoscalingv2.MaxChangePolicySelect, percent(1000, 15), pods(100, 15))
	for _, c := range []struct {
		name     string
		behavior *autoscalingv2.HorizontalPodAutoscalerBehavior
		current  int32
		steps    []step
	}{
		{"no behavior", nil, 2, []step{
			{0, 9, "4 ScaleUpLimit"}, {15 * s, 9, "8 ScaleUpLimit"}, {15 * s, 20, "10 TooManyReplicas"},
			{15 * s, 1, "10 TooManyReplicas"}, {270 * s, 1, "10 TooManyReplicas"}, {31 * s, 1, "1 DesiredWithinRange"}, {15 * s, 0, "1 DesiredWithinRange"}, {301 * s, 0, "1 TooFewReplicas"},
		}},
		{"four pods or twice as many, as all", &autoscalingv2.HorizontalPodAutoscalerBehavior{
			ScaleUp: rules(0, autoscalingv2.MaxChangePolicySelect, pods(4, 15), percent(100, 15)), ScaleDown: rules(300, autoscalingv2.MaxChangePolicySelect, percent(100, 15)),
		}, 1, []step{{0, 10, "5 ScaleUpLimit"}, {5 * s, 10, "5 ScaleUpLimit"}, {15 * s, 10, "10 DesiredWithinRange"}, {15 * s, 1, "10 DesiredWithinRange"}, {301 * s, 1, "1 DesiredWithinRange"}}},
		{"the smaller change", &autoscalingv2.HorizontalPodAutoscalerBehavior{
			ScaleUp: rules(0, autoscalingv2.MinChangePolicySelect, pods(3, 60), percent(100, 60)), ScaleDown: rules(0, autoscalingv2.MinChangePolicySelect, pods(1, 60), percent(50, 60)),
		}, 2, []step{{0, 10, "4 ScaleUpLimit"}, {61 * s, 10, "7 ScaleUpLimit"}, {30 * s, 10, "7 ScaleUpLimit"}, {61 * s, 1, "6 ScaleDownLimit"}, {15 * s, 1, "6 ScaleDownLimit"}, {61 * s, 1, "5 ScaleDownLimit"}}},
		{"a percentage of few grows", &autoscalingv2.HorizontalPodAutoscalerBehavior{
			ScaleUp: rules(0, autoscalingv2.MaxChangePolicySelect, percent(10, 60)), ScaleDown: free,
		}, 1, []step{{0, 9, "2 ScaleUpLimit"}, {61 * s, 9, "3 ScaleUpLimit"}}},
		{"disabled", &autoscalingv2.HorizontalPodAutoscalerBehavior{
			ScaleUp: rules(0, autoscalingv2.DisabledPolicySelect), ScaleDown: rules(0, autoscalingv2.DisabledPolicySelect),
		}, 5, []step{{0, 9, "5 ScaleUpLimit"}, {15 * s, 1, "5 ScaleDownLimit"}}},
		{"the lowest of a window upwards", &autoscalingv2.HorizontalPodAutoscalerBehavior{ScaleUp: rules(60, autoscalingv2.MaxChangePolicySelect, pods(100, 15)), ScaleDown: free},
			2, []step{{0, 5, "2 DesiredWithinRange"}, {30 * s, 8, "2 DesiredWithinRange"}, {40 * s, 8, "8 DesiredWithinRange"}}},
		{"bounds", &autoscalingv2.HorizontalPodAutoscalerBehavior{ScaleUp: free, ScaleDown: free}, 5, []step{{0, 50, "10 TooManyReplicas"}, {15 * s, 0, "1 TooFewReplicas"}}},
	} {
		h, now, current := &history{}, time.Now(), c.current
		h.begin(current, now)
		for i, st := range c.steps {
			now = now.Add(st.after)
			b := &bounds{current: current, least: 1, most: 10, behavior: c.behavior, downscale: 5 * time.Minute, now: now}
			n, _, limited := h.follow(st.wanted, b)
			if got := fmt.Sprint(n, " ", limited.reason); got != st.want {
				t.Errorf("%s, step %d: wanted %d of %d: got %s, want %s", c.name, i+1, st.wanted, current, got, st.want)
			}
			h.did(current, n, b)
			current = n
		}
	}
}

func TestHistoryIsForgotten(t *testing.T) {
	t.Parallel()
	h, now := &history{}, time.Now()
	window := int32(60)
	b := &bounds{least: 1, most: 100, downscale: 5 * time.Minute, behavior: &autoscalingv2.HorizontalPodAutoscalerBehavior{
		ScaleUp:   &autoscalingv2.HPAScalingRules{StabilizationWindowSeconds: &window, SelectPolicy: ptr.To(autoscalingv2.MaxChangePolicySelect), Policies: []autoscalingv2.HPAScalingPolicy{{Type: autoscalingv2.PodsScalingPolicy, Value: 9, PeriodSeconds: 15}}},
		ScaleDown: &autoscalingv2.HPAScalingRules{StabilizationWindowSeconds: &window, SelectPolicy: ptr.To(autoscalingv2.MaxChangePolicySelect), Policies: []autoscalingv2.HPAScalingPolicy{{Type: autoscalingv2.PodsScalingPolicy, Value: 9, PeriodSeconds: 15}}},
	}}
	for i := range 10000 {
		b.now, b.current = now.Add(time.Duration(i)*15*time.Second), int32(1+i%9)
		n, _, _ := h.follow(int32(1+i%7), b)
		h.did(b.current, n, b)
	}
	if len(h.wanted) > 10 || len(h.up) > 10 || len(h.down) > 10 {
		t.Errorf("kept %d recommendations and %d and %d changes", len(h.wanted), len(h.up), len(h.down))
	}
}
