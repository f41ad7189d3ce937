package core_test

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apiresource "k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"

	"github.com/kemudi/kemudi/internal/api/core"
	"github.com/kemudi/kemudi/internal/resource"
	"github.com/kemudi/kemudi/internal/trace"
)

func pod(change func(p *corev1.Pod)) *corev1.Pod {
	p := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "web", Namespace: "default", Labels: map[string]string{"app": "web"}},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "nginx", Image: "nginx:1.25"}}},
	}
	core.Pods.Default(p)
	change(p)
	return p
}

func TestPodsGetTheTimeToEndThatTheyAskFor(t *testing.T) {
	trace.Proves(t, "POD-032", "POD-045")
	for _, c := range []struct {
		name   string
		change func(p *corev1.Pod)
		asked  *int64
		want   int64
	}{
		{"by default", func(p *corev1.Pod) { p.Spec.NodeName = "n" }, nil, 30},
		{"as its spec says", func(p *corev1.Pod) { p.Spec.NodeName, p.Spec.TerminationGracePeriodSeconds = "n", ptr.To[int64](5) }, nil, 5},
		{"as the request says", func(p *corev1.Pod) { p.Spec.NodeName = "n" }, ptr.To[int64](60), 60},
		{"at once if the request says so", func(p *corev1.Pod) { p.Spec.NodeName = "n" }, ptr.To[int64](0), 0},
		{"a second if it is negative", func(p *corev1.Pod) { p.Spec.NodeName = "n" }, ptr.To[int64](-1), 1},
		{"at once where nothing runs", func(*corev1.Pod) {}, nil, 0},
		{"at once when it has ended", func(p *corev1.Pod) { p.Spec.NodeName, p.Status.Phase = "n", corev1.PodFailed }, nil, 0},
		{"what is left if it is being deleted", deleted(20), nil, 20},
		{"no more than what is left", deleted(20), ptr.To[int64](40), 20},
		{"less than what is left", deleted(20), ptr.To[int64](3), 3},
	} {
		if got := core.Pods.GracePeriod(pod(c.change), c.asked); got != c.want {
			t.Errorf("%s: got %d, want %d", c.name, got, c.want)
		}
	}
}

func deleted(grace int64) func(p *corev1.Pod) {
	return func(p *corev1.Pod) {
		p.Spec.NodeName = "n"
		p.DeletionTimestamp, p.DeletionGracePeriodSeconds = ptr.To(metav1.Now()), &grace
	}
}

func list(cpu, memory string) corev1.ResourceList {
	l := corev1.ResourceList{}
	if cpu != "" {
		l[corev1.ResourceCPU] = apiresource.MustParse(cpu)
	}
	if memory != "" {
		l[corev1.ResourceMemory] = apiresource.MustParse(memory)
	}
	return l
}

func TestQOSClassFollowsRequestsAndLimits(t *testing.T) {
	trace.Proves(t, "INIT-039")
	type container = corev1.ResourceRequirements
	for _, c := range []struct {
		name       string
		init, main container
		want       corev1.PodQOSClass
	}{
		{"nothing asked for", container{}, container{}, corev1.PodQOSBestEffort},
		{"limits are requests", container{Limits: list("1", "1Gi")}, container{Limits: list("1", "1Gi")}, corev1.PodQOSGuaranteed},
		{"an init container without limits", container{}, container{Limits: list("1", "1Gi")}, corev1.PodQOSBurstable},
		{"a request below the limit", container{Limits: list("1", "1Gi")}, container{Limits: list("1", "1Gi"), Requests: list("500m", "")}, corev1.PodQOSBurstable},
		{"no limit of memory", container{Limits: list("1", "1Gi")}, container{Limits: list("1", "")}, corev1.PodQOSBurstable},
		{"a request only", container{}, container{Requests: list("1", "")}, corev1.PodQOSBurstable},
	} {
		p := pod(func(p *corev1.Pod) {
			p.Spec.Containers[0].Resources = c.main
			p.Spec.InitContainers = []corev1.Container{{Name: "init", Image: "i:1", Resources: c.init}}
			core.Pods.Default(p)
		})
		if got := core.QOSClass(p); got != c.want {
			t.Errorf("%s: got %s, want %s", c.name, got, c.want)
		}
	}
}

func TestRequestsArePeaksOfInitAndSumOfMainContainers(t *testing.T) {
	trace.Proves(t, "INIT-010", "INIT-036", "INIT-037/requests")
	request := func(name, cpu string) corev1.Container {
		return corev1.Container{Name: name, Image: "i:1", Resources: corev1.ResourceRequirements{Requests: list(cpu, "")}}
	}
	sidecar := request("side", "100m")
	sidecar.RestartPolicy = ptr.To(corev1.ContainerRestartPolicyAlways)
	p := pod(func(p *corev1.Pod) {
		p.Spec.InitContainers = []corev1.Container{sidecar, request("init", "2")}
		p.Spec.Containers = []corev1.Container{request("a", "500m"), request("b", "250m")}
		p.Spec.Overhead = list("50m", "")
	})
	requests := core.PodRequests(p)
	if got := requests.Cpu().String(); got != "2150m" {
		t.Errorf("with a large init container: got %s, want 2150m", got)
	}
	p.Spec.InitContainers = p.Spec.InitContainers[:1]
	requests = core.PodRequests(p)
	if got := requests.Cpu().String(); got != "900m" {
		t.Errorf("with a sidecar only: got %s, want 900m", got)
	}
}

