package scheduler

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	schedulingv1beta1 "k8s.io/api/scheduling/v1beta1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/kemudi/kemudi/internal/api/core"
	"github.com/kemudi/kemudi/internal/api/dra"
	"github.com/kemudi/kemudi/internal/client"
	"github.com/kemudi/kemudi/internal/scheduler/snapshot"
)

// withGroups runs a test with a scheduler that knows groups of pods.
func withGroups(t *testing.T, test func(r *rig)) {
	inClusterBy(t, Options{PodGroups: true}, nil, test)
}

// gang makes a group of which so many pods are to be placed together, in so far as change
// says nothing else.
func (r *rig) gang(name string, least int32, change ...func(s *schedulingv1beta1.PodGroupSpec)) {
	r.t.Helper()
	g := &schedulingv1beta1.PodGroup{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name}}
	g.Spec.SchedulingPolicy.Gang = &schedulingv1beta1.GangSchedulingPolicy{MinCount: least}
	for _, f := range change {
		f(&g.Spec)
	}
	if _, err := r.groups.Create(r.t.Context(), g); err != nil {
		r.t.Fatal(err)
	}
	synctest.Wait()
}

func basic(s *schedulingv1beta1.PodGroupSpec) {
	s.SchedulingPolicy = schedulingv1beta1.PodGroupSchedulingPolicy{Basic: &schedulingv1beta1.BasicSchedulingPolicy{}}
}

func ranked(priority int32) func(s *schedulingv1beta1.PodGroupSpec) {
	return func(s *schedulingv1beta1.PodGroupSpec) { s.Priority = &priority }
}

func within(key string) func(s *schedulingv1beta1.PodGroupSpec) {
	return func(s *schedulingv1beta1.PodGroupSpec) {
		s.SchedulingConstraints = &schedulingv1beta1.PodGroupSchedulingConstraints{Topology: []schedulingv1beta1.TopologyConstraint{{Key: key}}}
	}
}

func whole(s *schedulingv1beta1.PodGroupSpec) {
	s.DisruptionMode = &schedulingv1beta1.DisruptionMode{All: &schedulingv1beta1.AllDisruptionMode{}}
}

// members makes pods of a group, named after it and numbered.
func (r *rig) members(group string, n int, rest string) {
	r.t.Helper()
	for i := range n {
		r.pod(fmt.Sprintf("%s%d group=%s %s", group, i+1, group, rest))
	}
}

// placed is how many pods of a group have a node.
func (r *rig) placed(group string) (n int) {
	r.t.Helper()
	list, err := r.pods.List(r.t.Context(), "default", metav1.ListOptions{})
	if err != nil {
		r.t.Fatal(err)
	}
	for _, p := range list {
		if g := p.Spec.SchedulingGroup; g != nil && *g.PodGroupName == group && p.Spec.NodeName != "" && p.DeletionTimestamp == nil {
			n++
		}
	}
	return n
}

// havePlaces checks how many pods of groups have a node.
func (r *rig) havePlaces(want map[string]int) {
	r.t.Helper()
	for group, n := range want {
		if got := r.placed(group); got != n {
			r.t.Errorf("%d pods of %s have a node, want %d", got, group, n)
		}
	}
}

// reap removes pods that are to go, as their nodes do, and lets time pass.
func (r *rig) reap() {
	r.t.Helper()
	list, err := r.pods.List(r.t.Context(), "default", metav1.ListOptions{})
	if err != nil {
		r.t.Fatal(err)
	}
	for _, p := range list {
		if p.DeletionTimestamp != nil {
			r.delete(p.Name)
		}
	}
	time.Sleep(time.Minute)
	synctest.Wait()
}

// groupSaid checks the condition of a group.
func (r *rig) groupSaid(name string, status metav1.ConditionStatus, reason, message string) {
	r.t.Helper()
	g, err := r.groups.Get(r.t.Context(), "default", name)
	if err != nil {
		r.t.Fatal(err)
	}
	c := meta.FindStatusCondition(g.Status.Conditions, schedulingv1beta1.PodGroupInitiallyScheduled)
	if c == nil {
		c = &metav1.Condition{}
	}
	if c.Status != status || c.Reason != reason || c.Message != message {
		r.t.Errorf("condition of %s: got %s %s %q, want %s %s %q", name, c.Status, c.Reason, c.Message, status, reason, message)
	}
}

