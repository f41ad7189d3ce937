package resourceclaim_test

import (
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/kemudi/kemudi/internal/api/core"
	"github.com/kemudi/kemudi/internal/api/dra"
	"github.com/kemudi/kemudi/internal/client"
	"github.com/kemudi/kemudi/internal/sim"
)

// TestEachPodHasOneClaimWheneverWeAreKilled makes, places and ends pods with claims
// under a control plane that is killed again and again, between any two writes. In the
// end each pod has the one claim that its status names, and what ended pods had is given
// back and gone. KEMUDI_SEED plays one seed again.
func TestEachPodHasOneClaimWheneverWeAreKilled(t *testing.T) {
	var ended atomic.Int64
	sim.Lives(t, 8, func(of *sim.Life) {
		l := &life{Life: of}
		l.play()
		ended.Add(int64(l.ended))
	})
	if ended.Load() == 0 && !sim.Replays() {
		t.Error("no pod ended: nothing was tested")
	}
}

type life struct {
	*sim.Life
	ended int
}

func (l *life) pods() client.Client[*corev1.Pod] { return client.For(l.Plane.Admin(), core.Pods) }

func (l *life) claims() client.Client[*resourcev1.ResourceClaim] {
	return client.For(l.Plane.Admin(), dra.ResourceClaims)
}

func (l *life) play() {
	_, err := client.For(l.Plane.Admin(), dra.ResourceClaimTemplates).Create(l.Context(), &resourcev1.ResourceClaimTemplate{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "gpu"},
		Spec: resourcev1.ResourceClaimTemplateSpec{Spec: resourcev1.ResourceClaimSpec{Devices: resourcev1.DeviceClaim{
			Requests: []resourcev1.DeviceRequest{{Name: "gpu", Exactly: &resourcev1.ExactDeviceRequest{DeviceClassName: "gpu"}}},
		}}},
	})
	l.Mind(err)
	for i := range 6 {
		_, err := l.pods().Create(l.Context(), &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: fmt.Sprint("web-", i)},
			Spec: corev1.PodSpec{
				RestartPolicy: corev1.RestartPolicyNever, SchedulingGates: []corev1.PodSchedulingGate{{Name: "wait"}},
				Containers:     []corev1.Container{{Name: "c", Image: "c"}},
				ResourceClaims: []corev1.PodResourceClaim{{Name: "gpu", ResourceClaimTemplateName: ptr.To("gpu")}},
			},
		})
		l.Mind(err)
	}
	for range 60 {
		l.act()
		time.Sleep(time.Duration(l.Rng.IntN(40)) * time.Millisecond)
		if l.Rng.IntN(6) == 0 {
			l.Plane.Kill()
		}
	}
	time.Sleep(10 * time.Minute) // all back-offs pass
	synctest.Wait()
	l.settled()
}

// act does something with one of the pods or claims, as the scheduler, a node or a user
// would.
func (l *life) act() {
	l.Helper()
	if l.Rng.IntN(2) == 0 {
		all, err := l.claims().List(l.Context(), "default", metav1.ListOptions{})
		l.Mind(err)
		if len(all) > 0 {
			l.allocate(all[l.Rng.IntN(len(all))].DeepCopy())
		}
		return
	}
	all := l.Pods()
	if len(all) == 0 {
		return
	}
	p := all[l.Rng.IntN(len(all))].DeepCopy()
	if core.PodTerminal(p) || l.Rng.IntN(3) > 0 {
		return
	}
	p.Status.Phase = corev1.PodSucceeded
	_, err := l.pods().UpdateStatus(l.Context(), p)
	if err == nil {
		l.ended++
	}
	l.Mind(err)
}

// allocate gives a claim to the pod that it was made for, as the scheduler does.
func (l *life) allocate(c *resourcev1.ResourceClaim) {
	l.Helper()
	of := metav1.GetControllerOf(c)
	if of == nil || c.DeletionTimestamp != nil || c.Status.Allocation != nil {
		return
	}
	c.Finalizers = []string{resourcev1.Finalizer}
	c, err := l.claims().Update(l.Context(), c)
	if err != nil {
		l.Mind(err)
		return
	}
	c = c.DeepCopy()
	c.Status.Allocation = &resourcev1.AllocationResult{Devices: resourcev1.DeviceAllocationResult{
		Results: []resourcev1.DeviceRequestAllocationResult{{Request: "gpu", Driver: "d", Pool: "p", Device: "x"}},
	}}
	c.Status.ReservedFor = []resourcev1.ResourceClaimConsumerReference{{Resource: "pods", Name: of.Name, UID: of.UID}}
	_, err = l.claims().UpdateStatus(l.Context(), c)
	l.Mind(err)
}

// settled checks what there is when all is at rest.
func (l *life) settled() {
	l.Helper()
	claims, err := l.claims().List(l.Context(), "default", metav1.ListOptions{})
	l.Mind(err)
	of := map[string][]string{}
	for _, c := range claims {
		ref := metav1.GetControllerOf(c)
		of[ref.Name] = append(of[ref.Name], c.Name)
	}
	for _, p := range l.Pods() {
		var named []string
		if !core.PodTerminal(p) {
			named = core.ResourceClaimNames(p)
			if len(named) != 1 {
				l.Errorf("pod %s names %v, want one claim", p.Name, named)
			}
		}
		if fmt.Sprint(named) != fmt.Sprint(of[p.Name]) {
			l.Errorf("pod %s (%s): got claims %v, want %v", p.Name, p.Status.Phase, of[p.Name], named)
		}
	}
}
