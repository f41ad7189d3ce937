package scheduler

import (
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/kemudi/kemudi/internal/api/core"
	"github.com/kemudi/kemudi/internal/api/core/claims"
	"github.com/kemudi/kemudi/internal/api/storage"
	"github.com/kemudi/kemudi/internal/client"
)

// TestPodsThatShareAClaimAreBoundAtOneTime has several pods write the same into a claim, or a volume, each having read what it was
// before: they are the pods of one Deployment. None of them has to be tried again.
func TestPodsThatShareAClaimAreBoundAtOneTime(t *testing.T) {
	const pods = 3
	for name, setting := range map[string]struct {
		writes      string // what all write
		provisioner string
		volume      string // empty: it is yet to be made
	}{
		"of what is made":  {"update data", "made.example.com", ""},
		"of what is there": {"update v", claims.NoProvisioner, `{metadata: {name: v}, spec: {capacity: {storage: 1Gi}, accessModes: [ReadWriteOnce], storageClassName: waits, hostPath: {path: /v}}}`},
	} {
		t.Run(name, func(t *testing.T) {
			inCluster(t, func(r *rig) {
				r.node("n1 cpu=4")
				made(r, storage.StorageClasses, "{metadata: {name: waits}, provisioner: "+setting.provisioner+", volumeBindingMode: WaitForFirstConsumer}")
				made(r, core.PersistentVolumeClaims, "{metadata: {name: data, namespace: default}, spec: {storageClassName: waits, accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}}")
				if setting.volume != "" {
					v := made(r, core.PersistentVolumes, setting.volume).DeepCopy()
					v.Status.Phase = corev1.VolumeAvailable
					if _, err := client.For(r.admin, core.PersistentVolumes).UpdateStatus(r.t.Context(), v); err != nil {
						r.t.Fatal(err)
					}
				}
				together := make(chan struct{})
				came := make(chan struct{}, pods)
				r.mu.Lock()
				r.mu.all = func(q *client.Request) error {
					if strings.TrimSpace(q.Verb+" "+q.Sub)+" "+q.Name == setting.writes && len(came) < pods {
						if came <- struct{}{}; len(came) == pods {
							close(together)
						}
						<-together
					}
					return nil
				}
				r.mu.Unlock()
				for _, name := range []string{"a", "b", "c"} {
					r.create(name + " cpu=1 claim=data")
				}
				synctest.Wait()
				if n := len(came); n != pods {
					r.t.Errorf("got %d pods that wrote at one time, want %d; events %q", n, pods, r.take())
					return
				}
				if said := r.take(); len(said) > 0 {
					r.t.Errorf("got events %q, want none", said)
				}
				r.bindClaim("data", setting.volume != "")
				for _, name := range []string{"a", "b", "c"} {
					r.where(name, "n1")
				}
				if said := r.take(); slices.ContainsFunc(said, func(e string) bool { return strings.HasPrefix(e, "Warning") }) || len(said) != pods {
					r.t.Errorf("got events %q, want that %d pods were scheduled", said, pods)
				}
			})
		})
	}
}

// bindClaim binds a claim as provisioner and controller do: to the volume that is reserved for it, or to one that is made.
func (r *rig) bindClaim(name string, there bool) {
	r.t.Helper()
	all := client.For(r.admin, core.PersistentVolumeClaims)
	c, err := all.Get(r.t.Context(), "default", name)
	if err != nil {
		r.t.Fatal(err)
	}
	c = c.DeepCopy()
	if !there {
		if at := c.Annotations[claims.SelectedNode]; at != "n1" {
			r.t.Errorf("got node %q selected, want n1", at)
		}
		made(r, core.PersistentVolumes, "{metadata: {name: v}, spec: {capacity: {storage: 1Gi}, accessModes: [ReadWriteOnce], storageClassName: waits, hostPath: {path: /v}, claimRef: {namespace: default, name: "+name+", uid: "+string(c.UID)+"}}}")
	}
	c.Spec.VolumeName = "v"
	if c.Annotations == nil {
		c.Annotations = map[string]string{}
	}
	c.Annotations[claims.BindCompleted] = claims.Yes
	if c, err = all.Update(r.t.Context(), c); err == nil {
		c = c.DeepCopy()
		c.Status.Phase = corev1.ClaimBound
		_, err = all.UpdateStatus(r.t.Context(), c)
	}
	if err != nil {
		r.t.Fatal(err)
	}
	synctest.Wait()
}

// TestVolumesAreReservedAgainWhenTheAPIFailsForAMoment has the writes of what was decided about claims fail, also those that were
// done.
func TestVolumesAreReservedAgainWhenTheAPIFailsForAMoment(t *testing.T) {
	for name, setting := range map[string]struct{ writes, provisioner string }{
		"of what is made":  {"update data", "made.example.com"},
		"of what is there": {"update v", claims.NoProvisioner},
	} {
		t.Run(name, func(t *testing.T) {
			inCluster(t, func(r *rig) {
				r.node("n1 cpu=4")
				made(r, storage.StorageClasses, "{metadata: {name: waits}, provisioner: "+setting.provisioner+", volumeBindingMode: WaitForFirstConsumer}")
				made(r, core.PersistentVolumeClaims, "{metadata: {name: data, namespace: default}, spec: {storageClassName: waits, accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}}")
				there := setting.provisioner == claims.NoProvisioner
				if there {
					v := made(r, core.PersistentVolumes, `{metadata: {name: v}, spec: {capacity: {storage: 1Gi}, accessModes: [ReadWriteOnce], storageClassName: waits, hostPath: {path: /v}}}`).DeepCopy()
					v.Status.Phase = corev1.VolumeAvailable
					if _, err := client.For(r.admin, core.PersistentVolumes).UpdateStatus(r.t.Context(), v); err != nil {
						r.t.Fatal(err)
					}
				}
				tries := 0
				r.mu.Lock()
				r.mu.all = func(q *client.Request) error {
					if strings.TrimSpace(q.Verb+" "+q.Sub)+" "+q.Name != setting.writes {
						return nil
					}
					if tries++; tries < 3 {
						return apierrors.NewServiceUnavailable("wait a moment")
					}
					return nil
				}
				r.mu.Unlock()
				r.create("p cpu=1 claim=data")
				time.Sleep(time.Second)
				synctest.Wait()
				r.bindClaim("data", there)
				r.where("p", "n1")
				if said := r.take(); tries != 3 || slices.ContainsFunc(said, func(e string) bool { return strings.HasPrefix(e, "Warning") }) {
					r.t.Errorf("got %d tries and events %q", tries, said)
				}
			})
		})
	}
}