func TestAGangWaitsUntilThereAreEnoughOfIt(t *testing.T) {
	withGroups(t, func(r *rig) {
		r.node("n1 cpu=8")
		r.members("g", 2, "cpu=1")
		r.havePlaces(map[string]int{"g": 0}) // there is no such group yet
		r.gang("g", 3)
		r.havePlaces(map[string]int{"g": 0})
		if got := r.called(); len(got) > 0 {
			t.Errorf("the scheduler wrote %q although nothing can be done", got)
		}
		r.pod("g3 group=g cpu=1")
		r.havePlaces(map[string]int{"g": 3})
		r.groupSaid("g", metav1.ConditionTrue, "Scheduled", "")
		// Who comes to a gang that has what it needs goes where there is room.
		r.pod("g4 group=g cpu=1")
		r.pod("g5 group=g cpu=9")
		r.havePlaces(map[string]int{"g": 4})
		r.groupSaid("g", metav1.ConditionTrue, "Scheduled", "")
	})
}

func TestAGangThatDoesNotFitHoldsNothing(t *testing.T) {
	withGroups(t, func(r *rig) {
		r.node("n1 cpu=2")
		r.gang("g", 3)
		r.members("g", 3, "cpu=1")
		r.havePlaces(map[string]int{"g": 0})
		r.groupSaid("g", metav1.ConditionFalse, "Unschedulable", "minCount (3) cannot be satisfied: 2 scheduled, 0 remaining; pod group preemption: No preemption victims found for incoming preemptor")
		r.said("g3", refused("0/1 nodes are available: 1 Insufficient cpu."),
			"Warning FailedScheduling g1: minCount (3) cannot be satisfied: 2 scheduled, 0 remaining; pod group preemption: No preemption victims found for incoming preemptor",
			"Warning FailedScheduling g2: minCount (3) cannot be satisfied: 2 scheduled, 0 remaining; pod group preemption: No preemption victims found for incoming preemptor",
			"Warning FailedScheduling g3: 0/1 nodes are available: 1 Insufficient cpu.")
		r.pod("other cpu=2") // the room is free for others
		r.where("other", "n1")
		time.Sleep(20 * time.Second)
		r.called()
		r.node("n2 cpu=1") // helps the one that had no place, but not all
		time.Sleep(20 * time.Second)
		r.havePlaces(map[string]int{"g": 0})
		r.node("n3 cpu=2")
		time.Sleep(20 * time.Second)
		synctest.Wait()
		r.havePlaces(map[string]int{"g": 3})
		r.groupSaid("g", metav1.ConditionTrue, "Scheduled", "")
	})
}

func TestAGangIsTriedAgainWhenItNeedsLess(t *testing.T) {
	withGroups(t, func(r *rig) {
		r.node("n1 cpu=2")
		r.gang("g", 3)
		r.members("g", 3, "cpu=1")
		time.Sleep(20 * time.Second)
		patch := client.Patch{Type: "application/merge-patch+json", Data: []byte(`{"spec":{"schedulingPolicy":{"gang":{"minCount":2}}}}`)}
		if _, err := r.groups.Patch(r.t.Context(), "default", "g", "", patch); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		r.havePlaces(map[string]int{"g": 2})
	})
}

func TestPodsOfABasicGroupGoOneByOne(t *testing.T) {
	withGroups(t, func(r *rig) {
		r.node("n1 cpu=2")
		r.members("g", 3, "cpu=1")
		r.havePlaces(map[string]int{"g": 0})
		r.gang("g", 0, basic)
		r.havePlaces(map[string]int{"g": 2})
	})
}

