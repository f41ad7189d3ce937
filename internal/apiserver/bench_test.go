package apiserver

import (
	"bytes"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kemudi/kemudi/internal/admission"
	"github.com/kemudi/kemudi/internal/admission/plugins"
	"github.com/kemudi/kemudi/internal/api/core"
	"github.com/kemudi/kemudi/internal/apiserver/request"
	"github.com/kemudi/kemudi/internal/apiserver/served"
	"github.com/kemudi/kemudi/internal/client"
	"github.com/kemudi/kemudi/internal/store/etcd"
)

// realPod is a pod as a Deployment makes it, with a status, of about 5 KB in protobuf.
func realPod(i int) *corev1.Pod {
	quantity := resource.MustParse
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Name: fmt.Sprintf("web-6d4b75cb6d-%05d", i), GenerateName: "web-6d4b75cb6d-", Namespace: fmt.Sprintf("ns-%d", i%20),
			Labels:      map[string]string{"app": "web", "pod-template-hash": "6d4b75cb6d", "tier": fmt.Sprint(i % 7)},
			Annotations: map[string]string{"example.com/checksum": strings.Repeat("0123456789abcdef", 8), "example.com/owner": "team-a"},
			OwnerReferences: []metav1.OwnerReference{{
				APIVersion: "apps/v1", Kind: "ReplicaSet", Name: "web-6d4b75cb6d", UID: "5f0a3a7e-8f4c-4d3b-9a42-5c8f6d7e8a90", Controller: new(true), BlockOwnerDeletion: new(true),
			}},
		},
		Spec: corev1.PodSpec{
			ServiceAccountName: "default", NodeName: fmt.Sprintf("node-%d", i%100),
			Volumes: []corev1.Volume{{Name: "kube-api-access-x2x9z", VolumeSource: corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{Sources: []corev1.VolumeProjection{
				{ServiceAccountToken: &corev1.ServiceAccountTokenProjection{Path: "token", ExpirationSeconds: new(int64(3607))}},
				{ConfigMap: &corev1.ConfigMapProjection{LocalObjectReference: corev1.LocalObjectReference{Name: "kube-root-ca.crt"}, Items: []corev1.KeyToPath{{Key: "ca.crt", Path: "ca.crt"}}}},
			}}}}},
			Tolerations: []corev1.Toleration{
				{Key: "node.kubernetes.io/not-ready", Operator: "Exists", Effect: "NoExecute", TolerationSeconds: new(int64(300))},
				{Key: "node.kubernetes.io/unreachable", Operator: "Exists", Effect: "NoExecute", TolerationSeconds: new(int64(300))},
			},
		},
	}
	for c := range 2 {
		container := corev1.Container{
			Name: fmt.Sprintf("container-%d", c), Image: "registry.example.com/team/web:v1.2.3", Args: []string{"--listen=:8080", "--verbose"},
			Ports:        []corev1.ContainerPort{{Name: fmt.Sprintf("http%d", c), ContainerPort: 8080 + int32(c), Protocol: "TCP"}},
			VolumeMounts: []corev1.VolumeMount{{Name: "kube-api-access-x2x9z", ReadOnly: true, MountPath: "/var/run/secrets/kubernetes.io/serviceaccount"}},
			Resources: corev1.ResourceRequirements{
				Requests: corev1.ResourceList{"cpu": quantity("100m"), "memory": quantity("128Mi")},
				Limits:   corev1.ResourceList{"cpu": quantity("500m"), "memory": quantity("256Mi")},
			},
			ReadinessProbe: &corev1.Probe{ProbeHandler: corev1.ProbeHandler{HTTPGet: &corev1.HTTPGetAction{Path: "/healthz"}}, PeriodSeconds: 10},
		}
		container.ReadinessProbe.HTTPGet.Port.IntVal = 8080
		for e := range 6 {
			container.Env = append(container.Env, corev1.EnvVar{Name: fmt.Sprintf("SETTING_%d", e), Value: strings.Repeat("v", 20)})
		}
		pod.Spec.Containers = append(pod.Spec.Containers, container)
	}
	return pod
}

