package statefulset

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"

	"github.com/kemudi/kemudi/internal/texttest"
	"github.com/kemudi/kemudi/internal/trace"
)

// TestNextStepsOfSets runs the blocks of testdata/plan: each describes the StatefulSet
// web with its pods and claims, and what is said then is to be done and reported.
//
//	set replicas=N [parallel] [ondelete] [partition=N] [unavailable=N|N%] [start=N] [ready=SECONDS] [claims] [with=set|pod|both]
//	pods NUMBER:REVISION...
//	claim NUMBER [OWNER...]
//
// A set with claims has them of a template called data; they go with the set, with a
// pod that is one too many, or with both. Its newest revision is new, the one before
// old. What follows the revision says how a pod is: nothing available, ~ ready but not
// long enough, - not ready, ? pending, ! failed, $ succeeded, . ending, * adopted: it has
// nothing that makes it the set's. Owners of a claim are set, pod, last-set and
// last-pod, which had their names before, other, which controls it, and friend, which
// does not.
func TestNextStepsOfSets(t *testing.T) {
	trace.Proves(t, "STS-002", "STS-004")
	texttest.Run(t, "testdata/plan/*.txt", func(t *testing.T, _, text string) string {
		var out strings.Builder
		for block := range strings.SplitSeq(text, "\n\n") {
			var v *view
			for line := range strings.Lines(block) {
				words := strings.Fields(line)
				if len(words) == 0 || words[0] == "->" || words[0] == "=" {
					continue
				}
				out.WriteString(strings.TrimRight(line, "\n") + "\n")
				switch words[0] {
				case "#":
				case "set":
					v = readSet(t, words[1:])
				case "pods":
					for _, w := range words[1:] {
						readPod(t, v, w)
					}
				case "claim":
					readClaim(t, v, words[1:])
				default:
					t.Fatalf("what is %q?", line)
				}
			}
			if v != nil {
				out.WriteString("-> " + showPlan(v, v.next()) + "\n= " + showStatus(v.status(nil)) + "\n\n")
			}
		}
		return strings.TrimRight(out.String(), "\n") + "\n"
	})
}

var noon = time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)

func newSet(replicas int32) *appsv1.StatefulSet {
	set := &appsv1.StatefulSet{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web", UID: "web"}}
	set.Spec.Replicas, set.Spec.ServiceName = &replicas, "nginx"
	set.Spec.Selector = &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}}
	set.Spec.PodManagementPolicy = appsv1.OrderedReadyPodManagement
	set.Spec.UpdateStrategy = appsv1.StatefulSetUpdateStrategy{
		Type: appsv1.RollingUpdateStatefulSetStrategyType, RollingUpdate: &appsv1.RollingUpdateStatefulSetStrategy{Partition: new(int32)},
	}
	set.Spec.PersistentVolumeClaimRetentionPolicy = &appsv1.StatefulSetPersistentVolumeClaimRetentionPolicy{
		WhenDeleted: appsv1.RetainPersistentVolumeClaimRetentionPolicyType, WhenScaled: appsv1.RetainPersistentVolumeClaimRetentionPolicyType,
	}
	return set
}

func readSet(t *testing.T, words []string) *view {
	set := newSet(0)
	s := &set.Spec
	for _, w := range words {
		key, value, _ := strings.Cut(w, "=")
		var n int32
		if key != "with" && key != "unavailable" && value != "" {
			if _, err := fmt.Sscan(value, &n); err != nil {
				t.Fatal(err)
			}
		}
		switch key {
		case "replicas":
			s.Replicas = &n
		case "parallel":
			s.PodManagementPolicy = appsv1.ParallelPodManagement
		case "ondelete":
			s.UpdateStrategy = appsv1.StatefulSetUpdateStrategy{Type: appsv1.OnDeleteStatefulSetStrategyType}
		case "partition":
			s.UpdateStrategy.RollingUpdate.Partition = &n
		case "unavailable":
			s.UpdateStrategy.RollingUpdate.MaxUnavailable = ptr.To(intstr.Parse(value))
		case "start":
			s.Ordinals = &appsv1.StatefulSetOrdinals{Start: n}
		case "ready":
			s.MinReadySeconds = n
		case "claims":
			s.VolumeClaimTemplates = []corev1.PersistentVolumeClaim{{ObjectMeta: metav1.ObjectMeta{Name: "data"}}}
		case "with":
			if value == "set" || value == "both" {
				s.PersistentVolumeClaimRetentionPolicy.WhenDeleted = appsv1.DeletePersistentVolumeClaimRetentionPolicyType
			}
			if value == "pod" || value == "both" {
				s.PersistentVolumeClaimRetentionPolicy.WhenScaled = appsv1.DeletePersistentVolumeClaimRetentionPolicyType
			}
		default:
			t.Fatalf("what is %q?", w)
		}
	}
	v := newView(set, nil)
	v.current, v.update, v.now = "old", "new", noon
	v.claim = func(string) *corev1.PersistentVolumeClaim { return nil }
	return v
}

