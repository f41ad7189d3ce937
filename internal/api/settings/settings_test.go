package settings

import (
	"math/rand/v2"
	"reflect"
	"testing"

	"sigs.k8s.io/randfill"
)

func TestProtobufFormComesBackAsItWas(t *testing.T) {
	seed := rand.Int64()
	fill := randfill.NewWithSeed(seed).NilChance(.3).NumElements(1, 3).MaxDepth(8)
	for range 200 {
		var in, out PodPreset
		fill.Fill(&in.Spec)
		in.Name, in.Namespace = "a", "b"
		data, err := in.Marshal()
		if err == nil {
			err = out.Unmarshal(data)
		}
		if err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		if again, err := out.Marshal(); err != nil || string(again) != string(data) || out.Name != "a" {
			t.Fatalf("seed %d: got %+v of %+v, %v", seed, out, in, err)
		}
		buffer := make([]byte, in.Size()+3)
		if n, err := in.MarshalToSizedBuffer(buffer); err != nil || string(buffer[3:]) != string(data) || n != len(data) {
			t.Fatalf("seed %d: got %d bytes, %v, want the end of the buffer to be the message", seed, n, err)
		}
		if copied := in.DeepCopyObject(); !reflect.DeepEqual(copied, &in) {
			t.Fatalf("seed %d: the copy of %+v is %+v", seed, in, copied)
		}
		for cut := range data {
			_ = new(PodPreset).Unmarshal(data[:cut]) // an error or not, but no panic
		}
	}
}
