package watchcache

import (
	"bytes"
	"context"
	"fmt"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	own "github.com/kemudi/kemudi/internal/resource"
	"github.com/kemudi/kemudi/internal/store"
	"github.com/kemudi/kemudi/internal/store/mem"
	"github.com/kemudi/kemudi/internal/store/seal"
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

var benchSecrets = own.Define(own.Spec[*corev1.Secret]{Names: own.Names{Version: "v1", Kind: "Secret", Plural: "secrets", Namespaced: true}})

// BenchmarkLoad10000Secrets reads the first state of secrets of 1 KB as they are, and encrypted: cpu-ns/secret is what all
// goroutines take together.
func BenchmarkLoad10000Secrets(b *testing.B) {
	key := []seal.Key{{Name: "a", Secret: bytes.Repeat([]byte{7}, 32)}}
	for _, c := range []struct {
		name     string
		provider func() (seal.Provider, error)
	}{
		{"as they are", nil},
		{"aesgcm", func() (seal.Provider, error) { return seal.NewGCM(key) }},
		{"aescbc", func() (seal.Provider, error) { return seal.NewCBC(key) }},
		{"secretbox", func() (seal.Provider, error) { return seal.NewBox(key) }},
		{"kms", func() (seal.Provider, error) {
			p := &keptKey{}
			s, err := seal.NewSeed(p.encrypt, nil)
			if err == nil {
				p.seed = s.Good(time.Now().Add(time.Hour))
			}
			return seal.NewKMS("vault", seal.NewEnvelope("vault", p, nil)), err
		}},
	} {
		b.Run(c.name, func(b *testing.B) {
			var st store.Store = mem.New(mem.Options{})
			if c.provider != nil {
				p, err := c.provider()
				if err != nil {
					b.Fatal(err)
				}
				chain := &seal.Chain{Resource: "secrets", Providers: []seal.Provider{p}, Metrics: seal.NewMetrics(prometheus.NewRegistry(), "server")}
				st = seal.Over(st, func(string) *seal.Chain { return chain })
			}
			for from := range 20 {
				var ops []store.Op
				for i := range 500 {
					ops = append(ops, encode(b, benchSecrets.Def, benchSecret(from*500+i)))
				}
				write(b, st, ops...)
			}
			b.ReportAllocs()
			before := cpu(b)
			for b.Loop() {
				if s := start(b, st, Options{Defs: []*own.Def{benchSecrets.Def}}); s.Cache(benchSecrets.Def).Len() != 10_000 {
					b.Fatal("not all secrets are there")
				}
			}
			b.ReportMetric(float64(cpu(b)-before)/float64(b.N)/10_000, "cpu-ns/secret")
		})
	}
}

// benchSecret is like those of deployments: two values, labels, and who owns which field.
func benchSecret(i int) *corev1.Secret {
	return &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: fmt.Sprintf("team-%d", i%20), Name: fmt.Sprintf("secret-%05d", i), UID: types.UID(fmt.Sprintf("0b9a4a4e-6f7c-4f0c-9df8-%012d", i)),
			Labels: map[string]string{"app": "web", "team": fmt.Sprint(i % 20)},
			ManagedFields: []metav1.ManagedFieldsEntry{
				{Manager: "kubectl-create", Operation: "Update", APIVersion: "v1", FieldsType: "FieldsV1", FieldsV1: metav1.NewFieldsV1(`{"f:data":{".":{},"f:key":{},"f:password":{}},"f:type":{}}`)},
			},
		},
		Type: "Opaque", Data: map[string][]byte{"key": bytes.Repeat([]byte{byte(i)}, 700), "password": []byte(fmt.Sprint("hidden-", i))},
	}
}

// cpu is how long all goroutines of the process have run.
func cpu(b *testing.B) time.Duration {
	b.Helper()
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// keptKey is a plugin with one key, which stays.
type keptKey struct {
	seed  *seal.Seed
	plain []byte
}

func (k *keptKey) encrypt(seed []byte) (seal.Header, error) {
	k.plain = bytes.Clone(seed)
	return seal.Header{KeyID: "key-1", Source: []byte("encrypted")}, nil
}

func (k *keptKey) Seed() (*seal.Seed, error) { return k.seed, nil }

func (k *keptKey) Decrypt(context.Context, *seal.Header) ([]byte, error) { return k.plain, nil }
