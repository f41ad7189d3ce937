package devices

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	apiresource "k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
)

// TestFindsWhatTryingAllFinds compares searches, with what has failed remembered from the start, with
// trying every set of devices; and sees that they leave no trace (D1).
func TestFindsWhatTryingAllFinds(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 1))
	can, cannot := 0, 0
	for round := range 3000 {
		v := New(testCompile)
		v.search.easy = 0
		v.SetClass(&resourcev1.DeviceClass{ObjectMeta: metav1.ObjectMeta{Name: "any"}})
		slice := randomSlice(r)
		v.SetSlice(slice)
		v.SetSlice(&resourcev1.ResourceSlice{ObjectMeta: metav1.ObjectMeta{Name: "counters"}, Spec: resourcev1.ResourceSliceSpec{
			Driver: "d.io", Pool: slice.Spec.Pool, NodeName: slice.Spec.NodeName,
			SharedCounters: []resourcev1.CounterSet{{Name: "s", Counters: map[string]resourcev1.Counter{"c": {Value: apiresource.MustParse("3")}}}},
		}})
		claims := []*resourcev1.ResourceClaim{randomClaim(r, "a"), randomClaim(r, "b")}
		node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1"}}
		p, err := v.Plan(claims)
		if err != nil {
			t.Fatal(err)
		}
		before := trace(v)
		_, err = v.Try(p, node, MaxSteps)
		if after := trace(v); after != before {
			t.Fatalf("seed %d round %d: before %s\nafter %s", seed, round, before, after)
		}
		b := brute{slice: slice, claims: claims, used: map[int]bool{}}
		if want := b.request(0, 0); want != (err == nil) {
			t.Fatalf("seed %d round %d: got %v, want %v\n%v\n%v %v", seed, round, err, want, slice.Spec, claims[0].Spec, claims[1].Spec)
		}
		if err == nil {
			can++
		} else {
			cannot++
		}
	}
	if can < 300 || cannot < 300 {
		t.Errorf("%d rounds could be served and %d could not, want some of each", can, cannot)
	}
}

// trace is everything that a search may change.
func trace(v *Inventory) string {
	s := ""
	for _, name := range slices.Sorted(func(yield func(string) bool) {
		for id, u := range v.uses {
			if !yield(fmt.Sprintf("%v %d %d %d %d", id, u.whole, u.shares, len(u.trying), u.parts)) {
				return
			}
		}
	}) {
		s += name + "\n"
	}
	for _, p := range v.pools {
		for set, of := range p.remaining() {
			for name, q := range of {
				s += set + name + q.String()
			}
		}
	}
	return s
}

func randomSlice(r *rand.Rand) *resourcev1.ResourceSlice {
	s := &resourcev1.ResourceSlice{ObjectMeta: metav1.ObjectMeta{Name: "s"}}
	s.Spec = resourcev1.ResourceSliceSpec{Driver: "d.io", Pool: resourcev1.ResourcePool{Name: "p", ResourceSliceCount: 2}, NodeName: ptr.To("n1")}
	for i := range 2 + r.IntN(6) {
		d := resourcev1.Device{Name: fmt.Sprintf("d%d", i), Attributes: map[resourcev1.QualifiedName]resourcev1.DeviceAttribute{}}
		d.Attributes["kind"] = resourcev1.DeviceAttribute{StringValue: ptr.To([]string{"x", "y"}[r.IntN(2)])}
		if r.IntN(4) > 0 {
			d.Attributes["numa"] = resourcev1.DeviceAttribute{IntValue: ptr.To(int64(r.IntN(3)))}
		}
		if r.IntN(3) == 0 {
			d.ConsumesCounters = []resourcev1.DeviceCounterConsumption{{CounterSet: "s", Counters: map[string]resourcev1.Counter{"c": {Value: *apiresource.NewQuantity(int64(1+r.IntN(2)), apiresource.DecimalSI)}}}}
		}
		if r.IntN(6) == 0 {
			d.Taints = []resourcev1.DeviceTaint{{Key: "k", Effect: resourcev1.DeviceTaintEffectNoSchedule}}
		}
		s.Spec.Devices = append(s.Spec.Devices, d)
	}
	return s
}