func TestAGroupStaysWithinATopologyDomain(t *testing.T) {
	withGroups(t, func(r *rig) {
		r.node("n1 cpu=2 rack=a")
		r.node("n2 cpu=2 rack=b")
		r.node("n3 cpu=1 rack=b")
		r.gang("g", 3, within("rack"))
		r.members("g", 3, "cpu=1")
		r.havePlaces(map[string]int{"g": 3})
		r.pod("g4 group=g cpu=1") // there is room, but not there
		r.where("g4", "")
		for i := range 3 {
			if n := r.get(fmt.Sprint("g", i+1)).Spec.NodeName; n == "n1" {
				t.Errorf("g%d is on %s, in another rack", i+1, n)
			}
		}
		r.gang("h", 0, basic, within("shelf"))
		r.pod("h1 group=h cpu=1")
		r.where("h1", "")
		r.groupSaid("h", metav1.ConditionFalse, "Unschedulable", `0/0 placements are available: no node has the label "shelf"; pod group preemption: No preemption victims found for incoming preemptor`)
	})
}

func TestAGangOfSeveralSchedulersIsRefused(t *testing.T) {
	c := configured(t, "profiles: [{schedulerName: default-scheduler}, {schedulerName: other}]")
	inClusterBy(t, Options{PodGroups: true, Config: c}, nil, func(r *rig) {
		r.node("n1 cpu=8")
		r.pod("g1 group=g cpu=1")
		r.scheduledBy("other", "g2 group=g cpu=1")
		r.gang("g", 2)
		r.groupSaid("g", metav1.ConditionFalse, "SchedulerError", `all pods in a single pod group should have the same .spec.schedulerName set, got: "default-scheduler" and "other"`)
		r.havePlaces(map[string]int{"g": 0})
	})
}

// A gang of which one binding fails has begun: its place is kept for it.
func TestAPlaceIsHeldForAPodWhoseBindingFailed(t *testing.T) {
	withGroups(t, func(r *rig) {
		r.node("n1 cpu=2")
		failed := 0
		r.onBinding(func(req *client.Request) error {
			if req.Name == "g2" && failed < 2 {
				failed++
				return errors.New("no")
			}
			return nil
		})
		r.gang("g", 2)
		r.gang("h", 2)
		r.members("g", 2, "cpu=1")
		r.havePlaces(map[string]int{"g": 1})
		r.members("h", 2, "cpu=1")
		r.pod("single cpu=1")
		r.where("single", "")
		time.Sleep(30 * time.Second)
		synctest.Wait()
		r.havePlaces(map[string]int{"g": 2, "h": 0})
		if failed != 2 {
			t.Errorf("%d bindings failed, want 2", failed)
		}
	})
}

// Nothing happens when a wait ends by the clock, but that the group is to be tried again.
func TestAGangIsTriedAgainWhoseWaitFailsEveryTime(t *testing.T) {
	both, log := probes()
	inClusterBy(t, Options{PodGroups: true}, both, func(r *rig) {
		r.node("n1 cpu=1")
		r.gang("g", 1)
		r.pod("p cpu=1 group=g ready-b=9")
		time.Sleep(10 * time.Minute)
		synctest.Wait()
		log.mu.Lock()
		defer log.mu.Unlock()
		tries := 0
		for _, line := range log.mu.lines {
			if line == "b prebind p" {
				tries++
			}
		}
		if tries < 8 { // each takes a minute, and the wait after it at most ten seconds
			t.Errorf("tried %d times, want 8 or more", tries)
		}
	})
}

