package kubelet

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	csipb "github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	grpcstatus "google.golang.org/grpc/status"
	v1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	stats "k8s.io/kubelet/pkg/apis/stats/v1alpha1"
	"sigs.k8s.io/yaml"

	"github.com/kemudi/kemudi/internal/api/core"
	"github.com/kemudi/kemudi/internal/api/storage"
	"github.com/kemudi/kemudi/internal/client"
	"github.com/kemudi/kemudi/internal/kubelet/apitest"
	"github.com/kemudi/kemudi/internal/kubelet/fakecri"
	"github.com/kemudi/kemudi/internal/kubelet/fakecsi"
	"github.com/kemudi/kemudi/internal/kubelet/volume"
	kind "github.com/kemudi/kemudi/internal/resource"
	"github.com/kemudi/kemudi/test/wait"
)

const (
	diskDriver = "disk.example.com"
	diskName   = v1.UniqueVolumeName("kubernetes.io/csi/disk.example.com^vol-1")
)

// diskNode is a node whose pods have files and mounts of this machine, with the API as its agent may use it. It
// works in real time: sockets do.
type diskNode struct {
	*testing.T
	api   *apitest.API
	cri   *fakecri.Runtime
	root  string
	agent *Agent
	end   func()   // stops the agent
	told  []string // events, while one is waited for
	mu    struct {
		sync.Mutex
		configs map[string]*runtimeapi.ContainerConfig // of containers that were made, by name
	}
}

func newDiskNode(t *testing.T) *diskNode {
	t.Helper()
	root, err := os.MkdirTemp("", "csi") // shorter than the test's name, as the path of a socket must be
	if err != nil {
		t.Fatal(err)
	}
	n := &diskNode{T: t, api: apitest.New(t), root: root}
	n.mu.configs = map[string]*runtimeapi.ContainerConfig{}
	n.cri = fakecri.New(fakecri.Options{Create: func(c *runtimeapi.ContainerConfig) error {
		n.mu.Lock()
		defer n.mu.Unlock()
		n.mu.configs[c.Metadata.Name] = c
		return nil
	}})
	t.Cleanup(func() {
		if err := errors.Join(volume.Unmount(root), os.RemoveAll(root)); err != nil {
			t.Error(err)
		}
	})
	n.run()
	t.Cleanup(func() { n.end() })
	return n
}

func (n *diskNode) run() {
	n.Helper()
	a, err := New(Options{
		NodeName: "n1", Transport: n.api.AsNode("n1"), Runtime: n.cri, Images: n.cri, Events: n.api, NodeIPs: []string{"192.0.2.1"},
		Dirs: Dirs{RootDir: n.root, ToldRootDir: "/var/lib/kubelet", PodLogsDir: n.TempDir()}, Log: slog.New(slog.DiscardHandler), fake: fakes{gauges: &meter{}},
	})
	if err != nil {
		n.Fatal(err)
	}
	a.pods.Runner.Facts.CgroupParent = "" // cgroups of the machine are left alone
	a.parts = slices.DeleteFunc(a.parts, func(p part) bool { return p.name == "node allocatable" })
	n.agent = a
	ctx, cancel := context.WithCancel(n.Context())
	done := make(chan error, 1)
	var wg sync.WaitGroup
	wg.Go(func() { done <- a.Run(ctx) })
	n.end = sync.OnceFunc(func() {
		cancel()
		wg.Wait()
		if err := <-done; err != nil && !errors.Is(err, context.Canceled) {
			n.Errorf("Run: %v", err)
		}
	})
}

func (n *diskNode) driver(can ...csipb.NodeServiceCapability_RPC_Type) (*fakecsi.Driver, func()) {
	n.Helper()
	d := fakecsi.New(n.T, fakecsi.Options{
		Name: diskDriver, Registry: filepath.Join(n.root, "plugins_registry"), Can: can, Max: 3, Topology: map[string]string{"topology.example.com/zone": "z"},
		Root: n.root, Seen: "/var/lib/kubelet",
	})
	return d, d.Serve(n.T)
}

