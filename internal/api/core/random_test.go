package core_test

import (
	"math/rand"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/apitesting/fuzzer"
	"k8s.io/apimachinery/pkg/api/equality"
	metafuzzer "k8s.io/apimachinery/pkg/apis/meta/fuzzer"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/client-go/kubernetes/scheme"

	"github.com/kemudi/kemudi/internal/api/core"
	"github.com/kemudi/kemudi/internal/resource"
)

// Whatever a client sends, the functions of a kind must not panic, defaults must
// come to rest at once, and the stored object must stay as it is.
func TestRandomObjectsBreakNothing(t *testing.T) {
	const rounds = 40
	for kind, def := range defs {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			for seed := range int64(rounds) {
				fill := fuzzer.FuzzerFor(metafuzzer.Funcs, rand.NewSource(seed), serializer.NewCodecFactory(scheme.Scheme)).NilChance(0.4).NumElements(0, 3)
				obj, old := def.New(), def.New()
				fill.Fill(obj)
				fill.Fill(old)
				def.Default(old)
				def.Default(obj)
				once := obj.DeepCopyObject()
				if def.Default(obj); !equality.Semantic.DeepEqual(once, obj) {
					t.Fatalf("seed %d: defaults change what has them already", seed)
				}
				stored := old.DeepCopyObject()
				exercise(def, obj.DeepCopyObject().(resource.Object), nil)
				exercise(def, obj, old)
				for i := range def.Sub {
					through(&def.Sub[i], once.DeepCopyObject().(resource.Object), old)
				}
				if !equality.Semantic.DeepEqual(stored, old) {
					t.Fatalf("seed %d: the stored object was changed", seed)
				}
			}
		})
	}
}

func exercise(def *resource.Def, obj, old resource.Object) {
	def.Prepare(obj, old)
	resource.ValidateMeta(obj, orSame(old, obj), def, resource.NewErrors())
	def.Validate(obj, old, resource.NewErrors())
	def.Warn(obj, old)
	for _, c := range def.Columns {
		c.Value(obj)
	}
	if p, ok := obj.(*corev1.Pod); ok {
		core.PodRequests(p)
	}
	if def.GracePeriod != nil {
		def.GracePeriod(obj, nil)
	}
}

func orSame(old, obj resource.Object) resource.Object {
	if old == nil {
		return obj
	}
	return old
}

func through(sub *resource.SubDef, obj, old resource.Object) {
	if sub.Merge == nil {
		return
	}
	sub.Merge(obj, old.DeepCopyObject().(resource.Object))
	if sub.Validate != nil {
		sub.Validate(obj, old, resource.NewErrors())
	}
}