func readPod(t *testing.T, v *view, word string) {
	number, how, _ := strings.Cut(word, ":")
	var n int
	if _, err := fmt.Sscan(number, &n); err != nil {
		t.Fatal(err)
	}
	revision := strings.TrimRight(how, "~-?!$.*")
	pod := newPod(v.set, &corev1.PodTemplateSpec{}, revision, n)
	pod.UID = types.UID(pod.Name)
	pod.Status.Phase = corev1.PodRunning
	ready := corev1.PodCondition{Type: corev1.PodReady, Status: corev1.ConditionTrue, LastTransitionTime: metav1.NewTime(noon.Add(-time.Hour))}
	for _, c := range strings.TrimPrefix(how, revision) {
		switch c {
		case '~':
			ready.LastTransitionTime = metav1.NewTime(noon.Add(-time.Second))
		case '-':
			ready.Status = corev1.ConditionFalse
		case '?':
			pod.Status.Phase, ready.Status = corev1.PodPending, corev1.ConditionFalse
		case '!':
			pod.Status.Phase, ready.Status = corev1.PodFailed, corev1.ConditionFalse
		case '$':
			pod.Status.Phase, ready.Status = corev1.PodSucceeded, corev1.ConditionFalse
		case '.':
			pod.DeletionTimestamp = ptr.To(metav1.NewTime(noon))
		case '*':
			pod.Labels, pod.Spec.Volumes = nil, nil
		}
	}
	pod.Status.Conditions = []corev1.PodCondition{ready}
	v.pods[n] = pod
}

func readClaim(t *testing.T, v *view, words []string) {
	var n int
	if _, err := fmt.Sscan(words[0], &n); err != nil {
		t.Fatal(err)
	}
	claim := newClaim(v.set, &v.set.Spec.VolumeClaimTemplates[0], n)
	for _, w := range words[1:] {
		ref := metav1.OwnerReference{APIVersion: "apps/v1", Kind: "StatefulSet", Name: "web", UID: "web", Controller: ptr.To(true)}
		switch w {
		case "set":
		case "loose-set":
			ref.Controller = nil
		case "last-set":
			ref.UID = "last"
		case "pod", "last-pod":
			ref.APIVersion, ref.Kind, ref.Name, ref.UID = "v1", "Pod", podName(v.set, n), types.UID(podName(v.set, n))
			if w == "last-pod" {
				ref.UID = "last"
			}
		case "other":
			ref.APIVersion, ref.Kind, ref.Name, ref.UID = "example.com/v1", "Database", "db", "db"
		case "friend":
			ref.APIVersion, ref.Kind, ref.Name, ref.UID, ref.Controller = "v1", "ConfigMap", "note", "note", nil
		default:
			t.Fatalf("what is %q?", w)
		}
		claim.OwnerReferences = append(claim.OwnerReferences, ref)
	}
	others := v.claim
	v.claim = func(name string) *corev1.PersistentVolumeClaim {
		if name == claim.Name {
			return claim
		}
		return others(name)
	}
}

func showPlan(v *view, p plan) string {
	var out []string
	for _, c := range p.care {
		if c.make {
			out = append(out, fmt.Sprintf("make claims of %d", c.number))
		}
		for _, claim := range c.claims {
			var owners []string
			for _, ref := range claim.OwnerReferences {
				owners = append(owners, ref.Kind)
			}
			out = append(out, fmt.Sprintf("let %s be owned by [%s]", claim.Name, strings.Join(owners, " ")))
		}
		for _, name := range c.contested {
			out = append(out, name+" is contested")
		}
		if c.pod != nil {
			out = append(out, fmt.Sprintf("mend %d", c.number))
		}
	}
	for _, pod := range p.excess {
		out = append(out, "remove "+strings.TrimPrefix(pod.Name, "web-"))
	}
	for _, n := range p.create {
		out = append(out, fmt.Sprintf("create %d %s", n, v.revision(n)))
	}
	for _, pod := range p.replace {
		out = append(out, "replace "+strings.TrimPrefix(pod.Name, "web-"))
	}
	for _, pod := range p.remove {
		out = append(out, "remove "+strings.TrimPrefix(pod.Name, "web-"))
	}
	if len(out) == 0 {
		return "nothing"
	}
	return strings.Join(out, ", ")
}

