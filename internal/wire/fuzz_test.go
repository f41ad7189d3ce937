package wire

import (
	"bytes"
	"encoding/json"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	kserializer "k8s.io/apimachinery/pkg/runtime/serializer/json"
	"k8s.io/apimachinery/pkg/runtime/serializer/protobuf"
	"k8s.io/client-go/kubernetes/scheme"
)

// compareForms holds all that is made of an object against the libraries.
func compareForms(t *testing.T, pod *corev1.Pod) {
	t.Helper()
	for _, e := range pod.ManagedFields {
		if e.FieldsV1 != nil && !json.Valid(e.FieldsV1.GetRawBytes()) {
			return // package patch lets no such set in
		}
	}
	want, wantErr := json.Marshal(pod)
	got, err := AppendJSON(nil, pod)
	if (err == nil) != (wantErr == nil) || err == nil && !bytes.Equal(got, want) {
		t.Fatalf("JSON: got %s, %v, want %s, %v", got, err, want, wantErr)
	}
	if err != nil {
		return
	}
	ours, theirs := pod.DeepCopy(), pod.DeepCopy()
	Canonical(ours)
	canonicalByLibrary(theirs)
	if got, want := form(t, ours), form(t, theirs); !bytes.Equal(got, want) {
		t.Fatalf("canonical form: got %s, want %s", got, want)
	}
	typed := pod.DeepCopy()
	typed.TypeMeta = metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"}
	var b bytes.Buffer
	if err := protobuf.NewSerializer(scheme.Scheme, scheme.Scheme).Encode(typed, &b); err != nil {
		t.Fatal(err)
	}
	if got, err := NewProtoType("v1", "Pod").AppendProto(nil, pod); err != nil || !bytes.Equal(got, b.Bytes()) {
		t.Fatalf("protobuf: got %q, %v, want %q", got, err, b.Bytes())
	}
}

func FuzzJSON(f *testing.F) {
	usual, err := AppendJSON(nil, usualPod())
	if err != nil {
		f.Fatal(err)
	}
	for _, doc := range []string{
		string(usual), `{}`, `null`, `[]`, `{"kind":"Pod","Kind":"x","metadata":{"name":"a","name":"b"}}`,
		`{"metadata":{"creationTimestamp":"2024-02-30T25:00:00Z"}}`, `{"metadata":{"creationTimestamp":"2024-02-03T04:05:06.789+14:00","deletionGracePeriodSeconds":9223372036854775808}}`,
		`{"spec":{"containers":[{"resources":{"limits":{"cpu":"1e400","memory":".5Gi","a":-0.0}},"livenessProbe":{"httpGet":{"port":"80"}}}],"overhead":null}}`,
		`{"metadata":{"managedFields":[{"fieldsV1":{"f:a":{ }}},{"fieldsV1":null},{"fieldsV1":"x"}],"labels":{"\ud800":"<\u2028>"}}}`,
	} {
		f.Add([]byte(doc))
	}
	library := kserializer.NewSerializerWithOptions(kserializer.DefaultMetaFactory, scheme.Scheme, scheme.Scheme, kserializer.SerializerOptions{})
	f.Fuzz(func(t *testing.T, doc []byte) {
		got, want := &corev1.Pod{}, &corev1.Pod{}
		err := DecodeJSON(doc, got)
		gvk := corev1.SchemeGroupVersion.WithKind("Pod")
		// It refuses more, for what a document says of its kind.
		if back, _, wantErr := library.Decode(doc, &gvk, want); wantErr == nil && back == runtime.Object(want) {
			if err != nil {
				t.Fatalf("got %v, want no error", err)
			}
			if got, want := form(t, got), form(t, want); !bytes.Equal(got, want) {
				t.Fatalf("got %s, want %s", got, want)
			}
		}
		if err == nil {
			compareForms(t, got)
		}
	})
}

func FuzzProto(f *testing.F) {
	usual, err := NewProtoType("v1", "Pod").AppendProto(nil, usualPod())
	if err != nil {
		f.Fatal(err)
	}
	for _, doc := range [][]byte{usual, usual[:len(usual)/2], []byte(magic), []byte("k8s"), append([]byte(magic), 0x12, 0xff, 0xff, 0xff, 0xff, 0x0f), []byte(magic + "\x0a\x0c\x0a\x02v1\x12\x03Pod\x12\x02\x0a\x00")} {
		f.Add(doc)
	}
	library := protobuf.NewSerializer(scheme.Scheme, scheme.Scheme)
	f.Fuzz(func(t *testing.T, doc []byte) {
		meta, raw, err := OpenProto(doc)
		got := &corev1.Pod{}
		if err == nil {
			err = got.Unmarshal(raw)
		}
		back, _, wantErr := library.Decode(doc, nil, nil)
		if want, isPod := back.(*corev1.Pod); wantErr == nil && isPod {
			if err != nil || meta.Kind != "Pod" {
				t.Fatalf("got %v, %v, want no error", meta, err)
			}
			want.TypeMeta = metav1.TypeMeta{}
			if !equality.Semantic.DeepEqual(got, want) {
				t.Fatalf("got %v, want %v", got, want)
			}
		}
		if err == nil {
			compareForms(t, got)
		}
	})
}