// made makes an object of the API from YAML.
func made[T kind.Object](n *diskNode, r *kind.Resource[T], obj T, text string) T {
	n.Helper()
	if err := yaml.UnmarshalStrict([]byte(text), obj); err != nil {
		n.Fatal(err)
	}
	got, err := client.For(n.api, r).Create(n.Context(), obj)
	if err != nil {
		n.Fatal(err)
	}
	return got
}

// volume makes a volume of a mode and the claim data, bound to each other.
func (n *diskNode) volume(mode string) {
	n.Helper()
	n.volumeFrom(mode, "csi: {driver: "+diskDriver+", volumeHandle: vol-1}")
}

func (n *diskNode) volumeFrom(mode, source string) {
	n.Helper()
	const with = "accessModes: [ReadWriteOnce], volumeMode: "
	claim := made(n, core.PersistentVolumeClaims, &v1.PersistentVolumeClaim{},
		"metadata: {namespace: default, name: data}\nspec: {"+with+mode+", volumeName: pv-1, storageClassName: '', resources: {requests: {storage: 1Gi}}}")
	made(n, core.PersistentVolumes, &v1.PersistentVolume{}, "metadata: {name: pv-1}\nspec: {"+with+mode+", capacity: {storage: 1Gi}, "+source+
		", claimRef: {namespace: default, name: data, uid: "+string(claim.UID)+"}}")
	n.claimStatus(func(s *v1.PersistentVolumeClaimStatus) {
		s.Phase, s.Capacity = v1.ClaimBound, v1.ResourceList{v1.ResourceStorage: resource.MustParse("1Gi")}
	})
}

func (n *diskNode) claimStatus(change func(*v1.PersistentVolumeClaimStatus)) {
	n.Helper()
	c := client.For(n.api, core.PersistentVolumeClaims)
	claim, err := c.Get(n.Context(), "default", "data")
	if err != nil {
		n.Fatal(err)
	}
	claim = claim.DeepCopy()
	change(&claim.Status)
	if _, err := c.UpdateStatus(n.Context(), claim); err != nil {
		n.Fatal(err)
	}
}

// attach does what the control plane does, once the node says that it uses the volume.
func (n *diskNode) attach() {
	n.Helper()
	attachments, pv := client.For(n.api, storage.VolumeAttachments), "pv-1"
	a, err := attachments.Create(n.Context(), &storagev1.VolumeAttachment{
		ObjectMeta: metav1.ObjectMeta{Name: storage.AttachmentName("vol-1", diskDriver, "n1")},
		Spec:       storagev1.VolumeAttachmentSpec{Attacher: diskDriver, NodeName: "n1", Source: storagev1.VolumeAttachmentSource{PersistentVolumeName: &pv}},
	})
	if err != nil {
		n.Fatal(err)
	}
	a = a.DeepCopy()
	a.Status = storagev1.VolumeAttachmentStatus{Attached: true, AttachmentMetadata: map[string]string{"device": "/dev/sdb"}}
	if _, err := attachments.UpdateStatus(n.Context(), a); err != nil {
		n.Fatal(err)
	}
	nodes := client.For(n.api, core.Nodes)
	wait.Until(n, func() error {
		node, err := nodes.Get(n.Context(), "", "n1")
		if err != nil {
			return err
		}
		if !slices.Contains(node.Status.VolumesInUse, diskName) {
			return fmt.Errorf("in use: %q", node.Status.VolumesInUse)
		}
		node = node.DeepCopy()
		node.Status.VolumesAttached = []v1.AttachedVolume{{Name: diskName}}
		_, err = nodes.UpdateStatus(n.Context(), node)
		return err
	})
}

const podWithDisk = `
containers: [{name: main, image: pause, volumeMounts: [{name: disk, mountPath: /data}]}]
volumes: [{name: disk, persistentVolumeClaim: {claimName: data}}]
`

func (n *diskNode) running(name string) {
	n.Helper()
	wait.Until(n, func() error {
		p := apitest.GetPod(n.T, n.api, name)
		if p == nil || p.Status.Phase != v1.PodRunning {
			return fmt.Errorf("pod is %+v, events: %q", p, n.heard())
		}
		return nil
	})
}

func (n *diskNode) gone(name string) {
	n.Helper()
	wait.Until(n, func() error {
		if p := apitest.GetPod(n.T, n.api, name); p != nil {
			return fmt.Errorf("pod %s is still there", name)
		}
		return nil
	})
}

