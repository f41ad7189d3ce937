package resourceclaim_test

import (
	"fmt"
	"math/rand/v2"
	"os"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
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
	var killed, ended atomic.Int64
	t.Cleanup(func() {
		if os.Getenv("KEMUDI_SEED") == "" && (killed.Load() == 0 || ended.Load() == 0) {
			t.Errorf("killed %d times, %d pods ended, want some of both", killed.Load(), ended.Load())
		}
	})
	sim.Seeds(t, 8, func(t *testing.T, rng *rand.Rand) {
		synctest.Test(t, func(t *testing.T) {
			l := &life{T: t, rng: rng, plane: sim.NewMortal(t, rng)}
			l.play()
			killed.Add(int64(l.plane.Kills))
			ended.Add(int64(l.ended))
		})
	})
}

type life struct {
	*testing.T
	rng   *rand.Rand
	plane *sim.Mortal
	ended int
}

func (l *life) pods() client.Client[*corev1.Pod] { return client.For(l.plane.Admin(), core.Pods) }

func (l *life) claims() client.Client[*resourcev1.ResourceClaim] {
	return client.For(l.plane.Admin(), dra.ResourceClaims)
}

func (l *life) must(err error) {
	l.Helper()
	if err != nil && !apierrors.IsConflict(err) && !apierrors.IsNotFound(err) {
		l.Fatal(err)
	}
}

func (l *life) play() {
	_, err := client.For(l.plane.Admin(), dra.ResourceClaimTemplates).Create(l.Context(), &resourcev1.ResourceClaimTemplate{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "gpu"},
		Spec: resourcev1.ResourceClaimTemplateSpec{Spec: resourcev1.ResourceClaimSpec{Devices: resourcev1.DeviceClaim{
			Requests: []resourcev1.DeviceRequest{{Name: "gpu", Exactly: &resourcev1.ExactDeviceRequest{DeviceClassName: "gpu"}}},
		}}},
	})
	l.must(err)
	for i := range 6 {
		_, err := l.pods().Create(l.Context(), &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: fmt.Sprint("web-", i)},
			Spec: corev1.PodSpec{
				RestartPolicy: corev1.RestartPolicyNever, SchedulingGates: []corev1.PodSchedulingGate{{Name: "wait"}},
				Containers:     []corev1.Container{{Name: "c", Image: "c"}},
				ResourceClaims: []corev1.PodResourceClaim{{Name: "gpu", ResourceClaimTemplateName: ptr.To("gpu")}},
			},
		})
		l.must(err)
	}
	for range 60 {
		l.act()
		time.Sleep(time.Duration(l.rng.IntN(40)) * time.Millisecond)
		if l.rng.IntN(6) == 0 {
			l.plane.Kill()
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
	if l.rng.IntN(2) == 0 {
		all, err := l.claims().List(l.Context(), "default", metav1.ListOptions{})
		l.must(err)
		if len(all) > 0 {
			l.allocate(all[l.rng.IntN(len(all))].DeepCopy())
		}
		return
	}
	all, err := l.pods().List(l.Context(), "default", metav1.ListOptions{})
	l.must(err)
	if len(all) == 0 {
		return
	}
	p := all[l.rng.IntN(len(all))].DeepCopy()
	if core.PodTerminal(p) || l.rng.IntN(3) > 0 {
		return
	}
	p.Status.Phase = corev1.PodSucceeded
	if _, err = l.pods().UpdateStatus(l.Context(), p); err == nil {
		l.ended++
	}
	l.must(err)
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
		l.must(err)
		return
	}
	c = c.DeepCopy()
	c.Status.Allocation = &resourcev1.AllocationResult{Devices: resourcev1.DeviceAllocationResult{
		Results: []resourcev1.DeviceRequestAllocationResult{{Request: "gpu", Driver: "d", Pool: "p", Device: "x"}},
	}}
	c.Status.ReservedFor = []resourcev1.ResourceClaimConsumerReference{{Resource: "pods", Name: of.Name, UID: of.UID}}
	_, err = l.claims().UpdateStatus(l.Context(), c)
	l.must(err)
}

// settled checks what there is when all is at rest.
func (l *life) settled() {
	l.Helper()
	pods, err := l.pods().List(l.Context(), "default", metav1.ListOptions{})
	l.must(err)
	claims, err := l.claims().List(l.Context(), "default", metav1.ListOptions{})
	l.must(err)
	of := map[string][]string{}
	for _, c := range claims {
		ref := metav1.GetControllerOf(c)
		of[ref.Name] = append(of[ref.Name], c.Name)
	}
	for _, p := range pods {
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