func TestAGangPreemptsNoMoreThanItNeedsAndNobodyInVain(t *testing.T) {
	withGroups(t, func(r *rig) {
		for i := range 4 {
			r.node(fmt.Sprintf("n%d cpu=2", i+1))
			r.pod(fmt.Sprintf("low%d cpu=2 on=n%d prio=%d", i+1, i+1, i+1))
		}
		r.gang("big", 5, ranked(100))
		r.members("big", 5, "cpu=2 prio=100")
		for i := range 4 {
			r.get(fmt.Sprint("low", i+1)) // all there: five do not fit in any case
		}
		r.groupSaid("big", metav1.ConditionFalse, "Unschedulable", "minCount (5) cannot be satisfied: 0 scheduled, 4 remaining; pod group preemption: Preemption is not helpful for scheduling")
		r.gang("g", 2, ranked(50))
		r.members("g", 2, "cpu=2 prio=50")
		r.groupSaid("g", metav1.ConditionFalse, "Unschedulable", "minCount (2) cannot be satisfied: 0 scheduled, 1 remaining; pod group preemption: found a placement for podgroup, preempting 2 victims")
		r.reap()
		r.havePlaces(map[string]int{"g": 2, "big": 0})
		r.get("low3")
		r.get("low4")
		var events []string
		for _, e := range r.take() {
			if strings.Contains(e, "Preempted") {
				events = append(events, strings.Fields(e)[2])
			}
		}
		if slices.Sort(events); !slices.Equal(events, []string{"low1:", "low2:"}) {
			t.Errorf("preempted: %q, want low1 and low2", events)
		}
		r.groupSaid("g", metav1.ConditionTrue, "Scheduled", "")
	})
}

func TestAGroupThatIsDisruptedAsAWholeGoesAsAWhole(t *testing.T) {
	for _, preemptor := range []string{"a gang", "a pod"} {
		t.Run(preemptor, func(t *testing.T) {
			withGroups(t, func(r *rig) {
				r.node("n1 cpu=2")
				r.node("n2 cpu=2")
				r.gang("low", 2, whole, ranked(1))
				r.members("low", 2, "cpu=2 prio=1")
				r.havePlaces(map[string]int{"low": 2})
				why := "default-scheduler: preempting to accommodate a higher priority pod"
				if preemptor == "a gang" {
					r.gang("g", 1, ranked(100))
					r.pod("g1 group=g cpu=2 prio=100")
					why += "group"
				} else {
					r.pod("g1 cpu=2 prio=100")
				}
				r.havePlaces(map[string]int{"low": 0})
				low, err := r.groups.Get(r.t.Context(), "default", "low")
				if err != nil {
					t.Fatal(err)
				}
				c := meta.FindStatusCondition(low.Status.Conditions, schedulingv1beta1.DisruptionTarget)
				if c == nil || c.Status != metav1.ConditionTrue || c.Reason != "PreemptionByScheduler" || c.Message != why {
					t.Errorf("the group's condition: got %+v, want %s", c, why)
				}
				r.reap()
				if r.get("g1").Spec.NodeName == "" {
					t.Error("the preemptor has no node")
				}
			})
		})
	}
}

// The priority of a group counts, and not that of its pods.
func TestNobodyPreemptsAGroupOfHigherPriority(t *testing.T) {
	withGroups(t, func(r *rig) {
		r.node("n1 cpu=2")
		r.gang("g", 1, ranked(100))
		r.pod("g1 group=g cpu=2 prio=1")
		r.pod("p cpu=2 prio=50")
		time.Sleep(time.Minute)
		r.where("g1", "n1")
		r.where("p", "")
	})
}

// What devices claims have does not depend on whom a gang evicts: those that it gets itself
// must not look taken.
func TestAGangThatClaimsDevicesPreemptsNoMoreThanItNeeds(t *testing.T) {
	withGroups(t, func(r *rig) {
		r.class("gpu", `{selectors: [{cel: {expression: 'device.driver == "d.io"'}}]}`)
		for i := range 4 {
			n := fmt.Sprintf("n%d", i+1)
			r.node(n + " cpu=2")
			r.slice(n, "[{name: g0}]")
			r.pod(fmt.Sprintf("low%d cpu=2 on=%s prio=1", i+1, n))
		}
		r.claims("a", "b")
		r.gang("g", 2, ranked(50))
		r.pod("g1 group=g cpu=2 prio=50 uses=a")
		r.pod("g2 group=g cpu=2 prio=50 uses=b")
		r.groupSaid("g", metav1.ConditionFalse, "Unschedulable", "minCount (2) cannot be satisfied: 0 scheduled, 1 remaining; pod group preemption: found a placement for podgroup, preempting 2 victims")
		r.reap()
		r.havePlaces(map[string]int{"g": 2})
		if n := r.boundPods(); n != 4 {
			t.Errorf("%d pods have a node, want two of the gang and two that it left alone", n)
		}
	})
}