func TestPodIsAvailableWhenItHasBeenReadyLongEnough(t *testing.T) {
	now := time.Now()
	ready := func(since time.Time) *corev1.Pod {
		return pod(func(p *corev1.Pod) {
			core.SetPodCondition(&p.Status, corev1.PodCondition{Type: corev1.PodReady, Status: corev1.ConditionTrue, LastTransitionTime: metav1.NewTime(since)})
		})
	}
	if core.PodAvailable(pod(func(*corev1.Pod) {}), 0, now) {
		t.Error("a pod without conditions is available")
	}
	if !core.PodReady(ready(now)) || !core.PodAvailable(ready(now), 0, now) || core.PodAvailable(ready(now), 10, now) {
		t.Error("a pod that just became ready is available at once only if nothing else is asked for")
	}
	if !core.PodAvailable(ready(now.Add(-10*time.Second)), 10, now) {
		t.Error("a pod that has been ready for ten seconds is not available after ten seconds")
	}
}

func TestConditionKeepsItsTimeUntilItChanges(t *testing.T) {
	var s corev1.PodStatus
	at := metav1.NewTime(time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC))
	set := func(status corev1.ConditionStatus, reason string) bool {
		return core.SetPodCondition(&s, corev1.PodCondition{Type: corev1.PodReady, Status: status, Reason: reason})
	}
	core.SetPodCondition(&s, corev1.PodCondition{Type: corev1.PodReady, Status: corev1.ConditionFalse, LastTransitionTime: at})
	if !set(corev1.ConditionFalse, "Other") || !s.Conditions[0].LastTransitionTime.Equal(&at) {
		t.Errorf("another reason changed the time: %+v", s.Conditions)
	}
	if set(corev1.ConditionFalse, "Other") {
		t.Error("the same condition changed the status")
	}
	if !set(corev1.ConditionTrue, "") || s.Conditions[0].LastTransitionTime.Equal(&at) || len(s.Conditions) != 1 {
		t.Errorf("another status kept the time: %+v", s.Conditions)
	}
}

func TestStatusOfAPodKeepsObservedGenerations(t *testing.T) {
	old := pod(func(p *corev1.Pod) {
		p.Status.ObservedGeneration = 3
		p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, ObservedGeneration: 2}, {Type: corev1.PodReady, ObservedGeneration: 1}}
	})
	p := pod(func(p *corev1.Pod) {
		p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady}, {Type: corev1.PodReady}, {Type: corev1.PodScheduled}}
	})
	core.Pods.Subresource("status").Merge(p, old)
	c := p.Status.Conditions
	if p.Status.ObservedGeneration != 3 || c[0].ObservedGeneration != 2 || c[1].ObservedGeneration != 1 || c[2].ObservedGeneration != 0 {
		t.Errorf("status = %+v", p.Status)
	}
}

func BenchmarkNewPod(b *testing.B) {
	p := pod(func(p *corev1.Pod) {
		c := &p.Spec.Containers[0]
		c.Resources.Limits = list("1", "1Gi")
		c.Ports = []corev1.ContainerPort{{Name: "http", ContainerPort: 80, Protocol: corev1.ProtocolTCP}}
		c.Env = []corev1.EnvVar{{Name: "A", Value: "1"}, {Name: "POD", ValueFrom: &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{FieldPath: "metadata.name"}}}}
		c.LivenessProbe = &corev1.Probe{ProbeHandler: corev1.ProbeHandler{HTTPGet: &corev1.HTTPGetAction{Port: intstr.FromInt32(80)}}}
		c.VolumeMounts = []corev1.VolumeMount{{Name: "data", MountPath: "/data"}, {Name: "token", MountPath: "/var/run/secrets/kubernetes.io/serviceaccount"}}
		p.Spec.Volumes = []corev1.Volume{{Name: "data"}, {Name: "token", VolumeSource: corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: "t"}}}}
		p.Spec.Tolerations = []corev1.Toleration{{Key: "node.kubernetes.io/not-ready", Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoExecute}}
	})
	b.ReportAllocs()
	for b.Loop() {
		q := p.DeepCopy()
		if errs := created(core.Pods.Def, q); errs.Len() > 0 {
			b.Fatal(errs.List().ToAggregate())
		}
	}
}

func BenchmarkPodStatus(b *testing.B) {
	old := pod(func(p *corev1.Pod) { p.Spec.NodeName = "n" })
	status := core.Pods.Subresource("status")
	b.ReportAllocs()
	for b.Loop() {
		p := old.DeepCopy()
		p.Status.Phase = corev1.PodRunning
		errs := resource.NewErrors()
		core.Pods.Default(p)
		status.Merge(p, old)
		status.Validate(p, old, errs)
		if errs.Len() > 0 {
			b.Fatal(errs.List().ToAggregate())
		}
	}
}
