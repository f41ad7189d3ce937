package job

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/kemudi/kemudi/internal/texttest"
	"github.com/kemudi/kemudi/internal/trace"
)

// TestPlansAreWhatTheTextsSay runs testdata/plan/*.txt: jobs with their pods, and
// what is next for each.
//
//	job [KEY=VALUE ...]     a job without pods; the keys are those of setters
//	pod NAME PHASE [KEY=VALUE ...]   running, ready, pending, succeeded or failed
//	next:                   the lines below say what is next, up to an empty one
//
// Times are seconds before now.
func TestPlansAreWhatTheTextsSay(t *testing.T) {
	trace.Proves(t, "JOB-027", "JOB-028", "JOB-029", "JOB-039", "JOB-050")
	texttest.Run(t, "testdata/plan/*.txt", func(t *testing.T, file, text string) string {
		var out []string
		v, answer := &view{}, false
		for n, line := range strings.Split(text, "\n") {
			words := strings.Fields(line)
			if answer = answer && len(words) > 0; answer {
				continue // what is there is made anew
			}
			out = append(out, line)
			if len(words) == 0 || strings.HasPrefix(words[0], "#") {
				continue
			}
			switch words[0] {
			case "job":
				v = newView(t, words[1:])
			case "pod":
				v.pods = append(v.pods, newTestPod(t, v, words[1:]))
			case "next:":
				out = append(out, show(v)...)
				answer = true
			default:
				t.Fatalf("%s:%d: what is %q?", file, n+1, words[0])
			}
		}
		return strings.Join(out, "\n")
	})
}

var noon = time.Date(2000, 1, 1, 12, 0, 0, 0, time.UTC)

func ago(t *testing.T, seconds string) metav1.Time {
	return metav1.NewTime(noon.Add(-time.Duration(number(t, seconds)) * time.Second))
}

func number(t *testing.T, text string) int32 {
	t.Helper()
	n, err := strconv.ParseInt(text, 10, 32)
	if err != nil {
		t.Fatal(err)
	}
	return int32(n)
}

