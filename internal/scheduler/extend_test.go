package scheduler

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	extenderv1 "k8s.io/kube-scheduler/extender/v1"
)

// helper is an extender in the same process: it serves what its functions say.
type helper struct {
	mu struct {
		sync.Mutex
		calls []string
		does
	}
}

// does is what a helper answers, and how.
type does struct {
	filter     func(a *extenderv1.ExtenderArgs) *extenderv1.ExtenderFilterResult
	prioritize func(a *extenderv1.ExtenderArgs) extenderv1.HostPriorityList
	bind       func(a *extenderv1.ExtenderBindingArgs) *extenderv1.ExtenderBindingResult
	preempt    func(a *extenderv1.ExtenderPreemptionArgs) *extenderv1.ExtenderPreemptionResult
	broken     func(verb string) error
	takes      time.Duration
}

var _ http.RoundTripper = (*helper)(nil)

func (h *helper) RoundTrip(r *http.Request) (*http.Response, error) {
	verb := r.URL.Path[1:]
	h.mu.Lock()
	h.mu.calls = append(h.mu.calls, verb)
	d := h.mu.does
	h.mu.Unlock()
	select {
	case <-time.After(d.takes):
	case <-r.Context().Done():
		return nil, r.Context().Err()
	}
	if d.broken != nil {
		if err := d.broken(verb); err != nil {
			return nil, err
		}
	}
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return nil, err
	}
	var answer any
	switch verb {
	case "filter":
		answer = served(body, d.filter)
	case "prioritize":
		answer = served(body, d.prioritize)
	case "bind":
		answer = served(body, d.bind)
	case "preempt":
		answer = served(body, d.preempt)
	}
	data, err := json.Marshal(answer)
	return &http.Response{StatusCode: http.StatusOK, Body: io.NopCloser(bytes.NewReader(data))}, err
}

func served[A, R any](body []byte, f func(a *A) R) any {
	var a A
	if err := json.Unmarshal(body, &a); err != nil {
		return err.Error()
	}
	return f(&a)
}

// doing is a helper that does so.
func doing(d does) *helper {
	h := &helper{}
	h.change(func(mine *does) { *mine = d })
	return h
}

// change changes what it does.
func (h *helper) change(f func(d *does)) {
	h.mu.Lock()
	defer h.mu.Unlock()
	f(&h.mu.does)
}

// asked are the calls since the last time.
func (h *helper) asked() []string {
	h.mu.Lock()
	defer h.mu.Unlock()
	calls := h.mu.calls
	h.mu.calls = nil
	return calls
}

// withHelper runs a test with an extender.
func withHelper(t *testing.T, h *helper, fields string, test func(r *rig)) {
	withHelperBy(t, h, Options{}, fields, test)
}

// withHelperBy runs a test with an extender and a scheduler that has these options besides its own.
func withHelperBy(t *testing.T, h *helper, o Options, fields string, test func(r *rig)) {
	o.Config = configured(t, "extenders: [{urlPrefix: http://helper, nodeCacheCapable: true, "+fields+"}]")
	o.Config.Extenders[0].Client.Transport = h
	inClusterBy(t, o, nil, test)
}

// all passes all nodes.
func all(a *extenderv1.ExtenderArgs) *extenderv1.ExtenderFilterResult {
	return &extenderv1.ExtenderFilterResult{NodeNames: a.NodeNames}
}

// only passes one node.
func only(name string) func(a *extenderv1.ExtenderArgs) *extenderv1.ExtenderFilterResult {
	return func(a *extenderv1.ExtenderArgs) *extenderv1.ExtenderFilterResult {
		r := &extenderv1.ExtenderFilterResult{NodeNames: &[]string{}, FailedNodes: map[string]string{}}
		for _, n := range *a.NodeNames {
			if n == name {
				*r.NodeNames = append(*r.NodeNames, n)
			} else {
				r.FailedNodes[n] = "not to the helper's taste"
			}
		}
		return r
	}
}

func TestAnExtenderRefusesNodes(t *testing.T) {
	h := doing(does{filter: only("n2")})
	withHelper(t, h, "filterVerb: filter", func(r *rig) {
		r.node("n1 cpu=4")
		r.node("n2 cpu=1")
		r.pod("p cpu=1")
		r.where("p", "n2")
		r.take()
		r.pod("q cpu=1")
		why := "0/2 nodes are available: 1 Insufficient cpu, 1 not to the helper's taste. preemption: 0/2 nodes are available: 2 No preemption victims found for incoming pod."
		r.said("q", refused(why), "Warning FailedScheduling q: "+why)
		h.change(func(d *does) { d.filter = only("n1") })
		r.pod("other cpu=1m on=n2") // any event may help
		time.Sleep(10 * time.Second)
		synctest.Wait()
		r.where("q", "n1")
	})
}

