package scheduler

import (
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// TestWhoLosesItsPlaceLetsThoseInThatItKeptOut: by an attempt that fails, or because somebody says so.
func TestWhoLosesItsPlaceLetsThoseInThatItKeptOut(t *testing.T) {
	for name, lose := range map[string]func(r *rig){
		"it fits nowhere, and is told so anew": func(r *rig) { r.node("n3 mem=1 disk=ssd") },
		"somebody else takes its name away":    func(r *rig) { r.patch("held", "status", `{"status":{"nominatedNodeName":null}}`) },
		"it is bound elsewhere":                func(r *rig) { r.patchNode("n2", "", `{"metadata":{"labels":{"disk":"ssd"}}}`) },
		"it goes":                              func(r *rig) { r.delete("held") },
	} {
		t.Run(name, func(t *testing.T) {
			inCluster(t, func(r *rig) {
				r.node("n1 mem=32")
				r.node("n2 mem=25")
				r.pod("held mem=25 prio=200 select=disk=ssd")
				r.patch("held", "status", `{"status":{"nominatedNodeName":"n1"}}`)
				r.pod("low mem=20 prio=100 select=kubernetes.io/hostname=n1")
				r.where("low", "")
				lose(r)
				time.Sleep(10 * time.Second)
				synctest.Wait()
				r.where("low", "n1")
			})
		})
	}
}

// TestAPodForWhichOthersHaveGoneInVainGivesUpItsPlace: somebody more important was faster.
func TestAPodForWhichOthersHaveGoneInVainGivesUpItsPlace(t *testing.T) {
	inCluster(t, func(r *rig) {
		r.node("n1 mem=32")
		r.pod("low mem=20 prio=100")
		r.pod("mid mem=25 prio=200")
		if got := r.get("mid").Status.NominatedNodeName; got != "n1" {
			r.t.Fatalf("nominated %q, want n1", got)
		}
		r.pod("high mem=10 prio=300")
		r.where("high", "n1")
		r.pod("next mem=20 prio=100")
		r.delete("low")
		time.Sleep(10 * time.Second)
		synctest.Wait()
		r.where("next", "n1")
		if got := r.get("mid").Status.NominatedNodeName; got != "" {
			r.t.Errorf("nominated %q, want none", got)
		}
	})
}

func TestAPodIsPromisedNothingWhereThereIsNoNode(t *testing.T) {
	inCluster(t, func(r *rig) {
		r.node("n1 cpu=1")
		r.pod("low cpu=1 prio=1")
		r.pod("p cpu=1 prio=10")
		if got := r.get("p").Status.NominatedNodeName; got != "n1" {
			r.t.Fatalf("nominated %q, want n1", got)
		}
		if err := r.nodes.Delete(r.t.Context(), "", "n1", metav1.DeleteOptions{}); err != nil {
			r.t.Fatal(err)
		}
		time.Sleep(10 * time.Second)
		synctest.Wait()
		if got := r.get("p").Status.NominatedNodeName; got != "" {
			r.t.Errorf("nominated %q, want none", got)
		}
		r.take()
		r.said("p", refused("no nodes available to schedule pods"))
	})
}

// TestAPodLooksElsewhereWhenItsNodeBecomesTooSmall: it does not wait for those who leave it.
func TestAPodLooksElsewhereWhenItsNodeBecomesTooSmall(t *testing.T) {
	inCluster(t, func(r *rig) {
		r.node("n1 cpu=4")
		r.node("n2 cpu=4")
		r.pod("a cpu=4 prio=1 select=kubernetes.io/hostname=n1")
		r.pod("b cpu=4 prio=2 select=kubernetes.io/hostname=n2")
		r.pod("p cpu=4 prio=10")
		if got := r.get("p").Status.NominatedNodeName; got != "n1" {
			r.t.Fatalf("nominated %q, want n1", got)
		}
		r.patchNode("n1", "status", `{"status":{"allocatable":{"cpu":"2"}}}`)
		time.Sleep(10 * time.Second)
		synctest.Wait()
		if got := r.get("p").Status.NominatedNodeName; got != "n2" || r.get("b").DeletionTimestamp == nil {
			r.t.Errorf("nominated %q, the pod there goes at %v: want n2, and that it goes", got, r.get("b").DeletionTimestamp)
		}
	})
}

// TestMakesRoomAsSoonAsThatHelps: what happened is not enough for the pod, but enough that others could make room.
func TestMakesRoomAsSoonAsThatHelps(t *testing.T) {
	for name, happens := range map[string]func(r *rig){
		"an equal leaves": func(r *rig) { r.delete("equal") },
		"the node grows":  func(r *rig) { r.patchNode("n1", "status", `{"status":{"allocatable":{"cpu":"6"}}}`) },
	} {
		t.Run(name, func(t *testing.T) {
			inCluster(t, func(r *rig) {
				r.node("n1 cpu=4")
				r.pod("low cpu=2 prio=1")
				r.pod("equal cpu=2 prio=10")
				r.pod("p cpu=4 prio=10")
				if r.get("low").DeletionTimestamp != nil {
					r.t.Fatal("a pod was preempted in vain")
				}
				happens(r)
				time.Sleep(10 * time.Second)
				synctest.Wait()
				if got := r.get("p").Status.NominatedNodeName; got != "n1" || r.get("low").DeletionTimestamp == nil {
					r.t.Errorf("nominated %q, and the less important pod goes at %v: want n1, and that it goes", got, r.get("low").DeletionTimestamp)
				}
				r.delete("low")
				r.where("p", "n1")
			})
		})
	}
}

// TestAVictimThatIsNotBoundYetIsNotDeleted: it looks for another place.
func TestAVictimThatIsNotBoundYetIsNotDeleted(t *testing.T) {
	for _, how := range []string{"permit-a=9", "ready-a=9", "work-a=10"} {
		t.Run(how, func(t *testing.T) {
			both, _ := probes()
			inClusterWith(t, both, func(r *rig) {
				r.node("n1 cpu=1")
				r.pod("low cpu=1 prio=1 " + how)
				r.where("low", "")
				r.take()
				high := r.pod("high cpu=1 prio=10")
				told := fmt.Sprintf("Normal Preempted low: Preempted by pod %s on node n1 (in kube-scheduler memory).", high.UID)
				if events := r.take(); !slices.Contains(events, told) || !slices.Contains(events, "Warning FailedScheduling low: preempted by DefaultPreemption") {
					r.t.Errorf("events: got %q, want among them %q", events, told)
				}
				time.Sleep(2 * time.Second)
				synctest.Wait()
				r.where("high", "n1")
				time.Sleep(20 * time.Second) // what it does beside the scheduler is not broken off
				synctest.Wait()
				if p := r.get("low"); p.DeletionTimestamp != nil || len(p.Status.Conditions) != 1 || p.Status.NominatedNodeName != "" {
					r.t.Errorf("the victim goes at %v, conditions %v, nominated %q: want none but why it has no node", p.DeletionTimestamp, p.Status.Conditions, p.Status.NominatedNodeName)
				}
			})
		})
	}
}