func (n *diskNode) config(name string) *runtimeapi.ContainerConfig {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.mu.configs[name]
}

func (n *diskNode) get(path string) string {
	n.Helper()
	w := httptest.NewRecorder()
	n.agent.Handler().ServeHTTP(w, httptest.NewRequestWithContext(n.Context(), http.MethodGet, path, nil))
	body, err := io.ReadAll(w.Body)
	if err != nil || w.Code != http.StatusOK {
		n.Fatalf("%s: got %d %s, %v", path, w.Code, body, err)
	}
	return string(body)
}

func TestPodGetsAVolumeOfADriver(t *testing.T) {
	n := newDiskNode(t)
	d, stop := n.driver(csipb.NodeServiceCapability_RPC_STAGE_UNSTAGE_VOLUME, csipb.NodeServiceCapability_RPC_EXPAND_VOLUME, csipb.NodeServiceCapability_RPC_GET_VOLUME_STATS)
	n.shows(1)
	n.volume("Filesystem")
	apitest.CreatePod(t, n.api, "web", podWithDisk)
	n.attach()
	n.running("web")
	if got := d.TakeCalls(); !slices.Equal(got, []string{"Stage vol-1", "Publish vol-1"}) {
		t.Errorf("got calls %q", got)
	}
	if got := fakecsi.Last[*csipb.NodePublishVolumeRequest](d).PublishContext["device"]; got != "/dev/sdb" {
		t.Errorf("published with device %q", got)
	}
	pod := apitest.GetPod(t, n.api, "web")
	path := filepath.Join(n.root, "pods", string(pod.UID), "volumes/kubernetes.io~csi/pv-1/mount")
	if m := n.config("main").Mounts; !slices.ContainsFunc(m, func(m *runtimeapi.Mount) bool { return m.ContainerPath == "/data" && m.HostPath == path }) {
		t.Errorf("the container mounts %v", m)
	}
	n.grows(d)
	var summary stats.Summary
	if err := json.Unmarshal([]byte(n.get("/stats/summary")), &summary); err != nil {
		t.Fatal(err)
	}
	for _, p := range summary.Pods {
		if v := p.VolumeStats; len(v) != 1 || v[0].Name != "disk" || v[0].PVCRef == nil || v[0].PVCRef.Name != "data" || *v[0].UsedBytes != 400 {
			t.Errorf("the summary says of volumes %+v", v)
		}
	}
	if got := n.get("/metrics"); !strings.Contains(got, `kubelet_volume_stats_used_bytes{namespace="default",persistentvolumeclaim="data"} 400`) {
		t.Error("the metrics say nothing of the volume")
	}
	for _, want := range []string{
		`storage_operation_duration_seconds_count{migrated="false",operation_name="volume_mount",status="success",volume_plugin="kubernetes.io/csi:disk.example.com"} `,
		`storage_operation_duration_seconds_count{migrated="false",operation_name="volume_fs_resize",status="fail-unknown",volume_plugin="kubernetes.io/csi:disk.example.com"} 1`,
		`volume_operation_total_seconds_count{operation_name="overall_volume_mount",plugin_name="kubernetes.io/csi:disk.example.com"} 1`,
		`csi_operations_seconds_count{driver_name="disk.example.com",grpc_status_code="OK",method_name="/csi.v1.Node/NodeStageVolume",migrated="false"} 1`,
		`csi_operations_seconds_count{driver_name="disk.example.com",grpc_status_code="OutOfRange",method_name="/csi.v1.Node/NodeExpandVolume",migrated="false"} 1`,
		`volume_manager_total_volumes{plugin_name="kubernetes.io/csi:disk.example.com",state="actual_state_of_world"} 1`,
		`volume_manager_total_volumes{plugin_name="kubernetes.io/csi:disk.example.com",state="desired_state_of_world"} 1`,
	} {
		if got := n.get("/metrics"); !strings.Contains(got, want) {
			t.Errorf("the metrics have no %s", want)
		}
	}
	n.end()
	var asked atomic.Int32
	n.api.RefuseWith(func(r *client.Request) error {
		if r.Def == core.PersistentVolumeClaims.Def || r.Def == storage.CSIDrivers.Def {
			asked.Add(1)
			return errors.New("nobody is there")
		}
		return nil
	})
	n.run() // another agent finds it as it is, whatever the API says
	n.shows(1)
	wait.Until(t, func() error {
		if asked.Load() == 0 {
			return errors.New("nobody has asked for the claim")
		}
		return nil
	})
	n.running("web")
	n.api.RefuseWith(nil)
	for _, e := range n.api.TakeEvents() {
		if strings.Contains(e, "FailedMount") {
			t.Errorf("another agent says %s", e)
		}
	}
	d.TakeCalls()
	apitest.DeletePod(t, n.api, "web", 0)
	wait.Until(t, func() error {
		node, err := client.For(n.api, core.Nodes).Get(t.Context(), "", "n1")
		if err == nil && len(node.Status.VolumesInUse) > 0 {
			err = fmt.Errorf("in use: %q", node.Status.VolumesInUse)
		}
		return err
	})
	if got := d.TakeCalls(); !slices.Equal(got, []string{"Unpublish vol-1", "Unstage vol-1"}) {
		t.Errorf("got calls %q", got)
	}
	for _, what := range []string{"volume_unmount", "unmount_device"} {
		want := `storage_operation_duration_seconds_count{migrated="false",operation_name="` + what + `",status="success",volume_plugin="kubernetes.io/csi:disk.example.com"} 1`
		if got := n.get("/metrics"); !strings.Contains(got, want) {
			t.Errorf("the metrics have no %s", want)
		}
	}
	stop()
	n.shows(0)
}