func TestAGangHasAllItsDevicesOrNone(t *testing.T) {
	withGroups(t, func(r *rig) {
		r.class("gpu", `{selectors: [{cel: {expression: 'device.driver == "d.io"'}}]}`)
		r.node("n1 cpu=8")
		r.slice("n1", "[{name: g0}, {name: g1}]")
		r.claims("a", "b", "c", "d")
		r.gang("g", 3)
		for i, claim := range []string{"a", "b", "c"} {
			r.pod(fmt.Sprintf("g%d group=g cpu=1 uses=%s", i+1, claim))
		}
		r.groupSaid("g", metav1.ConditionFalse, "Unschedulable", "minCount (3) cannot be satisfied: 2 scheduled, 0 remaining; pod group preemption: No preemption victims found for incoming preemptor")
		for _, claim := range []string{"a", "b", "c"} {
			r.has(claim, "")
		}
		r.pod("p cpu=1 uses=d")
		r.where("p", "n1") // what the gang tried to take is free
		r.node("n2 cpu=8")
		r.slice("n2", "[{name: g0}, {name: g1}]")
		time.Sleep(time.Minute)
		r.havePlaces(map[string]int{"g": 3})
		checkDevices(r.t, r)
	})
}

func TestPodsOfAGangShareAClaim(t *testing.T) {
	withGroups(t, func(r *rig) {
		r.class("gpu", `{selectors: [{cel: {expression: 'device.driver == "d.io"'}}]}`)
		for _, n := range []string{"n1", "n2", "n3"} {
			r.node(n + " cpu=8")
		}
		r.slice("n2", "[{name: g0}]")
		r.claims("a", "b")
		r.gang("g", 3)
		r.pod("g1 group=g cpu=1 uses=a")
		r.pod("g2 group=g cpu=1 uses=a")
		r.pod("g3 group=g cpu=1 uses=a,b")
		r.groupSaid("g", metav1.ConditionFalse, "Unschedulable", "minCount (3) cannot be satisfied: 2 scheduled, 0 remaining; pod group preemption: No preemption victims found for incoming preemptor")
		r.has("a", "")
		r.slice("n3", "[{name: g0}]") // of no use: all must be where a is
		time.Sleep(time.Minute)
		r.has("a", "")
		s := client.For(r.admin, dra.ResourceSlices)
		if err := s.Delete(r.t.Context(), "", "n3", metav1.DeleteOptions{}); err != nil {
			r.t.Fatal(err)
		}
		made(r, dra.ResourceSlices, "{metadata: {name: more}, spec: {driver: d.io, nodeName: n2, pool: {name: more, generation: 1, resourceSliceCount: 1}, devices: [{name: g1}]}}")
		time.Sleep(time.Minute)
		r.havePlaces(map[string]int{"g": 3})
		for _, p := range []string{"g1", "g2", "g3"} {
			r.where(p, "n2")
		}
		users := []string{"g1", "g2", "g3"}
		if c := r.getClaim("a"); len(c.Status.ReservedFor) != len(users) {
			r.t.Errorf("claim a is reserved for %v, want %v", c.Status.ReservedFor, users)
		}
		checkDevices(r.t, r)
	})
}

// TestAGangThatSharesAClaimGoesOnWhereASchedulerDied kills the scheduler before each of its writes in turn.
func TestAGangThatSharesAClaimGoesOnWhereASchedulerDied(t *testing.T) {
	for at := range 12 {
		t.Run(fmt.Sprint(at), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t)
				r.class("gpu", "{}")
				r.node("n1 cpu=4")
				r.slice("n1", "[{name: g0}]")
				r.claims("a")
				r.gang("g", 3)
				for i := range 3 {
					r.create(fmt.Sprintf("g%d group=g cpu=1 uses=a", i))
				}
				r.dyingAt(at, Options{PodGroups: true})
				for i := range 3 {
					r.where(fmt.Sprint("g", i), "n1")
				}
				r.has("a", "n1/g0", "g0", "g1", "g2")
				checkDevices(t, r)
			})
		})
	}
}