// setters are the keys of a job, with what they set.
var setters = map[string]func(t *testing.T, v *view, value string){
	"parallelism": func(t *testing.T, v *view, s string) { v.job.Spec.Parallelism = ptr.To(number(t, s)) },
	"completions": func(t *testing.T, v *view, s string) { v.job.Spec.Completions = ptr.To(number(t, s)) },
	"indexed":     func(_ *testing.T, v *view, _ string) { v.job.Spec.CompletionMode = ptr.To(batchv1.IndexedCompletion) },
	"limit":       func(t *testing.T, v *view, s string) { v.job.Spec.BackoffLimit = ptr.To(number(t, s)) },
	"perIndex":    func(t *testing.T, v *view, s string) { v.job.Spec.BackoffLimitPerIndex = ptr.To(number(t, s)) },
	"maxFailed":   func(t *testing.T, v *view, s string) { v.job.Spec.MaxFailedIndexes = ptr.To(number(t, s)) },
	"deadline":    func(t *testing.T, v *view, s string) { v.job.Spec.ActiveDeadlineSeconds = ptr.To(int64(number(t, s))) },
	"suspend":     func(_ *testing.T, v *view, _ string) { v.job.Spec.Suspend = ptr.To(true) },
	"deleted":     func(t *testing.T, v *view, s string) { v.job.DeletionTimestamp = ptr.To(ago(t, s)) },
	"restart": func(_ *testing.T, v *view, s string) {
		v.job.Spec.Template.Spec.RestartPolicy = corev1.RestartPolicy(s)
	},
	"replace": func(_ *testing.T, v *view, s string) {
		v.job.Spec.PodReplacementPolicy = ptr.To(batchv1.PodReplacementPolicy(s))
	},
	"started":   func(t *testing.T, v *view, s string) { v.job.Status.StartTime = ptr.To(ago(t, s)) },
	"succeeded": func(t *testing.T, v *view, s string) { v.job.Status.Succeeded = number(t, s) },
	"failed":    func(t *testing.T, v *view, s string) { v.job.Status.Failed = number(t, s) },
	"completed": func(_ *testing.T, v *view, s string) { v.job.Status.CompletedIndexes = s },
	"lost":      func(_ *testing.T, v *view, s string) { v.job.Status.FailedIndexes = &s },
	"is": func(_ *testing.T, v *view, s string) {
		kind, reason, _ := strings.Cut(s, ":")
		v.job.Status.Conditions = append(v.job.Status.Conditions, *v.condition(batchv1.JobConditionType(kind), reason, "as it was"))
	},
	"named": func(_ *testing.T, v *view, s string) { // succeeded and failed pods, with a + between
		good, bad, _ := strings.Cut(s, "+")
		u := &batchv1.UncountedTerminatedPods{}
		for name := range strings.SplitSeq(good, ",") {
			u.Succeeded = append(u.Succeeded, types.UID(name))
		}
		for name := range strings.SplitSeq(bad, ",") {
			u.Failed = append(u.Failed, types.UID(name))
		}
		empty := func(uid types.UID) bool { return uid == "" }
		u.Succeeded, u.Failed = slices.DeleteFunc(u.Succeeded, empty), slices.DeleteFunc(u.Failed, empty)
		v.job.Status.UncountedTerminatedPods = u
	},
	"rule": func(t *testing.T, v *view, s string) { // ACTION:EXITCODE or ACTION:CONDITION
		if v.job.Spec.PodFailurePolicy == nil {
			v.job.Spec.PodFailurePolicy = &batchv1.PodFailurePolicy{}
		}
		action, what, _ := strings.Cut(s, ":")
		r := batchv1.PodFailurePolicyRule{Action: batchv1.PodFailurePolicyAction(action)}
		if code, err := strconv.Atoi(what); err == nil {
			r.OnExitCodes = &batchv1.PodFailurePolicyOnExitCodesRequirement{Operator: batchv1.PodFailurePolicyOnExitCodesOpIn, Values: []int32{int32(code)}}
		} else {
			r.OnPodConditions = []batchv1.PodFailurePolicyOnPodConditionsPattern{{Type: corev1.PodConditionType(what), Status: corev1.ConditionTrue}}
		}
		v.job.Spec.PodFailurePolicy.Rules = append(v.job.Spec.PodFailurePolicy.Rules, r)
	},
	"success": func(t *testing.T, v *view, s string) { // INDEXES:COUNT, either may be empty
		if v.job.Spec.SuccessPolicy == nil {
			v.job.Spec.SuccessPolicy = &batchv1.SuccessPolicy{}
		}
		indexes, count, _ := strings.Cut(s, ":")
		r := batchv1.SuccessPolicyRule{}
		if indexes != "" {
			r.SucceededIndexes = &indexes
		}
		if count != "" {
			r.SucceededCount = ptr.To(number(t, count))
		}
		v.job.Spec.SuccessPolicy.Rules = append(v.job.Spec.SuccessPolicy.Rules, r)
	},
}

func newView(t *testing.T, words []string) *view {
	t.Helper()
	v := &view{job: &batchv1.Job{}, now: noon}
	v.job.Namespace, v.job.Name = "default", "work"
	v.job.Spec.Parallelism, v.job.Spec.BackoffLimit = ptr.To[int32](1), ptr.To[int32](6)
	for _, w := range words {
		key, value, _ := strings.Cut(w, "=")
		set := setters[key]
		if set == nil {
			t.Fatalf("a job has no %q", key)
		}
		set(t, v, value)
	}
	return v
}

