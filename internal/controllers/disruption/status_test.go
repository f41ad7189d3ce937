package disruption

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// someTime is when the tests take place.
var someTime = time.Date(2000, 1, 1, 12, 0, 0, 0, time.UTC)

// podsOf reads pods from a line: a name, and what it is: ready, ending.
func podsOf(line string) []*corev1.Pod {
	var pods []*corev1.Pod
	for _, word := range strings.Fields(line) {
		name, is, _ := strings.Cut(word, ":")
		p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name}}
		if strings.Contains(is, "ready") {
			p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}
		}
		if strings.Contains(is, "ending") {
			p.DeletionTimestamp = &metav1.Time{Time: someTime}
		}
		pods = append(pods, p)
	}
	return pods
}

func TestWhatABudgetAllows(t *testing.T) {
	num, share := intstr.FromInt32, intstr.FromString
	for _, tc := range []struct {
		name                string
		min, max            *intstr.IntOrString
		pods                string
		scale               int32
		expected, want, has int32
		allowed             int32
	}{
		{"number that must be there", new(num(2)), nil, "a:ready b:ready c:ready d", 0, 4, 2, 3, 1},
		{"none must be there", new(num(0)), nil, "a:ready b", 0, 2, 0, 1, 1},
		{"more than there are", new(num(5)), nil, "a:ready b:ready", 0, 2, 5, 2, 0},
		{"pods that end are expected, but not healthy", new(num(1)), nil, "a:ready,ending b:ready", 0, 2, 1, 1, 0},
		{"share that must be there, rounded up", new(share("34%")), nil, "a:ready b:ready c:ready", 5, 5, 2, 3, 1},
		{"all must be there", new(share("100%")), nil, "a:ready b:ready", 2, 2, 2, 2, 0},
		{"number that may be missing", nil, new(num(1)), "a:ready b:ready c:ready", 3, 3, 2, 3, 1},
		{"more may be missing than there are", nil, new(num(9)), "a:ready b", 3, 3, 0, 1, 1},
		{"share that may be missing, rounded up", nil, new(share("30%")), "a:ready b:ready c:ready d:ready e:ready", 5, 5, 3, 5, 2},
		{"some are missing already", nil, new(num(1)), "a:ready b:ready", 4, 4, 3, 2, 0},
		{"nobody wants any", nil, new(num(1)), "a:ready", 0, 0, 0, 1, 0},
		{"no pods", new(num(0)), nil, "", 0, 0, 0, 0, 0},
		{"it says nothing", nil, nil, "a:ready", 0, 0, 0, 1, 0},
	} {
		t.Run(tc.name, func(t *testing.T) {
			b := &policyv1.PodDisruptionBudget{ObjectMeta: metav1.ObjectMeta{Generation: 7}, Spec: policyv1.PodDisruptionBudgetSpec{MinAvailable: tc.min, MaxUnavailable: tc.max}}
			s, late, next := count{b, podsOf(tc.pods), tc.scale}.status(someTime)
			if s.ExpectedPods != tc.expected || s.DesiredHealthy != tc.want || s.CurrentHealthy != tc.has || s.DisruptionsAllowed != tc.allowed || len(late) > 0 || next != 0 {
				t.Errorf("%s: got %d expected, %d wanted, %d healthy, %d allowed; want %d, %d, %d, %d",
					tc.pods, s.ExpectedPods, s.DesiredHealthy, s.CurrentHealthy, s.DisruptionsAllowed, tc.expected, tc.want, tc.has, tc.allowed)
			}
			c := meta.FindStatusCondition(s.Conditions, policyv1.DisruptionAllowedCondition)
			want := "False InsufficientPods 7"
			if tc.allowed > 0 {
				want = "True SufficientPods 7"
			}
			if got := fmt.Sprint(c.Status, " ", c.Reason, " ", c.ObservedGeneration); got != want || s.ObservedGeneration != 7 {
				t.Errorf("got condition %s and generation %d, want %s and 7", got, s.ObservedGeneration, want)
			}
		})
	}
}

func TestPodsWhoseEvictionWasGrantedAreNotHealthyUntilTheyAreLate(t *testing.T) {
	at := func(before time.Duration) metav1.Time { return metav1.NewTime(someTime.Add(-before)) }
	b := &policyv1.PodDisruptionBudget{
		Spec: policyv1.PodDisruptionBudgetSpec{MinAvailable: new(intstr.FromInt32(1))},
		Status: policyv1.PodDisruptionBudgetStatus{DisruptedPods: map[string]metav1.Time{
			"new": at(time.Second), "old": at(110 * time.Second), "late": at(2 * time.Minute), "ending": at(time.Second), "gone": at(time.Second),
		}},
	}
	s, late, next := count{b, podsOf("new:ready old:ready late:ready ending:ready,ending other:ready"), 0}.status(someTime)
	var kept []string
	for name := range s.DisruptedPods {
		kept = append(kept, name)
	}
	slices.Sort(kept)
	if !slices.Equal(kept, []string{"new", "old"}) || s.CurrentHealthy != 2 || len(late) != 1 || late[0].Name != "late" || next != 10*time.Second {
		t.Errorf("got %q kept, %d healthy, %d late, again in %s; want new and old, 2 (late, other), late, 10s", kept, s.CurrentHealthy, len(late), next)
	}
}