func TestNeverGivesADeviceTwiceToGangs(t *testing.T) {
	for seed := range uint64(25) {
		for each, name := range map[int]string{1: "", 2: " shared"} { // pods a claim
			t.Run(fmt.Sprint(seed, name), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					raceForDevices(t, seed, Options{PodGroups: true}, func(r *rig) int {
						for i := range 12 {
							if i%3 == 0 {
								r.gang(fmt.Sprint("g", i/3), 3)
							}
							if i%each == 0 {
								r.claims(fmt.Sprint("c", i/each))
							}
							r.create(fmt.Sprintf("p%d cpu=1 group=g%d uses=c%d", i, i/3, i/each))
						}
						return 12
					})
				})
			})
		}
	}
}

// A pod of a gang may be alike a pod that goes alone; what was found about that is not said of it.
func TestAGangIsDecidedForItselfAlthoughPodsLikeItsOwnFitNowhere(t *testing.T) {
	withGroups(t, func(r *rig) {
		r.node("n1 cpu=2")
		r.pod("full cpu=2 on=n1")
		r.gang("g", 2)
		for i := range 3 {
			r.pod(fmt.Sprintf("p%d cpu=2", i+1))
		}
		r.members("g", 2, "cpu=2")
		r.groupSaid("g", metav1.ConditionFalse, "Unschedulable", "minCount (2) cannot be satisfied: 0 scheduled, 1 remaining; pod group preemption: No preemption victims found for incoming preemptor")
		for _, name := range []string{"g1", "p4"} {
			if name == "p4" {
				r.pod("p4 cpu=2")
			}
			want := "0/1 nodes are available: 1 Insufficient cpu."
			if name == "p4" {
				want += " preemption: 0/1 nodes are available: 1 No preemption victims found for incoming pod."
			}
			if c := core.PodCondition(&r.get(name).Status, corev1.PodScheduled); c == nil || c.Message != want {
				t.Errorf("condition of %s: got %v, want %q", name, c, want)
			}
		}
		r.delete("full")
		r.node("n2 cpu=2")
		for i := range 3 {
			r.delete(fmt.Sprintf("p%d", i+1))
		}
		r.delete("p4")
		time.Sleep(time.Minute)
		r.havePlaces(map[string]int{"g": 2})
	})
}

// TestGangsNeverHoldHalfOfTheRoomEach has gangs compete for room that is enough for some of
// them, with bindings that fail and pods that go: none is ever partly placed for long, and in
// the end as many as fit are there as a whole. Where schedulers end in the middle of it, another
// gang may come first to the room that one has begun to take; but then that one runs.
func TestGangsNeverHoldHalfOfTheRoomEach(t *testing.T) {
	for _, crashes := range []bool{false, true} {
		for seed := range uint64(40) {
			t.Run(fmt.Sprintf("crashes %t seed %d", crashes, seed), func(t *testing.T) {
				withGroups(t, func(r *rig) { compete(r, rand.New(rand.NewPCG(seed, 7)), crashes) })
			})
			t.Run(fmt.Sprintf("crashes %t helper seed %d", crashes, seed), func(t *testing.T) {
				chance := rand.New(rand.NewPCG(seed, 8))
				h := doing(does{filter: all, takes: 10 * time.Millisecond, broken: func(string) error { // one is asked at a time
					if chance.IntN(8) == 0 {
						return errors.New("out of order")
					}
					return nil
				}})
				withHelpedGroups(t, h, "filterVerb: filter", func(r *rig) { compete(r, rand.New(rand.NewPCG(seed, 9)), crashes) })
			})
		}
	}
}