func TestAnExtendersPrioritiesCount(t *testing.T) {
	h := doing(does{prioritize: func(a *extenderv1.ExtenderArgs) (list extenderv1.HostPriorityList) {
		for _, n := range *a.NodeNames {
			score := int64(0)
			if n == "n2" {
				score = 10
			}
			list = append(list, extenderv1.HostPriority{Host: n, Score: score})
		}
		return list
	}})
	withHelper(t, h, "prioritizeVerb: prioritize, weight: 20", func(r *rig) {
		r.node("n1 cpu=8")
		r.node("n2 cpu=2")
		r.pod("p cpu=1")
		r.where("p", "n2")
		h.change(func(d *does) { d.broken = func(string) error { return errors.New("boom") } }) // its opinion is not needed
		r.pod("q cpu=1")
		r.where("q", "n1")
	})
}

func TestAnExtenderBinds(t *testing.T) {
	h := &helper{}
	withHelper(t, h, "bindVerb: bind", func(r *rig) {
		bind := func(a *extenderv1.ExtenderBindingArgs) *extenderv1.ExtenderBindingResult {
			if a.PodName == "bad" {
				return &extenderv1.ExtenderBindingResult{Error: "will not"}
			}
			_, err := r.pods.Post(r.t.Context(), a.PodNamespace, a.PodName, "binding", &corev1.Binding{Target: corev1.ObjectReference{Kind: "Node", Name: a.Node}})
			if err != nil {
				return &extenderv1.ExtenderBindingResult{Error: err.Error()}
			}
			return &extenderv1.ExtenderBindingResult{}
		}
		h.change(func(d *does) { d.bind = bind })
		r.node("n1")
		r.pod("p")
		r.where("p", "n1")
		r.take()
		r.pod("bad")
		r.where("bad", "")
		why := "binding rejected: will not"
		r.said("bad", corev1.PodCondition{Status: corev1.ConditionFalse, Reason: corev1.PodReasonSchedulerError, Message: why}, "Warning FailedScheduling bad: "+why)
		if slices.ContainsFunc(r.called(), func(c string) bool { return strings.Contains(c, "binding") }) {
			t.Error("the scheduler bound a pod itself")
		}
	})
}

func TestAPodWaitsForAnExtenderThatFailsUnlessItCanBeIgnored(t *testing.T) {
	for _, ignorable := range []bool{false, true} {
		t.Run(fmt.Sprint(ignorable), func(t *testing.T) {
			h := doing(does{filter: only("n2"), broken: func(string) error { return errors.New("boom") }})
			withHelper(t, h, fmt.Sprintf("filterVerb: filter, bindVerb: bind, ignorable: %t", ignorable), func(r *rig) {
				r.node("n1 cpu=1")
				r.pod("p cpu=1")
				if ignorable {
					r.where("p", "n1")
					return
				}
				r.where("p", "")
				why := `Post "http://helper/filter": boom`
				r.said("p", corev1.PodCondition{Status: corev1.ConditionFalse, Reason: corev1.PodReasonSchedulerError, Message: why}, "Warning FailedScheduling p: "+why)
				r.node("n2 cpu=1")
				h.change(func(d *does) {
					d.broken = func(verb string) error {
						if verb == "bind" {
							return errors.New("boom")
						}
						return nil
					}
				})
				time.Sleep(time.Minute)
				synctest.Wait()
				r.where("p", "") // found a node, but nobody binds it
				if r.attempts("error") < 3 {
					t.Errorf("%d attempts with an error, want more", r.attempts("error"))
				}
			})
		})
	}
}

// A slow extender holds up those who depend on it, one at a time, and nobody else.
func TestASlowExtenderHoldsUpOnlyThoseWhoNeedIt(t *testing.T) {
	h := doing(does{filter: only("n1"), takes: 3 * time.Second})
	withHelper(t, h, "filterVerb: filter, managedResources: [{name: example.com/gpu, ignoredByScheduler: true}]", func(r *rig) {
		r.node("n1")
		r.node("n2")
		r.pod("low res:example.com/gpu=1")
		r.create("a res:example.com/gpu=1")
		r.create("b res:example.com/gpu=1 prio=5")
		r.pod("plain cpu=1")
		if r.get("plain").Spec.NodeName == "" {
			t.Error("a pod waits for an extender that is not asked about it")
		}
		synctest.Wait()
		if got := h.asked(); len(got) != 1 {
			t.Errorf("asked %q, want one call at a time", got)
		}
		time.Sleep(3 * time.Second)
		synctest.Wait()
		r.where("low", "n1")
		time.Sleep(3 * time.Second)
		synctest.Wait()
		r.where("b", "n1") // the more important one first
		r.where("a", "")
		time.Sleep(3 * time.Second)
		synctest.Wait()
		r.where("a", "n1")

		h.change(func(d *does) { d.takes = 7 * time.Second }) // longer than its time
		r.take()
		r.pod("late res:example.com/gpu=1")
		time.Sleep(5 * time.Second)
		synctest.Wait()
		c := r.get("late").Status.Conditions
		if len(c) == 0 || !strings.Contains(c[0].Message, "context deadline exceeded") {
			t.Errorf("got %v, want a timeout", c)
		}
	})
}

