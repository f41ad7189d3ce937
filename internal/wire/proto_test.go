package wire

import (
	"bytes"
	"encoding/binary"
	"reflect"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer/protobuf"
	"k8s.io/client-go/kubernetes/scheme"
)

func samplePod() *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "a", Namespace: "b", ResourceVersion: "7", Labels: map[string]string{"x": "y"}},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: strings.Repeat("i", 200)}}},
	}
}

func TestProtoEnvelopeIsTheLibrarys(t *testing.T) {
	pod := samplePod()
	pod.TypeMeta = metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"}
	var want bytes.Buffer
	if err := protobuf.NewSerializer(scheme.Scheme, scheme.Scheme).Encode(pod, &want); err != nil {
		t.Fatal(err)
	}
	got, err := NewProtoType("v1", "Pod").AppendProto(nil, samplePod())
	if err != nil || !bytes.Equal(got, want.Bytes()) {
		t.Fatalf("%v\n got %q\nwant %q", err, got, want.Bytes())
	}
	meta, raw, err := OpenProto(got)
	var back corev1.Pod
	if err != nil || meta.Kind != "Pod" || meta.APIVersion != "v1" || back.Unmarshal(raw) != nil || !reflect.DeepEqual(&back, samplePod()) {
		t.Errorf("OpenProto: got %v %v %v", meta, err, back)
	}
	if _, _, err := OpenProto([]byte("{}")); err == nil {
		t.Error("OpenProto of JSON: got no error")
	}
}

func TestEveryListHasItsMetadataInField1AndItemsInField2(t *testing.T) {
	meta := metav1.ListMeta{ResourceVersion: "12", Continue: "abc", RemainingItemCount: new(int64)}
	for gvk, typ := range scheme.Scheme.AllKnownTypes() {
		items, ok := typ.FieldByName("Items")
		if !ok || gvk.Version == runtime.APIVersionInternal || gvk.Kind == "List" || items.Type.Elem().Kind() != reflect.Struct {
			continue
		}
		list := reflect.New(typ)
		list.Elem().FieldByName("ListMeta").Set(reflect.ValueOf(meta))
		one := reflect.New(items.Type.Elem())
		one.Interface().(metav1.Object).SetName("n")
		list.Elem().FieldByName("Items").Set(reflect.Append(reflect.Zero(items.Type), one.Elem(), one.Elem()))
		want, err := AppendProtoBody(nil, list.Interface().(Proto))
		if err != nil {
			t.Fatal(err)
		}
		item, err := AppendProtoBody(nil, one.Interface().(Proto))
		if err != nil {
			t.Fatal(err)
		}
		got, err := AppendListHead(nil, &meta)
		if err != nil {
			t.Fatal(err)
		}
		head := len(got)
		for range 2 {
			got = append(AppendListItemHead(got, len(item)), item...)
		}
		if !bytes.Equal(got, want) {
			t.Errorf("%v: got %q, want %q", gvk, got, want)
		}
		if size := head + 2*ListItemSize(len(item)); size != len(got) {
			t.Errorf("%v: ListItemSize is off: %d, want %d", gvk, size, len(got))
		}
	}
}

func TestWatchFrameIsTheLibrarys(t *testing.T) {
	typ := NewProtoType("v1", "Pod")
	object, err := typ.AppendProto(nil, samplePod())
	if err != nil {
		t.Fatal(err)
	}
	event := metav1.WatchEvent{Type: "MODIFIED", Object: runtime.RawExtension{Raw: object}}
	body, err := event.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	want := append(binary.BigEndian.AppendUint32(nil, uint32(len(body))), body...)
	bare, _ := samplePod().Marshal()
	got := typ.AppendTail(append(typ.AppendWatchHead(nil, "MODIFIED", len(bare)), bare...))
	if !bytes.Equal(got, want) {
		t.Errorf("got  %q\nwant %q", got, want)
	}
}