func newTestPod(t *testing.T, v *view, words []string) *corev1.Pod {
	t.Helper()
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
		Namespace: "default", Name: words[0], UID: types.UID(words[0]), Annotations: map[string]string{},
		Finalizers: []string{batchv1.JobTrackingFinalizer}, CreationTimestamp: ago(t, "3600"),
	}}
	p.Spec.NodeName = "n1"
	state := &corev1.ContainerStatus{Name: "c"}
	switch words[1] {
	case "pending":
		p.Status.Phase, p.Spec.NodeName = corev1.PodPending, ""
	case "running":
		p.Status.Phase = corev1.PodRunning
	case "ready":
		p.Status.Phase = corev1.PodRunning
		p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue, LastTransitionTime: ago(t, "3000")}}
	case "succeeded":
		p.Status.Phase = corev1.PodSucceeded
		state.State.Terminated = &corev1.ContainerStateTerminated{FinishedAt: ago(t, "0")}
	case "failed":
		p.Status.Phase = corev1.PodFailed
		state.State.Terminated = &corev1.ContainerStateTerminated{ExitCode: 1, FinishedAt: ago(t, "0")}
	default:
		t.Fatalf("a pod is never %q", words[1])
	}
	for _, w := range words[2:] {
		key, value, _ := strings.Cut(w, "=")
		switch key {
		case "free":
			p.Finalizers = nil
		case "deleted":
			p.DeletionTimestamp = ptr.To(ago(t, value))
		case "index":
			p.Annotations[batchv1.JobCompletionIndexAnnotation] = value
		case "failures":
			p.Annotations[batchv1.JobIndexFailureCountAnnotation] = value
		case "restarts":
			state.RestartCount = number(t, value)
		case "ended":
			state.State.Terminated.FinishedAt = ago(t, value)
		case "exit":
			state.State.Terminated.ExitCode = number(t, value)
		case "condition":
			p.Status.Conditions = append(p.Status.Conditions, corev1.PodCondition{Type: corev1.PodConditionType(value), Status: corev1.ConditionTrue})
		default:
			t.Fatalf("a pod has no %q", key)
		}
	}
	p.Status.ContainerStatuses = []corev1.ContainerStatus{*state}
	return p
}

// show says what is next, in the order in which it is done.
func show(v *view) (lines []string) {
	p := v.next()
	say := func(format string, args ...any) { lines = append(lines, fmt.Sprintf("  "+format, args...)) }
	names := func(pods []*corev1.Pod) string {
		var out []string
		for _, pod := range pods {
			out = append(out, pod.Name)
		}
		return strings.Join(out, " ")
	}
	if len(p.create) > 0 && p.create[0].index == noIndex {
		say("create %d", len(p.create))
	}
	for _, n := range p.create {
		if n.index != noIndex && n.failed == nil {
			say("create index %d", n.index)
		} else if n.index != noIndex {
			pod := v.pod(n)
			say("create index %d for %s: failures %s", n.index, n.failed.Name, pod.Annotations[batchv1.JobIndexFailureCountAnnotation])
		}
	}
	if len(p.cancel) > 0 {
		say("cancel %s", names(p.cancel))
	}
	s, u := p.status, p.status.UncountedTerminatedPods
	say("active %d ready %d terminating %d succeeded %d failed %d", s.Active, *s.Ready, *s.Terminating, s.Succeeded, s.Failed)
	if s.CompletedIndexes != "" || s.FailedIndexes != nil {
		say("completed %q lost %q", s.CompletedIndexes, ptr.Deref(s.FailedIndexes, ""))
	}
	if len(u.Succeeded)+len(u.Failed) > 0 {
		say("named %v+%v", u.Succeeded, u.Failed)
	}
	for _, c := range s.Conditions {
		say("%s=%s %s: %s", c.Type, c.Status, c.Reason, c.Message)
	}
	if len(p.free) > 0 {
		say("free %s", names(p.free))
	}
	if len(p.stop) > 0 {
		say("stop %s", names(p.stop))
	}
	for _, e := range p.events {
		say("event %s %s %s", e.kind, e.reason, e.message)
	}
	if p.after > 0 {
		say("again after %s", p.after)
	}
	if p.more {
		say("again at once")
	}
	return lines
}
