package watchcache

import (
	"fmt"
	"runtime"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	own "github.com/kemudi/kemudi/internal/resource"
	"github.com/kemudi/kemudi/internal/store"
	"github.com/kemudi/kemudi/internal/store/mem"
)

var benchPods = own.Define(own.Spec[*corev1.Pod]{
	Names:   own.Names{Version: "v1", Kind: "Pod", Plural: "pods", Namespaced: true},
	Caching: own.Caching[*corev1.Pod]{PodSpec: func(p *corev1.Pod) *corev1.PodSpec { return &p.Spec }},
	Index: map[string]func(*corev1.Pod) []string{
		"spec.nodeName": func(p *corev1.Pod) []string { return []string{p.Spec.NodeName} },
	},
})

// benchPod is a pod of about 5 KB in protobuf, like those of a deployment.
func benchPod(i int) *corev1.Pod {
	p := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: fmt.Sprintf("team-%d", i%20), Name: fmt.Sprintf("web-7d4b9c6f5-%05d", i), GenerateName: "web-7d4b9c6f5-",
			Labels: map[string]string{"app": "web", "pod-template-hash": "7d4b9c6f5", "team": fmt.Sprint(i % 20)},
			ManagedFields: []metav1.ManagedFieldsEntry{
				{Manager: "kemudi-controllers", Operation: "Update", APIVersion: "v1", FieldsType: "FieldsV1", FieldsV1: metav1.NewFieldsV1(`{"f:metadata":{` + strings.Repeat(`"f:labels":{},`, 60) + `}}`)},
				{Manager: "kemudi-node", Operation: "Update", APIVersion: "v1", FieldsType: "FieldsV1", Subresource: "status", FieldsV1: metav1.NewFieldsV1(`{"f:status":{` + strings.Repeat(`"f:conditions":{},`, 50) + `}}`)},
			},
			OwnerReferences: []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "ReplicaSet", Name: "web-7d4b9c6f5", UID: "0b9a4a4e-6f7c-4f0c-9df8-2b1f6f3a8c11", Controller: new(true)}},
		},
		Spec: corev1.PodSpec{NodeName: fmt.Sprintf("node-%d", i%100), ServiceAccountName: "default", RestartPolicy: "Always", DNSPolicy: "ClusterFirst"},
		Status: corev1.PodStatus{Phase: "Running", PodIP: "10.244.1.17", HostIP: "192.168.1.20", Conditions: []corev1.PodCondition{
			{Type: "Ready", Status: "True"}, {Type: "Initialized", Status: "True"}, {Type: "ContainersReady", Status: "True"}, {Type: "PodScheduled", Status: "True"},
		}},
	}
	for c := range 3 {
		container := corev1.Container{
			Name: fmt.Sprintf("c%d", c), Image: "registry.example.com/team/web:v1.2.3", Args: []string{"--verbose", "--port=8080"},
			Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{"cpu": resource.MustParse("100m"), "memory": resource.MustParse("128Mi")}},
		}
		for e := range 12 {
			container.Env = append(container.Env, corev1.EnvVar{Name: fmt.Sprintf("SETTING_%d", e), Value: strings.Repeat("v", 40)})
		}
		p.Spec.Containers = append(p.Spec.Containers, container)
		p.Status.ContainerStatuses = append(p.Status.ContainerStatuses, corev1.ContainerStatus{
			Name: container.Name, Image: container.Image, Ready: true, ContainerID: "containerd://" + strings.Repeat("a", 64),
		})
	}
	return p
}

func fill(b *testing.B, st store.Store, n int) {
	b.Helper()
	var ops []store.Op
	for i := range n {
		ops = append(ops, encode(b, benchPods.Def, benchPod(i)))
		if len(ops) == 500 || i == n-1 {
			write(b, st, ops...)
			ops = nil
		}
	}
	b.ReportMetric(float64(len(encode(b, benchPods.Def, benchPod(1)).Value)), "B/pod")
}

// BenchmarkLoad10000Pods reads the first state and reports what one pod takes in memory.
func BenchmarkLoad10000Pods(b *testing.B) {
	st := mem.New(mem.Options{})
	fill(b, st, 10_000)
	var before, after runtime.MemStats
	for b.Loop() {
		runtime.GC()
		runtime.ReadMemStats(&before)
		s := start(b, st, Options{Defs: []*own.Def{benchPods.Def}})
		b.StopTimer()
		runtime.GC()
		runtime.ReadMemStats(&after)
		b.ReportMetric(float64(after.HeapAlloc-before.HeapAlloc)/10_000, "heap-B/pod")
		if s.Cache(benchPods.Def).Len() != 10_000 {
			b.Fatal("not all pods are there")
		}
		b.StartTimer()
	}
}

// BenchmarkFeed measures one update of a pod from the store's feed to the cache.
func BenchmarkFeed(b *testing.B) {
	for _, handed := range []bool{true, false} {
		b.Run(fmt.Sprintf("handed over=%t", handed), func(b *testing.B) {
			st := mem.New(mem.Options{})
			fill(b, st, 1000)
			s := start(b, st, Options{Defs: []*own.Def{benchPods.Def}})
			pod := benchPod(1)
			op := encode(b, benchPods.Def, pod)
			rev := s.Progress().Rev()
			b.ReportAllocs()
			for b.Loop() {
				rev++
				if handed {
					obj := *pod
					s.Handoff(benchPods.Def, op.Key, op.Value, &obj)
				}
				if err := s.take([]store.Change{{KV: store.KV{Key: op.Key, Value: op.Value, Rev: rev}}}, rev); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func BenchmarkEncode(b *testing.B) {
	pod := benchPod(1)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := Encode(benchPods.Def, pod); err != nil {
			b.Fatal(err)
		}
	}
}
