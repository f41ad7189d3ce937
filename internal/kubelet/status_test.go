package kubelet

import (
	"bytes"
	"errors"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kemudi/kemudi/internal/api/core"
	"github.com/kemudi/kemudi/internal/client"
	"github.com/kemudi/kemudi/internal/kubelet/fakecri"
	"github.com/kemudi/kemudi/internal/trace"
)

func TestStatusCatchesUpWithTheGenerationOfThePod(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		n := newNode(t, fakecri.Options{})
		defer func() { n.end() }()
		createPod(t, n.api, "web", `{initContainers: [{name: i, image: x, command: ["true"]}], containers: [{name: c, image: x}]}`)
		n.pod("web")
		change := func(f func(*v1.Pod)) {
			t.Helper()
			for {
				pod := getPod(t, n.api, "web").DeepCopy()
				f(pod)
				if _, err := pods(n.api).Update(t.Context(), pod); err == nil {
					return
				} else if !apierrors.IsConflict(err) { // the node writes too
					t.Fatal(err)
				}
			}
		}
		for i := range 499 {
			seconds := int64(5000 - i)
			change(func(pod *v1.Pod) {
				pod.Spec.ActiveDeadlineSeconds = &seconds
			})
		}
		trace.Proves(t, "C-287", "C-288", "C-289")
		observed := func(generation int64) *v1.Pod {
			t.Helper()
			p := n.pod("web")
			if p.Generation != generation || p.Status.ObservedGeneration != generation {
				t.Fatalf("generation: got %d, observed %d, want %d", p.Generation, p.Status.ObservedGeneration, generation)
			}
			for _, c := range p.Status.Conditions {
				if c.ObservedGeneration != generation {
					t.Errorf("condition %s: observed generation %d, want %d", c.Type, c.ObservedGeneration, generation)
				}
			}
			return p
		}
		observed(500)
		change(func(pod *v1.Pod) {
			pod.Spec.Containers[0].Image = "y"
		})
		if p := observed(501); p.Status.ContainerStatuses[0].RestartCount != 1 || p.Status.ContainerStatuses[0].Image != "y" {
			t.Errorf("after a change of the image: got %+v", p.Status.ContainerStatuses)
		}
		change(func(pod *v1.Pod) {
			pod.Spec.InitContainers[0].Image = "y"
		})
		if p := observed(502); p.Status.ContainerStatuses[0].RestartCount != 1 || p.Status.InitContainerStatuses[0].RestartCount != 0 {
			t.Errorf("after a change of an init container's image: got %+v", p.Status)
		}
	})
}

func TestDeletionThatConflictsIsTriedAgain(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		n := newNode(t, fakecri.Options{})
		defer func() { n.end() }()
		createPod(t, n.api, "web", `{containers: [{name: c, image: x}]}`)
		n.pod("web")
		var refused atomic.Bool
		n.api.RefuseWith(func(r *client.Request) error { // the agent's deletion, which is the last one
			if grace := r.Delete.GracePeriodSeconds; r.Verb == "delete" && grace != nil && *grace == 0 && refused.CompareAndSwap(false, true) {
				return apierrors.NewConflict(r.Def.GroupResource(), r.Name, errors.New("the object has been modified"))
			}
			return nil
		})
		deletePod(t, n.api, "web", 30)
		if p := n.after(5*time.Second, "web"); p != nil || !refused.Load() {
			t.Errorf("got %+v, refused %v, want no pod", p, refused.Load())
		}
	})
}

// goes deletes the pod.
func goes(n *testNode) error {
	now := int64(0)
	c := client.For(n.api.Transport, core.Pods)
	if err := c.Delete(n.t.Context(), "default", "web", metav1.DeleteOptions{GracePeriodSeconds: &now}); err != nil {
		return err
	}
	// From now on the server's cache knows it, which the authorizer asks.
	if _, err := c.Get(n.t.Context(), "default", "web"); !apierrors.IsNotFound(err) {
		n.t.Errorf("got %v, want it gone", err)
	}
	return nil
}

// forbidden refuses a look at the pod.
func forbidden(*testNode) error {
	return apierrors.NewForbidden(core.Pods.Def.GroupResource(), "web", errors.New("for a moment"))
}