func setStatus(pod *corev1.Pod, round int) {
	now := metav1.NewTime(time.Unix(1_700_000_000+int64(round), 0))
	pod.Status = corev1.PodStatus{Phase: corev1.PodRunning, HostIP: "10.0.0.1", PodIP: "10.1.0.1", PodIPs: []corev1.PodIP{{IP: "10.1.0.1"}}, StartTime: &now}
	for _, kind := range []corev1.PodConditionType{"PodReadyToStartContainers", "Initialized", "Ready", "ContainersReady", "PodScheduled"} {
		pod.Status.Conditions = append(pod.Status.Conditions, corev1.PodCondition{Type: kind, Status: "True", LastTransitionTime: now})
	}
	for _, c := range pod.Spec.Containers {
		pod.Status.ContainerStatuses = append(pod.Status.ContainerStatuses, corev1.ContainerStatus{
			Name: c.Name, Image: c.Image, ImageID: c.Image + "@sha256:" + strings.Repeat("ab", 32), ContainerID: "containerd://" + strings.Repeat("cd", 32),
			Ready: true, Started: new(true), RestartCount: int32(round), State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: now}},
		})
	}
}

// fill stores n pods with a status.
func fill(tb testing.TB, f *fixture, n int) {
	tb.Helper()
	pods := client.For(f.As(admin, "filler/1"), core.Pods)
	agent := client.For(f.As(admin, "kubelet/1"), core.Pods)
	for i := range n {
		pod, err := pods.Create(tb.Context(), realPod(i))
		if err != nil {
			tb.Fatal(err)
		}
		pod = pod.DeepCopy()
		setStatus(pod, 1)
		if _, err := agent.UpdateStatus(tb.Context(), pod); err != nil {
			tb.Fatal(err)
		}
	}
}

func (f *fixture) serve(b *testing.B, r *http.Request, code int) {
	w := httptest.NewRecorder()
	f.Handler().ServeHTTP(w, r)
	if w.Code != code {
		b.Fatalf("%s %s: got %d %s", r.Method, r.URL, w.Code, w.Body)
	}
}

// cpu reports how much processor time an operation took in all, by all
// goroutines, when the result is called.
func cpu(b *testing.B) func() {
	before := processTime(b)
	return func() { b.ReportMetric(float64((processTime(b)-before).Microseconds())/float64(b.N), "cpu-us/op") }
}

// processTime is how much processor time this process has taken so far.
func processTime(tb testing.TB) time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		tb.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

func BenchmarkHandlerGetPod(b *testing.B) {
	for _, kind := range []string{request.JSON, request.Proto} {
		b.Run(kind[strings.LastIndexAny(kind, "/.")+1:], func(b *testing.B) {
			f := newFixture(b)
			fill(b, f, 10)
			r := httptest.NewRequest("GET", "/api/v1/namespaces/ns-3/pods/web-6d4b75cb6d-00003", nil)
			r.Header.Set("Accept", kind)
			b.ReportAllocs()
			defer cpu(b)()
			for b.Loop() {
				f.serve(b, r, 200)
			}
		})
	}
}

func BenchmarkHandlerCreatePod(b *testing.B) {
	for _, kind := range []string{request.JSON, request.Proto} {
		b.Run(kind[strings.LastIndexAny(kind, "/.")+1:], func(b *testing.B) {
			f := newFixture(b)
			pod := realPod(0)
			pod.Name = "NAME"
			body, _ := json.Marshal(pod)
			n := 0
			b.ReportAllocs()
			defer cpu(b)()
			for b.Loop() {
				n++
				content := bytes.Replace(body, []byte("NAME"), []byte(fmt.Sprint("pod-", n)), 1)
				if kind == request.Proto {
					pod.Name = fmt.Sprint("pod-", n)
					content, _ = served.AppendAny(nil, request.MediaProto, corev1.SchemeGroupVersion.WithKind("Pod"), pod)
				}
				r := httptest.NewRequest("POST", "/api/v1/namespaces/ns-0/pods", bytes.NewReader(content))
				r.Header.Set("Content-Type", kind)
				r.Header.Set("Accept", kind)
				f.serve(b, r, 201)
			}
		})
	}
}