func randomClaim(r *rand.Rand, name string) *resourcev1.ResourceClaim {
	c := &resourcev1.ResourceClaim{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(name)}}
	for i := range 1 + r.IntN(2) {
		x := &resourcev1.ExactDeviceRequest{DeviceClassName: "any", Count: int64(1 + r.IntN(2))}
		if r.IntN(2) == 0 {
			x.Selectors = []resourcev1.DeviceSelector{{CEL: &resourcev1.CELDeviceSelector{Expression: []string{"kind=x", "kind=y"}[r.IntN(2)]}}}
		}
		if r.IntN(3) == 0 {
			x.Tolerations = []resourcev1.DeviceToleration{{Operator: resourcev1.DeviceTolerationOpExists}}
		}
		c.Spec.Devices.Requests = append(c.Spec.Devices.Requests, resourcev1.DeviceRequest{Name: fmt.Sprintf("r%d", i), Exactly: x})
	}
	numa := ptr.To(resourcev1.FullyQualifiedName("d.io/numa"))
	switch r.IntN(4) {
	case 0:
		c.Spec.Devices.Constraints = []resourcev1.DeviceConstraint{{MatchAttribute: numa}}
	case 1:
		c.Spec.Devices.Constraints = []resourcev1.DeviceConstraint{{DistinctAttribute: numa, Requests: []string{"r0"}}}
	}
	return c
}

// brute tries every choice of devices, and sees at the end whether it will do.
type brute struct {
	slice  *resourcev1.ResourceSlice
	claims []*resourcev1.ResourceClaim
	used   map[int]bool
	got    []chosenBy
}

type chosenBy struct{ claim, request, device int }

func (b *brute) request(claim, request int) bool {
	if claim == len(b.claims) {
		return b.good()
	}
	requests := b.claims[claim].Spec.Devices.Requests
	if request == len(requests) {
		return b.request(claim+1, 0)
	}
	have := 0
	for _, g := range b.got {
		if g.claim == claim && g.request == request {
			have++
		}
	}
	if have == int(requests[request].Exactly.Count) {
		return b.request(claim, request+1)
	}
	for i := range b.slice.Spec.Devices {
		if b.used[i] {
			continue
		}
		b.used[i] = true
		b.got = append(b.got, chosenBy{claim, request, i})
		if b.request(claim, request) {
			return true
		}
		b.got = b.got[:len(b.got)-1]
		delete(b.used, i)
	}
	return false
}

func (b *brute) good() bool {
	var consumed int64
	for _, g := range b.got {
		d, x := &b.slice.Spec.Devices[g.device], b.claims[g.claim].Spec.Devices.Requests[g.request].Exactly
		for _, s := range x.Selectors {
			if "kind="+*d.Attributes["kind"].StringValue != s.CEL.Expression {
				return false
			}
		}
		if len(d.Taints) > 0 && len(x.Tolerations) == 0 {
			return false
		}
		for _, c := range d.ConsumesCounters {
			q := c.Counters["c"].Value
			consumed += q.Value()
		}
		for _, c := range b.claims[g.claim].Spec.Devices.Constraints {
			if !b.holds(&c, g) {
				return false
			}
		}
	}
	return consumed <= 3
}

// holds compares one device with all others of its claim that a constraint is about.
func (b *brute) holds(c *resourcev1.DeviceConstraint, g chosenBy) bool {
	about := func(g chosenBy) bool { return len(c.Requests) == 0 || g.request == 0 }
	if !about(g) {
		return true
	}
	mine := b.slice.Spec.Devices[g.device].Attributes["numa"].IntValue
	for _, other := range b.got {
		if other.claim != g.claim || !about(other) || other == g {
			continue
		}
		its := b.slice.Spec.Devices[other.device].Attributes["numa"].IntValue
		if mine != nil && its != nil && (*mine == *its) == (c.DistinctAttribute != nil) {
			return false
		}
	}
	return mine != nil
}