// TestSecondLookAtAPodIsNotTheLast has another writer come before the node agent's
// request, so that it conflicts, and something happen before its look at what is there
// now. The agent is the user that it is in a cluster.
func TestSecondLookAtAPodIsNotTheLast(t *testing.T) {
	for _, tc := range []struct {
		name string
		verb string // the request that conflicts
		look func(*testNode) error
		want v1.PodPhase // empty: it is gone
	}{
		{"a status, and the pod goes", "update", goes, ""},
		{"a status, and the look is forbidden for a moment", "update", forbidden, v1.PodRunning},
		{"a deletion, and the pod goes", "delete", goes, ""},
		{"a deletion, and the look is forbidden for a moment", "delete", forbidden, ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			inBubble(t, func(t *testing.T) {
				var log bytes.Buffer
				n := &testNode{t: t, api: newMemAPI(t), cri: fakecri.New(fakecri.Options{})}
				n.with = func(o *Options) {
					o.Transport, o.Log = n.api.AsNode("n1"), slog.New(slog.NewTextHandler(&log, nil))
				}
				n.run()
				defer func() { n.end() }()
				undisturbed := client.For(n.api.Transport, core.Pods)
				if tc.verb == "delete" {
					createPod(t, n.api, "web", `{containers: [{name: c, image: x}]}`)
					n.pod("web")
				}
				var conflicts, looks int
				n.api.RefuseWith(func(r *client.Request) error {
					switch {
					case r.Def != core.Pods.Def:
					case r.Verb == tc.verb && conflicts == 0:
						conflicts++
						return apierrors.NewConflict(r.Def.GroupResource(), r.Name, errors.New("the object has been modified"))
					case r.Verb == "get" && conflicts == 1 && looks == 0:
						looks++
						return tc.look(n)
					}
					return nil
				})
				if tc.verb == "delete" {
					grace := int64(1)
					if err := undisturbed.Delete(t.Context(), "default", "web", metav1.DeleteOptions{GracePeriodSeconds: &grace}); err != nil {
						t.Fatal(err)
					}
				} else {
					createPod(t, n.api, "web", `{containers: [{name: c, image: x}]}`)
				}
				time.Sleep(10 * time.Second)
				synctest.Wait()
				var got v1.PodPhase
				if pod, err := undisturbed.Get(t.Context(), "default", "web"); err == nil {
					got = pod.Status.Phase
				}
				if got != tc.want || looks != 1 {
					t.Errorf("got phase %q after %d looks, want %q after one", got, looks, tc.want)
				}
				if _, err := client.For(n.api.AsNode("n1"), core.Pods).Get(t.Context(), "default", "web"); tc.want == "" && !apierrors.IsForbidden(err) {
					t.Errorf("the agent looks for a pod that has gone: got %v, want that it is forbidden", err)
				}
				if tc.want == "" && n.cri.Calls("RemovePodSandbox") != 1 {
					t.Error("sandbox is left")
				}
				if strings.Contains(log.String(), "pod action failed") {
					t.Errorf("got a warning: %s", log.String())
				}
			})
		})
	}
}

func TestPodThatWasActiveForTooLongIsToldOnce(t *testing.T) {
	trace.Proves(t, "C-291")
	inBubble(t, func(t *testing.T) {
		n := newNode(t, fakecri.Options{})
		defer func() { n.end() }()
		createPod(t, n.api, "web", `{activeDeadlineSeconds: 5, containers: [{name: c, image: x}]}`)
		if p := n.after(4*time.Second, "web"); p.Status.Phase != v1.PodRunning {
			t.Errorf("before: got %s", p.Status.Phase)
		}
		p := n.after(10*time.Second, "web")
		if p.Status.Phase != v1.PodFailed || p.Status.Reason != "DeadlineExceeded" {
			t.Errorf("after: got %s %s", p.Status.Phase, p.Status.Reason)
		}
		const want = "web Normal DeadlineExceeded: Pod was active on the node longer than the specified deadline"
		if got := strings.Join(n.api.TakeEvents(), "\n"); strings.Count(got, want) != 1 {
			t.Errorf("events: got\n%s\nwant once %q", got, want)
		}
	})
}
