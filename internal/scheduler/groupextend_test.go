package scheduler

import (
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	schedulingv1beta1 "k8s.io/api/scheduling/v1beta1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	extenderv1 "k8s.io/kube-scheduler/extender/v1"

	"github.com/kemudi/kemudi/internal/api/core"
)

func withHelpedGroups(t *testing.T, h *helper, fields string, test func(r *rig)) {
	withHelperBy(t, h, Options{PodGroups: true}, fields, test)
}

func TestExtendersHaveASayInWhereAGangGoes(t *testing.T) {
	h := doing(does{filter: only("n2")})
	withHelpedGroups(t, h, "filterVerb: filter", func(r *rig) {
		r.node("n1 cpu=4")
		r.node("n2 cpu=2")
		r.gang("g", 2)
		r.members("g", 2, "cpu=1")
		r.havePlaces(map[string]int{"g": 2})
		r.where("g1", "n2")
		r.where("g2", "n2")
		if got, want := h.asked(), []string{"filter", "filter"}; !slices.Equal(got, want) {
			t.Errorf("asked %v, want %v: each pod once", got, want)
		}

		// What they leave is not enough for all of another one.
		r.gang("h", 2)
		r.members("h", 2, "cpu=1")
		r.groupSaid("h", metav1.ConditionFalse, "Unschedulable", "minCount (2) cannot be satisfied: 0 scheduled, 1 remaining; pod group preemption: No preemption victims found for incoming preemptor")
		why := "0/2 nodes are available: 1 Insufficient cpu, 1 not to the helper's taste."
		if c := core.PodCondition(&r.get("h1").Status, corev1.PodScheduled); c == nil || c.Message != why {
			t.Errorf("condition of h1: got %+v, want %s", c, why)
		}
		h.change(func(d *does) { d.filter = all })
		r.pod("other cpu=1m on=n2") // any event may help
		time.Sleep(time.Minute)
		synctest.Wait()
		r.where("h1", "n1")
		r.where("h2", "n1")
	})
}

func TestAnExtendersPrioritiesCountForAGang(t *testing.T) {
	h := doing(does{prioritize: func(a *extenderv1.ExtenderArgs) (list extenderv1.HostPriorityList) {
		for _, n := range *a.NodeNames {
			score := int64(0)
			if n == "n1" {
				score = 10
			}
			list = append(list, extenderv1.HostPriority{Host: n, Score: score})
		}
		return list
	}})
	withHelpedGroups(t, h, "prioritizeVerb: prioritize, weight: 100", func(r *rig) {
		for _, n := range []string{"n1", "n2", "n3"} {
			r.node(n + " cpu=4")
		}
		r.gang("g", 3)
		r.members("g", 3, "cpu=1")
		for _, p := range []string{"g1", "g2", "g3"} {
			r.where(p, "n1")
		}
	})
}

func TestAGangFailsWithItsExtender(t *testing.T) {
	h := doing(does{filter: all, broken: func(string) error { return errors.New("out of order") }})
	withHelpedGroups(t, h, "filterVerb: filter", func(r *rig) {
		r.node("n1 cpu=4")
		r.gang("g", 2)
		r.members("g", 2, "cpu=1")
		g, err := r.groups.Get(r.t.Context(), "default", "g")
		if err != nil {
			t.Fatal(err)
		}
		if c := g.Status.Conditions; len(c) != 1 || c[0].Reason != schedulingv1beta1.PodGroupReasonSchedulerError {
			t.Errorf("got %+v, want reason SchedulerError", c)
		}
		h.change(func(d *does) { d.broken = nil })
		time.Sleep(time.Minute)
		synctest.Wait()
		r.havePlaces(map[string]int{"g": 2})
	})
}

// A gang that must stay together asks about the nodes of each domain.
func TestExtendersAreAskedAboutEachDomainOfAGang(t *testing.T) {
	h := doing(does{filter: only("b1")})
	withHelpedGroups(t, h, "filterVerb: filter", func(r *rig) {
		r.node("a1 cpu=9 rack=a")
		r.node("b1 cpu=2 rack=b")
		r.gang("g", 2, within("rack"))
		r.members("g", 2, "cpu=1")
		r.where("g1", "b1")
		r.where("g2", "b1")
	})
}

// While extenders are slow, pods that they have no say in do not wait, and pods that come
// and go are heeded.
func TestAGangThatChangesWhileExtendersAreAsked(t *testing.T) {
	h := doing(does{filter: all, takes: time.Second})
	withHelpedGroups(t, h, "filterVerb: filter, managedResources: [{name: example.com/foo}]", func(r *rig) {
		r.node("n1 cpu=4 res:example.com/foo=2")
		r.gang("g", 2)
		r.members("g", 2, "res:example.com/foo=1")
		r.pod("p cpu=1")
		r.where("p", "n1")
		r.where("g1", "")
		r.delete("g1")
		time.Sleep(time.Minute)
		synctest.Wait()
		r.havePlaces(map[string]int{"g": 0})
		r.pod("g3 group=g res:example.com/foo=1")
		time.Sleep(time.Minute)
		synctest.Wait()
		r.where("g2", "n1")
		r.where("g3", "n1")
	})
}