func compete(r *rig, rng *rand.Rand, crashes bool) {
	nodes := 2 + rng.IntN(3)
	for i := range nodes {
		r.node(fmt.Sprintf("n%d cpu=%d", i, 1+rng.IntN(4)))
	}
	sizes := map[string]int{}
	var names []string
	for i := range 2 + rng.IntN(4) {
		name := fmt.Sprint("g", string(rune('a'+i)))
		names, sizes[name] = append(names, name), 1+rng.IntN(5)
		r.gang(name, int32(sizes[name]))
	}
	var chance struct {
		sync.Mutex
		*rand.Rand
	}
	chance.Rand = rand.New(rand.NewPCG(rng.Uint64(), 1))
	r.onBinding(func(*client.Request) error {
		chance.Lock()
		slow, fails := crashes && chance.IntN(5) == 0, chance.IntN(4) == 0
		chance.Unlock()
		if slow { // so that only some of a gang's are sent before the end
			time.Sleep(time.Minute)
		}
		if fails {
			return errors.New("no")
		}
		return nil
	})
	for i := range 5 { // the pods of all come in turn
		for _, name := range names {
			if i < sizes[name] {
				r.create(fmt.Sprintf("%s%d group=%s cpu=1", name, i, name))
			}
		}
		time.Sleep(time.Duration(rng.IntN(1500)) * time.Millisecond)
		if crashes && rng.IntN(2) == 0 {
			r.restart()
		}
	}
	for range names {
		time.Sleep(10 * time.Minute)
		synctest.Wait()
		running, part, left := "", "", false
		for _, name := range names {
			switch n := r.placed(name); {
			case n != 0 && n < sizes[name]:
				part = fmt.Sprintf("%s has %d of %d pods placed", name, n, sizes[name])
			case n > 0:
				running = name
			case sizes[name] > 0:
				left = true
			}
		}
		if part != "" && (!crashes || running == "") {
			r.t.Error(part)
		}
		if running == "" {
			if left && !r.tooLarge(names, sizes) {
				r.t.Error("no gang is placed, although one would fit")
			}
			return
		}
		for i := range sizes[running] { // it is done: its room is for the others
			r.delete(fmt.Sprint(running, i))
		}
		sizes[running] = 0
	}
}

// tooLarge says that all gangs that are left are larger than the cluster.
func (r *rig) tooLarge(names []string, sizes map[string]int) bool {
	r.t.Helper()
	list, err := r.nodes.List(r.t.Context(), "", metav1.ListOptions{})
	if err != nil {
		r.t.Fatal(err)
	}
	room := 0
	for _, n := range list {
		cpu := n.Status.Allocatable[corev1.ResourceCPU]
		room += int(cpu.Value())
	}
	return !slices.ContainsFunc(names, func(name string) bool { return sizes[name] > 0 && sizes[name] <= room })
}

func TestPodsOfAGroupAreOrdinaryWhereGroupsAreNotServed(t *testing.T) {
	inCluster(t, func(r *rig) {
		r.node("n1 cpu=1")
		r.pod("p cpu=1 group=none")
		r.where("p", "n1")
	})
}

func BenchmarkGang(b *testing.B) {
	for _, key := range []string{"", "rack"} {
		b.Run("key="+key, func(b *testing.B) {
			snap := snapshot.New(nil)
			for i := range 5000 {
				snap.SetNode(parseNode(split(fmt.Sprintf("n%d cpu=8 rack=r%d", i, i/50))))
			}
			c := newCycle(snap)
			g := &gang{least: 100, key: key}
			for i := range 100 {
				p := parsePod(split(fmt.Sprintf("p%d cpu=2", i)))
				p.Spec.Priority = ptr.To[int32](0)
				g.pods = append(g.pods, snap.NewPod(p))
			}
			b.ReportAllocs()
			for b.Loop() {
				if d := c.gang(g, &plainTrial{snap, g.pods}); d.message != "" {
					b.Fatal(d.message)
				}
			}
			b.ReportMetric(float64(100*b.N)/b.Elapsed().Seconds(), "pods/s")
		})
	}
}
