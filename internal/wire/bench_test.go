package wire

import (
	"encoding/json"
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kjson "sigs.k8s.io/json"
)

// usualPod is a pod as a cluster has thousands of them, of about 3 KB of JSON.
func usualPod() *corev1.Pod {
	at := metav1.NewTime(time.Unix(1_700_000_000, 0))
	pod := samplePod()
	pod.CreationTimestamp, pod.Annotations = at, map[string]string{"checksum/config": "0123456789abcdef", "team": "payments"}
	fields := &metav1.FieldsV1{}
	fields.SetRawBytes([]byte(`{"f:metadata":{"f:labels":{".":{},"f:x":{}}},"f:spec":{"f:containers":{"k:{\"name\":\"c0\"}":{".":{},"f:image":{},"f:name":{}}}}}`))
	pod.ManagedFields = []metav1.ManagedFieldsEntry{{Manager: "kubectl", Operation: "Apply", APIVersion: "v1", Time: &at, FieldsType: "FieldsV1", FieldsV1: fields}}
	pod.Spec.Containers = nil
	for i := range 3 {
		pod.Spec.Containers = append(pod.Spec.Containers, corev1.Container{
			Name: fmt.Sprintf("c%d", i), Image: "registry.example.com/team/app:v1.2.3", Args: []string{"--listen=:8080", "--verbose"},
			Env:       []corev1.EnvVar{{Name: "A", Value: "one"}, {Name: "B", Value: "two"}},
			Ports:     []corev1.ContainerPort{{ContainerPort: 8080, Protocol: corev1.ProtocolTCP}},
			Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{"cpu": resource.MustParse("100m"), "memory": resource.MustParse("128Mi")}},
		})
	}
	for _, c := range []corev1.PodConditionType{corev1.PodScheduled, corev1.PodInitialized, corev1.ContainersReady, corev1.PodReady} {
		pod.Status.Conditions = append(pod.Status.Conditions, corev1.PodCondition{Type: c, Status: corev1.ConditionTrue, LastTransitionTime: at})
	}
	return pod
}

func BenchmarkEncode(b *testing.B) {
	pod := usualPod()
	run := func(name string, encode func(dst []byte) ([]byte, error)) {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			var buf []byte
			for b.Loop() {
				var err error
				if buf, err = encode(buf[:0]); err != nil {
					b.Fatal(err)
				}
			}
			b.SetBytes(int64(len(buf)))
		})
	}
	run("json", func(dst []byte) ([]byte, error) { return AppendJSON(dst, pod) })
	run("json of the library", func(dst []byte) ([]byte, error) {
		out, err := json.Marshal(pod)
		return append(dst, out...), err
	})
	run("protobuf", func(dst []byte) ([]byte, error) { return AppendProtoBody(dst, pod) })
	run("canonical form", func(dst []byte) ([]byte, error) { Canonical(pod); return dst, nil })
}

func BenchmarkDecode(b *testing.B) {
	text, err := AppendJSON(nil, usualPod())
	if err != nil {
		b.Fatal(err)
	}
	bare, err := AppendProtoBody(nil, usualPod())
	if err != nil {
		b.Fatal(err)
	}
	for name, decode := range map[string]func(*corev1.Pod) error{
		"json": func(pod *corev1.Pod) error { return DecodeJSON(text, pod) },
		"json by the library": func(pod *corev1.Pod) error {
			_, err := kjson.UnmarshalStrict(text, pod)
			return err
		},
		"protobuf": func(pod *corev1.Pod) error { return pod.Unmarshal(bare) },
	} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if err := decode(&corev1.Pod{}); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