// shows waits until the API shows so many drivers of the node.
func (n *diskNode) shows(drivers int) {
	n.Helper()
	wait.Until(n, func() error {
		c, err := client.For(n.api, storage.CSINodes).Get(n.Context(), "", "n1")
		if err != nil {
			return err
		}
		node, err := client.For(n.api, core.Nodes).Get(n.Context(), "", "n1")
		if err != nil {
			return err
		}
		ids := ""
		if drivers > 0 {
			ids = `{"disk.example.com":"id-of-node"}`
		}
		if len(c.Spec.Drivers) != drivers || node.Annotations["csi.volume.kubernetes.io/nodeid"] != ids {
			return fmt.Errorf("CSINode shows %+v, the Node %q", c.Spec.Drivers, node.Annotations)
		}
		if drivers > 0 && (*c.Spec.Drivers[0].Allocatable.Count != 3 || node.Labels["topology.example.com/zone"] != "z") {
			return fmt.Errorf("CSINode shows %+v, the Node %q", c.Spec.Drivers, node.Labels)
		}
		return nil
	})
}

// grow does what the claim's controller does: the volume has a new size, of which the claim is to get all or less, which is left
// to the node to fill.
func (n *diskNode) grow(size, given string) {
	n.Helper()
	volumes := client.For(n.api, core.PersistentVolumes)
	pv, err := volumes.Get(n.Context(), "", "pv-1")
	if err != nil {
		n.Fatal(err)
	}
	pv = pv.DeepCopy()
	pv.Spec.Capacity[v1.ResourceStorage] = resource.MustParse(size)
	if _, err := volumes.Update(n.Context(), pv); err != nil {
		n.Fatal(err)
	}
	n.claimStatus(func(s *v1.PersistentVolumeClaimStatus) {
		s.Conditions = []v1.PersistentVolumeClaimCondition{{Type: v1.PersistentVolumeClaimFileSystemResizePending, Status: v1.ConditionTrue}}
		s.AllocatedResourceStatuses = map[v1.ResourceName]v1.ClaimResourceStatus{v1.ResourceStorage: v1.PersistentVolumeClaimNodeResizePending}
		s.AllocatedResources = v1.ResourceList{v1.ResourceStorage: resource.MustParse(given)}
	})
}