// BenchmarkCreateUnderAdmission creates in a namespace that admission looks at,
// on a real store, which does not wait for the disk.
func BenchmarkCreateUnderAdmission(b *testing.B) {
	chain := &racing{}
	f := newFixture(b, func(o *Options) { o.Admission, o.Store = chain, newEtcd(b, b.TempDir()) })
	var err error
	if chain.Chain, err = plugins.New(admission.Options{Caches: f.o.Caches.Cache, Fresh: f.Fresh}); err != nil {
		b.Fatal(err)
	}
	api := f.As(admin, "bench")
	if _, err := client.For(api, core.Namespaces).Create(b.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "ns"}}); err != nil {
		b.Fatal(err)
	}
	maps := client.For(api, core.ConfigMaps)
	n := 0
	b.ReportAllocs()
	defer cpu(b)()
	for b.Loop() {
		n++
		if _, err := maps.Create(b.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint("m-", n), Namespace: "ns"}}); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkHandlerPutPodStatus(b *testing.B) {
	f := newFixture(b)
	fill(b, f, 1)
	agent := client.For(f.As(admin, "kubelet/1"), core.Pods)
	pod, err := agent.Get(b.Context(), "ns-0", "web-6d4b75cb6d-00000")
	if err != nil {
		b.Fatal(err)
	}
	round := 0
	b.ReportAllocs()
	defer cpu(b)()
	for b.Loop() {
		b.StopTimer()
		round++
		next := pod.DeepCopy()
		setStatus(next, round)
		next.ResourceVersion = ""
		body, _ := json.Marshal(next)
		r := httptest.NewRequest("PUT", "/api/v1/namespaces/ns-0/pods/web-6d4b75cb6d-00000/status", bytes.NewReader(body))
		r.Header.Set("User-Agent", "kubelet/1")
		b.StartTimer()
		f.serve(b, r, 200)
	}
}

func BenchmarkHandlerApplyDeployment(b *testing.B) {
	f := newFixture(b)
	n := 0
	b.ReportAllocs()
	defer cpu(b)()
	for b.Loop() {
		n++
		d := deployment("web", int32(n%2+1))
		d.Spec.Template.Spec.Containers, d.Spec.Template.Spec.Volumes = realPod(0).Spec.Containers, realPod(0).Spec.Volumes
		d.APIVersion, d.Kind = "apps/v1", "Deployment"
		b.StopTimer()
		var m map[string]any
		body, _ := json.Marshal(d)
		_ = json.Unmarshal(body, &m)
		delete(m, "status")
		body, _ = json.Marshal(m)
		r := httptest.NewRequest("PATCH", "/apis/apps/v1/namespaces/default/deployments/web?fieldManager=bench", bytes.NewReader(body))
		r.Header.Set("Content-Type", "application/apply-patch+yaml")
		b.StartTimer()
		code := 200
		if n == 1 {
			code = 201
		}
		f.serve(b, r, code)
	}
}

// BenchmarkTLS measures what 16 clients, each with its own connection, reach.
func BenchmarkTLS(b *testing.B) {
	const clients = 16
	run := func(b *testing.B, request func(f *fixture, n int) *http.Request) {
		f := newFixture(b)
		fill(b, f, 100)
		f.url()
		var n atomic.Int64
		var wg sync.WaitGroup
		b.ResetTimer()
		defer cpu(b)()
		for range clients {
			wg.Go(func() {
				transport := &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, ForceAttemptHTTP2: true, DisableCompression: true}
				defer transport.CloseIdleConnections()
				for {
					i := n.Add(1)
					if i > int64(b.N) {
						return
					}
					res, err := transport.RoundTrip(request(f, int(i)))
					if err != nil {
						b.Error(err)
						return
					}
					if res.StatusCode >= 300 {
						b.Error(res.Status)
					}
					_, _ = io.Copy(io.Discard, res.Body)
					res.Body.Close()
				}
			})
		}
		wg.Wait()
		b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "req/s")
	}
	b.Run("get", func(b *testing.B) {
		run(b, func(f *fixture, n int) *http.Request {
			r, _ := http.NewRequest("GET", fmt.Sprintf("%s/api/v1/namespaces/ns-%d/pods/web-6d4b75cb6d-%05d", f.url(), n%20, n%20), nil)
			return r
		})
	})
	pod := realPod(0)
	pod.Name = "NAME"
	body, _ := json.Marshal(pod)
	b.Run("create", func(b *testing.B) {
		run(b, func(f *fixture, n int) *http.Request {
			content := bytes.Replace(body, []byte("NAME"), []byte(fmt.Sprint("pod-", n)), 1)
			r, _ := http.NewRequest("POST", f.url()+"/api/v1/namespaces/ns-0/pods", bytes.NewReader(content))
			r.Header.Set("Content-Type", request.JSON)
			return r
		})
	})
}

