package localvolume

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/kemudi/kemudi/internal/api/core"
	"github.com/kemudi/kemudi/internal/client"
	"github.com/kemudi/kemudi/internal/kubelet/apitest"
	"github.com/kemudi/kemudi/internal/task"
)

// disk notes what is erased, and fails as long as it is broken.
type disk struct {
	mu struct {
		sync.Mutex
		broken error
		erased []string
	}
}

func (d *disk) erase(handle string) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.mu.broken == nil {
		d.mu.erased = append(d.mu.erased, handle)
	}
	return d.mu.broken
}

func (d *disk) list() []string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.Sorted(slices.Values(d.mu.erased))
}

func (d *disk) setBroken(err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.mu.broken = err
}

func TestRemovesReleasedVolumesOfItsNode(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := apitest.New(t)
		volumes := client.For(api.Transport, core.PersistentVolumes)
		add := func(name, node, policy string, phase v1.PersistentVolumePhase) {
			var v v1.PersistentVolume
			if err := yaml.UnmarshalStrict([]byte(`
metadata: {name: `+name+`}
spec:
  capacity: {storage: 1Gi}
  accessModes: [ReadWriteOnce]
  persistentVolumeReclaimPolicy: `+policy+`
  claimRef: {namespace: default, name: c, uid: x}
  csi: {driver: local.kemudi.io, volumeHandle: `+name+`, volumeAttributes: {kemudi.io/node: `+node+`}}`), &v); err != nil {
				t.Fatal(err)
			}
			made, err := volumes.Create(t.Context(), &v)
			if err != nil {
				t.Fatal(err)
			}
			made = made.DeepCopy()
			made.Status.Phase = phase
			if _, err := volumes.UpdateStatus(t.Context(), made); err != nil {
				t.Fatal(err)
			}
		}
		left := func() (names []string) {
			synctest.Wait()
			for _, v := range client.Cached(api.Transport, core.PersistentVolumes, "").List("", nil) {
				names = append(names, v.Name)
			}
			return names
		}
		add("used", "n1", "Delete", v1.VolumeBound)
		add("kept", "n1", "Retain", v1.VolumeReleased)
		add("foreign", "n2", "Delete", v1.VolumeReleased)
		add("before", "n1", "Delete", v1.VolumeReleased)

		d := &disk{}
		ctx, cancel := context.WithCancel(t.Context())
		g := task.NewGroup(ctx)
		c := &Collector{Node: "n1", Transport: api.Transport, Erase: d.erase, Log: slog.New(slog.DiscardHandler)}
		g.Go("collector", c.Run)
		if got, want := left(), []string{"foreign", "kept", "used"}; !slices.Equal(got, want) || !slices.Equal(d.list(), []string{"before"}) {
			t.Errorf("got volumes %q, erased %q, want %q, before", got, d.list(), want)
		}
		// A disk that fails is tried again, and the object stays as long as there are data.
		d.setBroken(errors.New("read-only file system"))
		add("later", "n1", "Delete", v1.VolumeReleased)
		if got := left(); !slices.Contains(got, "later") {
			t.Errorf("got volumes %q, want later among them", got)
		}
		d.setBroken(nil)
		time.Sleep(retry)
		if got := left(); slices.Contains(got, "later") || !slices.Equal(d.list(), []string{"before", "later"}) {
			t.Errorf("got volumes %q, erased %q, want later erased", got, d.list())
		}
		// One that somebody has deleted before its claim stays until it is erased; one that is to be kept goes as it is.
		for name, policy := range map[string]string{"early": "Delete", "spared": "Retain"} {
			add(name, "n1", policy, v1.VolumeBound)
			v, err := volumes.Get(t.Context(), "", name)
			if err != nil {
				t.Fatal(err)
			}
			v = v.DeepCopy()
			v.Finalizers = []string{"external-provisioner.volume.kubernetes.io/finalizer"}
			if _, err := volumes.Update(t.Context(), v); err != nil {
				t.Fatal(err)
			}
			if err := volumes.Delete(t.Context(), "", name, metav1.DeleteOptions{}); err != nil {
				t.Fatal(err)
			}
			if got := left(); !slices.Contains(got, name) || slices.Contains(d.list(), name) {
				t.Errorf("while its claim has it: got volumes %q, erased %q", got, d.list())
			}
			v, err = volumes.Get(t.Context(), "", name)
			if err != nil {
				t.Fatal(err)
			}
			v = v.DeepCopy()
			v.Status.Phase = v1.VolumeReleased
			if _, err := volumes.UpdateStatus(t.Context(), v); err != nil {
				t.Fatal(err)
			}
			if got := left(); slices.Contains(got, name) || slices.Contains(d.list(), name) != (policy == "Delete") {
				t.Errorf("%s, after its claim: got volumes %q, erased %q", name, got, d.list())
			}
		}
		cancel()
		if err := g.Wait(); err != nil {
			t.Error(err)
		}
	})
}