// grows checks that a claim's volume is grown on the node when its controller has done its part, and what is said when that
// cannot be done.
func (n *diskNode) grows(d *fakecsi.Driver) {
	n.Helper()
	status := func(want func(*v1.PersistentVolumeClaimStatus) bool) {
		n.Helper()
		wait.Until(n, func() error {
			c, err := client.For(n.api, core.PersistentVolumeClaims).Get(n.Context(), "default", "data")
			if err == nil && !want(&c.Status) {
				err = fmt.Errorf("the claim's status is %+v", c.Status)
			}
			return err
		})
	}
	n.grow("2Gi", "2Gi")
	status(func(s *v1.PersistentVolumeClaimStatus) bool {
		q := s.Capacity[v1.ResourceStorage]
		return q.Cmp(resource.MustParse("2Gi")) == 0 && len(s.Conditions) == 0 && len(s.AllocatedResourceStatuses) == 0
	})
	if got := d.TakeCalls(); !slices.Equal(got, []string{"Expand vol-1 2147483648"}) {
		n.Errorf("got calls %q", got)
	}
	n.event(`data Normal FileSystemResizeSuccessful: MountVolume.NodeExpandVolume succeeded for volume "pv-1" n1`)
	d.FailWith(func(string) error { return grpcstatus.Error(codes.OutOfRange, "no file system is as large") })
	n.grow("9Gi", "9Gi")
	status(func(s *v1.PersistentVolumeClaimStatus) bool {
		return s.AllocatedResourceStatuses[v1.ResourceStorage] == v1.PersistentVolumeClaimNodeResizeInfeasible &&
			slices.ContainsFunc(s.Conditions, func(c v1.PersistentVolumeClaimCondition) bool {
				return c.Type == v1.PersistentVolumeClaimNodeResizeError && c.Message == "failed to expand pvc with Expander.NodeExpand failed to expand the volume rpc error: code = OutOfRange desc = no file system is as large"
			})
	})
	n.event(`data Warning VolumeResizeFailed: NodeExpandVolume.NodeExpandVolume failed for volume "pv-1" : Expander.NodeExpand failed to expand the volume rpc error: code = OutOfRange desc = no file system is as large`)
	d.FailWith(nil)
	d.TakeCalls()
}

func TestClaimAsksForLessThanItsVolumeCouldNotFill(t *testing.T) {
	n := newDiskNode(t)
	d, _ := n.driver(csipb.NodeServiceCapability_RPC_STAGE_UNSTAGE_VOLUME, csipb.NodeServiceCapability_RPC_EXPAND_VOLUME)
	n.shows(1)
	n.volume("Filesystem")
	apitest.CreatePod(t, n.api, "web", podWithDisk)
	n.attach()
	n.running("web")
	status := func(what string, want func(*v1.PersistentVolumeClaimStatus) bool) {
		t.Helper()
		wait.Until(t, func() error {
			c, err := client.For(n.api, core.PersistentVolumeClaims).Get(t.Context(), "default", "data")
			if err == nil && !want(&c.Status) {
				err = fmt.Errorf("%s: the claim's status is %+v", what, c.Status)
			}
			return err
		})
	}
	is := func(s *v1.PersistentVolumeClaimStatus, want v1.ClaimResourceStatus) bool {
		return s.AllocatedResourceStatuses[v1.ResourceStorage] == want && slices.ContainsFunc(s.Conditions, func(c v1.PersistentVolumeClaimCondition) bool {
			return c.Type == v1.PersistentVolumeClaimNodeResizeError
		})
	}
	// Who may not have this size now may have it later, and is asked again; but not whose claim wants another by then.
	d.FailWith(func(string) error { return grpcstatus.Error(codes.PermissionDenied, "not that much") })
	n.ask("9Gi")
	n.grow("9Gi", "9Gi")
	status("refused", func(s *v1.PersistentVolumeClaimStatus) bool {
		return is(s, v1.PersistentVolumeClaimNodeResizeInProgress)
	})
	n.ask("5Gi")
	status("another size is asked for", func(s *v1.PersistentVolumeClaimStatus) bool {
		return is(s, v1.PersistentVolumeClaimNodeResizeInfeasible)
	})
	// The claim's controller says that it gets as much as it asks for, whatever the volume says.
	d.FailWith(nil)
	d.TakeCalls()
	n.grow("9Gi", "5Gi")
	status("recovered", func(s *v1.PersistentVolumeClaimStatus) bool {
		q := s.Capacity[v1.ResourceStorage]
		return q.Cmp(resource.MustParse("5Gi")) == 0 && len(s.AllocatedResourceStatuses) == 0 && len(s.Conditions) == 0
	})
	if got := d.TakeCalls(); !slices.Equal(got, []string{"Expand vol-1 5368709120"}) {
		t.Errorf("got calls %q", got)
	}
	n.event(`data Normal FileSystemResizeSuccessful: MountVolume.NodeExpandVolume succeeded for volume "pv-1" n1`)
	// What cannot grow while it is used is no failure, and what nobody knows the end of is none yet.
	d.FailWith(func(string) error { return grpcstatus.Error(codes.FailedPrecondition, "it is in use") })
	n.ask("6Gi")
	n.grow("6Gi", "6Gi")
	status("in use", func(s *v1.PersistentVolumeClaimStatus) bool {
		return is(s, v1.PersistentVolumeClaimNodeResizeInProgress)
	})
	d.FailWith(func(string) error { return grpcstatus.Error(codes.Aborted, "wait a moment") })
	n.grow("6Gi", "6Gi")
	for _, e := range n.event(`data Warning VolumeResizeFailed: NodeExpandVolume.NodeExpandVolume failed for volume "pv-1" : Expander.NodeExpand failed to expand the volume : rpc error: code = Aborted desc = wait a moment`) {
		if strings.Contains(e, "it is in use") {
			t.Errorf("people are told %q", e)
		}
	}
	status("uncertain", func(s *v1.PersistentVolumeClaimStatus) bool {
		return s.AllocatedResourceStatuses[v1.ResourceStorage] == v1.PersistentVolumeClaimNodeResizeInProgress && len(s.Conditions) == 1
	})
}