// BenchmarkWatch measures what it costs to deliver one event to one of 200
// watches, which share 4 connections.
func BenchmarkWatch(b *testing.B) {
	const watches, connections = 200, 4
	for _, kind := range []string{request.JSON, request.Proto} {
		b.Run(kind[strings.LastIndexAny(kind, "/.")+1:], func(b *testing.B) {
			f := newFixture(b)
			fill(b, f, 1)
			agent := client.For(f.As(admin, "kubelet/1"), core.Pods)
			pod, err := agent.Get(b.Context(), "ns-0", "web-6d4b75cb6d-00000")
			if err != nil {
				b.Fatal(err)
			}
			var got atomic.Int64
			var wg sync.WaitGroup
			var transports []*http.Transport
			for range connections {
				transports = append(transports, &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, ForceAttemptHTTP2: true})
			}
			frame := int64(0)
			for i := range watches {
				r, _ := http.NewRequestWithContext(b.Context(), "GET", f.url()+"/api/v1/pods?watch=1&resourceVersion="+pod.ResourceVersion, nil)
				r.Header.Set("Accept", kind+";stream=watch")
				res, err := transports[i%connections].RoundTrip(r)
				if err != nil {
					b.Fatal(err)
				}
				wg.Go(func() {
					defer res.Body.Close()
					buf := make([]byte, 64<<10)
					for {
						n, err := res.Body.Read(buf)
						got.Add(int64(n))
						if err != nil {
							return
						}
					}
				})
			}
			round := 1
			update := func() {
				round++
				next := pod.DeepCopy()
				setStatus(next, round)
				next.ResourceVersion = ""
				if _, err := agent.UpdateStatus(b.Context(), next); err != nil {
					b.Fatal(err)
				}
			}
			update()
			for last := int64(-1); last != got.Load() || last == 0; { // until the first event has reached all
				last = got.Load()
				runtime.Gosched()
				update2 := time.NewTimer(50 * time.Millisecond)
				<-update2.C
			}
			frame = got.Load() / watches
			report := cpu(b)
			start := got.Load()
			b.ResetTimer()
			for range b.N {
				update()
			}
			for got.Load()-start < int64(b.N)*frame*watches*99/100 {
				runtime.Gosched()
			}
			b.StopTimer()
			report()
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*watches), "ns/event")
			for _, t := range transports {
				t.CloseIdleConnections()
			}
			f.http.CloseClientConnections()
			wg.Wait()
		})
	}
}

// BenchmarkDeleteCollection deletes 200 objects at a time, on a real store and disk.
func BenchmarkDeleteCollection(b *testing.B) {
	const many = 200
	f := newFixture(b, func(o *Options) { o.Store = runEtcd(b, etcd.Options{Dir: b.TempDir()}) })
	maps := client.For(f.As(admin, "bench"), core.ConfigMaps)
	defer cpu(b)()
	for b.Loop() {
		b.StopTimer()
		for i := range many {
			if _, err := maps.Create(b.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint("m-", i), Namespace: "ns"}}); err != nil {
				b.Fatal(err)
			}
		}
		b.StartTimer()
		f.must(200, "DELETE", "/api/v1/namespaces/ns/configmaps", "")
	}
}