func showStatus(s appsv1.StatefulSetStatus) string {
	return fmt.Sprintf("replicas %d, ready %d, available %d, current %d %s, updated %d %s",
		s.Replicas, s.ReadyReplicas, s.AvailableReplicas, s.CurrentReplicas, s.CurrentRevision, s.UpdatedReplicas, s.UpdateRevision)
}

func TestPodsAreKnownByTheirNames(t *testing.T) {
	set := newSet(1)
	for _, tc := range []struct {
		pod  string
		want int
		ok   bool
	}{
		{"web-0", 0, true},
		{"web-17", 17, true},
		{"web-00", 0, false},
		{"web--1", 0, false},
		{"web-", 0, false},
		{"web", 0, false},
		{"my-web-0", 0, false},
		{"web-x", 0, false},
		{"web-4294967294", 4294967294, true},
		{"web-99999999999999999999", 0, false},
	} {
		if n, ok := numberOf(set, tc.pod); ok != tc.ok || ok && n != tc.want {
			t.Errorf("%s: got %d, %v; want %d, %v", tc.pod, n, ok, tc.want, tc.ok)
		}
	}
}

func TestHugeSetsAreMadeInParts(t *testing.T) {
	set := newSet(math.MaxInt32)
	set.Spec.Ordinals = &appsv1.StatefulSetOrdinals{Start: math.MaxInt32}
	set.Spec.PodManagementPolicy = appsv1.ParallelPodManagement
	set.Spec.UpdateStrategy.RollingUpdate.Partition = ptr.To[int32](math.MaxInt32)
	v := newView(set, nil)
	v.claim = func(string) *corev1.PersistentVolumeClaim { return nil }
	if p := v.next(); len(p.create) != burst || p.create[0] != math.MaxInt32 || p.create[burst-1] != math.MaxInt32+burst-1 || len(p.remove) > 0 {
		t.Errorf("got %d pods to make and %d to remove, want the first %d made", len(p.create), len(p.remove), burst)
	}
}

func TestIdentityOfAPodIsItsName(t *testing.T) {
	set := newSet(3)
	set.Spec.VolumeClaimTemplates = []corev1.PersistentVolumeClaim{
		{ObjectMeta: metav1.ObjectMeta{Name: "www", Labels: map[string]string{"app": "other", "tier": "front"}}},
		{ObjectMeta: metav1.ObjectMeta{Name: "logs"}},
	}
	template := &corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"app": "web"}}}
	template.Spec.Volumes = []corev1.Volume{{Name: "www"}, {Name: "tmp"}}
	pod := newPod(set, template, "web-5d", 2)
	trace.Proves(t, "STS-003", "STS-019", "STS-030")
	if pod.Name != "web-2" || pod.Spec.Hostname != "web-2" || pod.Spec.Subdomain != "nginx" || pod.Labels[appsv1.StatefulSetPodNameLabel] != "web-2" ||
		pod.Labels[appsv1.PodIndexLabel] != "2" || pod.Labels[appsv1.ControllerRevisionHashLabelKey] != "web-5d" {
		t.Errorf("got %s, host %s.%s, labels %v", pod.Name, pod.Spec.Hostname, pod.Spec.Subdomain, pod.Labels)
	}
	if len(template.Labels) != 1 || len(template.Spec.Volumes) != 2 {
		t.Error("the template was changed, which others read")
	}
	var volumes []string
	for _, v := range pod.Spec.Volumes {
		claim := ""
		if v.PersistentVolumeClaim != nil {
			claim = v.PersistentVolumeClaim.ClaimName
		}
		volumes = append(volumes, v.Name+":"+claim)
	}
	if want := []string{"www:www-web-2", "logs:logs-web-2", "tmp:"}; !slices.Equal(volumes, want) {
		t.Errorf("got volumes %v, want %v: a claim takes the place of a volume of its name", volumes, want)
	}
	claim := newClaim(set, &set.Spec.VolumeClaimTemplates[0], 2)
	if claim.Name != "www-web-2" || claim.Namespace != "default" || claim.Labels["app"] != "web" || claim.Labels["tier"] != "front" {
		t.Errorf("got claim %s/%s with labels %v", claim.Namespace, claim.Name, claim.Labels)
	}
	if mended(set, pod, 2) != nil {
		t.Error("a pod as it is made is mended")
	}
}

func TestClaimsLeadToSetsThatMayHaveThem(t *testing.T) {
	sets, templates := setsOfClaim("data-my-app-3")
	if !slices.Equal(sets, []string{"my-app", "app"}) || !slices.Equal(templates, []string{"data", "data-my"}) {
		t.Errorf("got sets %q of templates %q", sets, templates)
	}
	if sets, _ := setsOfClaim("data-web-x"); sets != nil {
		t.Errorf("got sets %q of what is no set's claim", sets)
	}
}