// ask has the claim ask for a size.
func (n *diskNode) ask(size string) {
	n.Helper()
	c := client.For(n.api, core.PersistentVolumeClaims)
	claim, err := c.Get(n.Context(), "default", "data")
	if err != nil {
		n.Fatal(err)
	}
	claim = claim.DeepCopy()
	claim.Spec.Resources.Requests[v1.ResourceStorage] = resource.MustParse(size)
	if _, err := c.Update(n.Context(), claim); err != nil {
		n.Fatal(err)
	}
}

// event waits for an event, and returns all that there were until then.
func (n *diskNode) event(want string) (got []string) {
	n.Helper()
	wait.Until(n, func() error {
		if got = n.heard(); !slices.Contains(got, want) {
			return fmt.Errorf("got events %q", got)
		}
		return nil
	})
	n.told = nil
	return got
}

// heard are the events since the last one that was waited for.
func (n *diskNode) heard() []string {
	n.told = append(n.told, n.api.TakeEvents()...)
	return n.told
}

func TestPodIsToldOfALocalVolumeThatBelongsToAnotherGroup(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("needs root")
	}
	n := newDiskNode(t)
	n.volumeFrom("Filesystem", "local: {path: "+t.TempDir()+"}, nodeAffinity: {required: {nodeSelectorTerms: [{matchExpressions: [{key: kubernetes.io/hostname, operator: In, values: [n1]}]}]}}")
	apitest.CreatePod(t, n.api, "one", podWithDisk+"securityContext: {fsGroup: 1000}")
	n.running("one")
	apitest.CreatePod(t, n.api, "two", podWithDisk+"securityContext: {fsGroup: 2000}")
	n.event("two Warning AlreadyMountedVolume: The requested fsGroup is 2000, but the volume pv-1 has GID 1000. The volume may not be shareable.")
	n.running("two")
}

func TestVolumeIsLeftByItsAttachmentWhenItsDriverAttachesNothingAnyMore(t *testing.T) {
	n := newDiskNode(t)
	d, _ := n.driver(csipb.NodeServiceCapability_RPC_STAGE_UNSTAGE_VOLUME)
	n.shows(1)
	n.volume("Filesystem")
	apitest.CreatePod(t, n.api, "web", podWithDisk)
	n.attach()
	n.running("web")
	d.TakeCalls()
	made(n, storage.CSIDrivers, &storagev1.CSIDriver{}, "metadata: {name: "+diskDriver+"}\nspec: {attachRequired: false}")
	unused := func() {
		t.Helper()
		wait.Until(t, func() error {
			node, err := client.For(n.api, core.Nodes).Get(t.Context(), "", "n1")
			if err == nil && len(node.Status.VolumesInUse) > 0 {
				err = fmt.Errorf("in use: %q", node.Status.VolumesInUse)
			}
			return err
		})
	}
	unused()
	n.end()
	n.run() // another agent hears of it, too
	n.running("web")
	unused()
	if got := d.TakeCalls(); slices.ContainsFunc(got, func(call string) bool { return strings.HasPrefix(call, "Un") }) {
		t.Errorf("got calls %q", got)
	}
	apitest.DeletePod(t, n.api, "web", 0)
	n.gone("web")
	var got []string
	wait.Until(t, func() error {
		if got = append(got, d.TakeCalls()...); !slices.Contains(got, "Unstage vol-1") {
			return fmt.Errorf("got calls %q", got)
		}
		return nil
	})
	unused()
}