// What happened while the extender thought about it counts.
func TestAnAnswerIsHeldAgainstTheClusterAsItIsThen(t *testing.T) {
	h := doing(does{filter: only("n1"), takes: 2 * time.Second})
	withHelper(t, h, "filterVerb: filter", func(r *rig) {
		r.node("n1 cpu=1")
		r.pod("p cpu=1")
		r.pod("gone cpu=1")
		r.pod("first cpu=1 on=n1")
		r.delete("gone")
		time.Sleep(time.Minute)
		synctest.Wait()
		r.where("p", "")
		r.delete("first")
		time.Sleep(time.Minute)
		synctest.Wait()
		r.where("p", "n1")
	})
}

func TestAnExtenderChoosesWhomToPreempt(t *testing.T) {
	h := doing(does{preempt: func(a *extenderv1.ExtenderPreemptionArgs) *extenderv1.ExtenderPreemptionResult {
		return &extenderv1.ExtenderPreemptionResult{NodeNameToMetaVictims: map[string]*extenderv1.MetaVictims{"n2": a.NodeNameToMetaVictims["n2"]}}
	}})
	withHelper(t, h, "preemptVerb: preempt", func(r *rig) {
		r.node("n1 cpu=1")
		r.node("n2 cpu=1")
		r.pod("a cpu=1 prio=1 select=kubernetes.io/hostname=n1")
		r.pod("b cpu=1 prio=2 select=kubernetes.io/hostname=n2")
		r.take()
		r.pod("p cpu=1 prio=10")
		if got := r.get("p").Status.NominatedNodeName; got != "n2" {
			t.Errorf("nominated %q, want n2: the extender said so", got)
		}
		if _, err := r.pods.Get(r.t.Context(), "default", "a"); err != nil {
			t.Errorf("a: %v", err)
		}
	})
}

func TestVictimsThatAreNoneAreAnError(t *testing.T) {
	for name, tc := range map[string]struct {
		answer map[string]*extenderv1.MetaVictims
		want   string
	}{
		"nobody":           {map[string]*extenderv1.MetaVictims{"n1": {}}, `expected at least one victim pod on node "n1"`},
		"who is not there": {map[string]*extenderv1.MetaVictims{"n1": {Pods: []*extenderv1.MetaPod{{UID: "x"}}}}, "the pod is not found on that node"},
		"null":             {map[string]*extenderv1.MetaVictims{"n1": {Pods: []*extenderv1.MetaPod{nil}}}, "names a victim that is null"},
		"another node":     {map[string]*extenderv1.MetaVictims{"n9": {Pods: []*extenderv1.MetaPod{{UID: "x"}}}}, "which was not a candidate"},
	} {
		t.Run(name, func(t *testing.T) {
			h := doing(does{preempt: func(*extenderv1.ExtenderPreemptionArgs) *extenderv1.ExtenderPreemptionResult {
				return &extenderv1.ExtenderPreemptionResult{NodeNameToMetaVictims: tc.answer}
			}})
			withHelper(t, h, "preemptVerb: preempt", func(r *rig) {
				r.node("n1 cpu=1")
				r.pod("a cpu=1 prio=1")
				r.pod("p cpu=1 prio=10")
				c := r.get("p").Status.Conditions
				if len(c) == 0 || c[0].Reason != corev1.PodReasonSchedulerError || !strings.Contains(c[0].Message, tc.want) {
					t.Errorf("got %v, want %s", c, tc.want)
				}
				r.where("a", "n1")
			})
		})
	}
}

func TestNobodyMakesRoomOnANodeThatAnExtenderRefuses(t *testing.T) {
	withHelper(t, doing(does{filter: only("n2")}), "filterVerb: filter", func(r *rig) {
		r.node("n1 cpu=4")
		r.pod("low cpu=1 prio=1 on=n1")
		r.take()
		r.pod("p cpu=1 prio=10")
		why := "0/1 nodes are available: 1 not to the helper's taste. preemption: 0/1 nodes are available: 1 No preemption victims found for incoming pod."
		r.said("p", refused(why), "Warning FailedScheduling p: "+why)
		if got := r.get("p").Status.NominatedNodeName; got != "" {
			t.Errorf("nominated %q, want none", got)
		}
	})
}
