package kubelet

import (
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/utils/ptr"

	"github.com/kemudi/kemudi/internal/api/storage"
	"github.com/kemudi/kemudi/internal/client"
	"github.com/kemudi/kemudi/internal/kubelet/apitest"
	"github.com/kemudi/kemudi/internal/kubelet/csi"
	"github.com/kemudi/kemudi/internal/kubelet/fakecri"
	"github.com/kemudi/kemudi/internal/kubelet/volume"
	"github.com/kemudi/kemudi/test/wait"
)

// TestPodWhoseVolumeTheNodeCannotTakeIsRejected after it has waited, where drivers are asked anew how many volumes they take.
func TestPodWhoseVolumeTheNodeCannotTakeIsRejected(t *testing.T) {
	root, err := os.MkdirTemp("", "attach")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := errors.Join(volume.Unmount(root), os.RemoveAll(root)); err != nil {
			t.Error(err)
		}
	})
	inBubble(t, func(t *testing.T) {
		n := &testNode{t: t, api: newMemAPI(t), cri: fakecri.New(fakecri.Options{})}
		n.tune = func(a *Agent) {
			o, facts := a.o, a.pods.Runner.Facts
			o.Simulated, o.RootDir, o.PodLogsDir = false, root, t.TempDir()
			log := slog.New(slog.DiscardHandler)
			if a.pods.Runner.Disk, err = newDisk(&o, &facts, csi.Options{
				Root: root, Seen: root, Node: "n1", Drivers: csi.NewDrivers(a.node, log, nil), InUse: a.node.SetVolumesInUse, Log: log,
			}); err != nil {
				t.Fatal(err)
			}
		}
		n.run()
		defer func() { n.end() }()
		d := &diskNode{T: t, api: n.api}
		d.volume("Filesystem")
		driver := made(d, storage.CSIDrivers, &storagev1.CSIDriver{}, "metadata: {name: "+diskDriver+"}")
		attachments := client.For(n.api, storage.VolumeAttachments)
		a, err := attachments.Create(t.Context(), &storagev1.VolumeAttachment{
			ObjectMeta: metav1.ObjectMeta{Name: storage.AttachmentName("vol-1", diskDriver, "n1")},
			Spec:       storagev1.VolumeAttachmentSpec{Attacher: diskDriver, NodeName: "n1", Source: storagev1.VolumeAttachmentSource{PersistentVolumeName: ptr.To("pv-1")}},
		})
		if err != nil {
			t.Fatal(err)
		}
		a = a.DeepCopy()
		a.Status.AttachError = &storagev1.VolumeError{Message: "the machine is full", ErrorCode: ptr.To[int32](8)}
		if _, err := attachments.UpdateStatus(t.Context(), a); err != nil {
			t.Fatal(err)
		}
		createPod(t, n.api, "web", podWithDisk)
		if p := n.after(3*time.Minute, "web"); p.Status.Phase != v1.PodPending {
			t.Errorf("where the driver says nothing of that: got %+v", p.Status)
		}
		driver = driver.DeepCopy()
		driver.Spec.NodeAllocatableUpdatePeriodSeconds = ptr.To[int64](10)
		if _, err := client.For(n.api, storage.CSIDrivers).Update(t.Context(), driver); err != nil {
			t.Fatal(err)
		}
		n.api.TakeEvents()
		p := n.after(5*time.Minute, "web")
		const want = "Node has reached its volume attachment limit, rejecting pod. unmounted volumes=[disk], unattached volumes=[disk], failed to process volumes=[]: "
		if p.Status.Phase != v1.PodFailed || p.Status.Reason != "VolumeAttachmentLimitExceeded" || !strings.HasPrefix(p.Status.Message, "Pod was rejected: "+want) {
			t.Errorf("got %+v", p.Status)
		}
		if got := strings.Join(n.api.TakeEvents(), "\n"); !strings.Contains(got, "web Warning VolumeAttachmentLimitExceeded: "+want) {
			t.Errorf("got events %s", got)
		}
		deletePod(t, n.api, "web", 0)
		n.pod("web")
	})
}

func TestVolumesThatNobodyUsesAreMadeForWhoUsesThemLater(t *testing.T) {
	n := newDiskNode(t)
	pod := apitest.CreatePod(t, n.api, "web", `
containers: [{name: main, image: pause}]
volumes: [{name: missing, secret: {secretName: nobody}}, {name: debug, emptyDir: {}}]
`)
	n.running("web")
	dir := filepath.Join(n.root, "pods", string(pod.UID), "volumes/kubernetes.io~empty-dir/debug")
	if _, err := os.Stat(dir); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("what nobody uses: %v", err)
	}
	const patch = `{"spec":{"ephemeralContainers":[{"name":"d","image":"debug","volumeMounts":[{"name":"debug","mountPath":"/d"}]}]}}`
	if _, err := pods(n.api).Patch(t.Context(), "default", "web", "ephemeralcontainers", client.Patch{Type: types.StrategicMergePatchType, Data: []byte(patch)}); err != nil {
		t.Fatal(err)
	}
	wait.Until(t, func() error {
		if c := n.config("d"); c == nil || !slices.ContainsFunc(c.Mounts, func(m *runtimeapi.Mount) bool { return m.HostPath == dir }) {
			return fmt.Errorf("the container is made as %v", c)
		}
		return nil
	})
	if info, err := os.Stat(dir); err != nil || info.Mode().Perm() != 0o777 {
		t.Errorf("what it uses: got %v, %v", info, err)
	}
	deletePod(t, n.api, "web", 0)
	n.gone("web")
}