func TestPodGetsADevice(t *testing.T) {
	n := newDiskNode(t)
	d, _ := n.driver()
	n.volume("Block")
	made(n, storage.CSIDrivers, &storagev1.CSIDriver{}, "metadata: {name: "+diskDriver+"}\nspec: {attachRequired: false}")
	pod := apitest.CreatePod(t, n.api, "web", strings.Replace(podWithDisk, "volumeMounts: [{name: disk, mountPath: /data}]", "volumeDevices: [{name: disk, devicePath: /dev/xvda}]", 1))
	n.running("web")
	want := filepath.Join(n.root, "plugins/kubernetes.io/csi/volumeDevices/publish/pv-1", string(pod.UID))
	if got := n.config("main").Devices; len(got) != 1 || got[0].HostPath != want || got[0].ContainerPath != "/dev/xvda" || got[0].Permissions != "mrw" {
		t.Errorf("the container has the devices %v, want %s", got, want)
	}
	n.event(`web Normal SuccessfulMountVolume: MapVolume.MapPodDevice succeeded for volume "pv-1" volumeMapPath "/var/lib/kubelet/pods/` + string(pod.UID) + `/volumeDevices/kubernetes.io~csi"`)
	apitest.DeletePod(t, n.api, "web", 0)
	n.gone("web")
	wait.Until(t, func() error {
		if got := d.TakeCalls(); !slices.Contains(got, "Unpublish vol-1") {
			return fmt.Errorf("got calls %q", got)
		}
		return nil
	})
}

func TestPodWaitsForItsDriverAndStartsWhenItComes(t *testing.T) {
	n := newDiskNode(t)
	made(n, storage.CSIDrivers, &storagev1.CSIDriver{}, "metadata: {name: "+diskDriver+"}\nspec: {attachRequired: false, podInfoOnMount: true, volumeLifecycleModes: [Ephemeral]}")
	apitest.CreatePod(t, n.api, "web", `
containers: [{name: main, image: pause, volumeMounts: [{name: certs, mountPath: /certs}]}]
volumes: [{name: certs, csi: {driver: disk.example.com, readOnly: true}}]
`)
	n.event(`web Warning FailedMount: MountVolume.SetUp failed for volume "certs" : kubernetes.io/csi: mounter.SetUpAt failed to get CSI client: driver name disk.example.com not found in the list of registered CSI drivers`)
	d, stop := n.driver()
	n.running("web")
	if got := fakecsi.Last[*csipb.NodePublishVolumeRequest](d); got.VolumeContext["csi.storage.k8s.io/pod.name"] != "web" || !got.Readonly {
		t.Errorf("published by %+v", got)
	}
	if m := n.config("main").Mounts[0]; !m.Readonly || filepath.Base(m.HostPath) != "mount" {
		t.Errorf("the container mounts %v", m)
	}
	n.end()
	stop()
	if err := client.For(n.api, core.Pods).Delete(t.Context(), "default", "web", metav1.DeleteOptions{GracePeriodSeconds: new(int64)}); err != nil {
		t.Fatal(err)
	}
	n.run() // without the driver the agent cannot undo what is on its disk, until that comes again
	d.TakeCalls()
	d.Serve(t)
	wait.Until(t, func() error {
		if got := d.TakeCalls(); len(got) == 0 || !strings.HasPrefix(got[0], "Unpublish csi-") {
			return fmt.Errorf("got calls %q", got)
		}
		return nil
	})
}
