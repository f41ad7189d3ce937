package csi

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	csipb "github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	authenticationv1 "k8s.io/api/authentication/v1"
	v1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/yaml"

	"github.com/kemudi/kemudi/internal/kubelet/fakecsi"
	"github.com/kemudi/kemudi/internal/kubelet/plugin"
	vol "github.com/kemudi/kemudi/internal/kubelet/volume"
	"github.com/kemudi/kemudi/internal/task"
	"github.com/kemudi/kemudi/test/wait"
)

const disk = "disk.example.com"

// bed is a node with its drivers.
type bed struct {
	*testing.T
	root    string
	drivers *Drivers
	volumes *Volumes
	about   chan *storagev1.CSIDriver // what the cluster says of drivers from now on
	mu      struct {
		sync.Mutex
		shown map[string]storagev1.CSINodeDriver
		inUse []v1.UniqueVolumeName
		fail  error // answer to AddDriver and RemoveDriver
	}
	end func() // ends what runs, as a kill would
}

func (b *bed) AddDriver(_ context.Context, d storagev1.CSINodeDriver, _ map[string]string) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.mu.fail == nil {
		b.mu.shown[d.Name] = d
	}
	return b.mu.fail
}

func (b *bed) RemoveDriver(_ context.Context, name string) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.mu.fail == nil {
		delete(b.mu.shown, name)
	}
	return b.mu.fail
}

func (b *bed) failAPI(err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.mu.fail = err
}

func (b *bed) shown(name string) (storagev1.CSINodeDriver, bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	d, ok := b.mu.shown[name]
	return d, ok
}

func (b *bed) inUse() []v1.UniqueVolumeName {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.mu.inUse
}

func newBed(t *testing.T) *bed {
	t.Helper()
	root, err := os.MkdirTemp("", "csi") // shorter than the test's name, as the path of a socket must be
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := errors.Join(vol.Unmount(root), os.RemoveAll(root)); err != nil {
			t.Error(err)
		}
	})
	b := &bed{T: t, root: root, about: make(chan *storagev1.CSIDriver)}
	b.mu.shown = map[string]storagev1.CSINodeDriver{}
	b.run()
	t.Cleanup(func() { b.end() })
	return b
}

// run has the node run, as after a start of its agent.
func (b *bed) run() {
	b.Helper()
	log := slog.New(slog.DiscardHandler)
	b.drivers = NewDrivers(b, log, nil)
	var err error
	b.volumes, err = Open(Options{
		Root: b.root, Seen: "/var/lib/kubelet", Node: "n1", Drivers: b.drivers, Log: log,
		InUse: func(list []v1.UniqueVolumeName) {
			b.mu.Lock()
			defer b.mu.Unlock()
			b.mu.inUse = list
		},
	})
	if err != nil {
		b.Fatal(err)
	}
	g := task.NewGroup(b.Context())
	g.Go("drivers", func(ctx context.Context) error { return b.drivers.Run(ctx, func() {}, b.follow) })
	g.Go("volumes", b.volumes.Run)
	g.Go("plugins", func(ctx context.Context) error {
		return plugin.Watch(ctx, b.registry(), map[string]plugin.Handler{plugin.CSI: b.drivers}, log)
	})
	b.end = sync.OnceFunc(func() {
		g.Cancel(context.Canceled)
		if err := g.Wait(); err != nil {
			b.Error(err)
		}
	})
}

func (b *bed) follow(ctx context.Context, _ string, tell func(*storagev1.CSIDriver)) error {
	for {
		select {
		case about := <-b.about:
			tell(about)
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

func (b *bed) registry() string { return filepath.Join(b.root, "plugins_registry") }

// driver starts a driver, and waits until it is registered.
func (b *bed) driver(o fakecsi.Options) (d *fakecsi.Driver, stop func()) {
	b.Helper()
	if o.Name == "" {
		o.Name = disk
	}
	o.Registry, o.Root, o.Seen = b.registry(), b.root, "/var/lib/kubelet"
	d = fakecsi.New(b.T, o)
	stop = d.Serve(b.T)
	b.registered(o.Name)
	return d, stop
}

func (b *bed) registered(name string) {
	b.Helper()
	wait.Until(b, func() error {
		_, err := b.drivers.find(name)
		return err
	})
}

// calls waits for the next calls of a driver.
func (b *bed) calls(d *fakecsi.Driver, want ...string) {
	b.Helper()
	var got []string
	wait.Until(b, func() error {
		got = append(got, d.TakeCalls()...)
		if len(got) < len(want) {
			return fmt.Errorf("got calls %q, want %q", got, want)
		}
		return nil
	})
	if !slices.Equal(got, want) {
		b.Errorf("got calls %q, want %q", got, want)
	}
}

func staging() []csipb.NodeServiceCapability_RPC_Type {
	return []csipb.NodeServiceCapability_RPC_Type{csipb.NodeServiceCapability_RPC_STAGE_UNSTAGE_VOLUME}
}

func parse[T any](t testing.TB, text string) *T {
	t.Helper()
	out := new(T)
	if err := yaml.UnmarshalStrict([]byte(text), out); err != nil {
		t.Fatal(err)
	}
	return out
}

func podOf(uid string) *v1.Pod {
	p := &v1.Pod{}
	p.Namespace, p.Name, p.UID, p.Spec.ServiceAccountName = "team", "web-"+uid, types.UID(uid), "runner"
	return p
}

// wanted is a request of a pod for a persistent volume, pv-1, by default with a file system.
func (b *bed) wanted(uid, more string) *Request {
	b.Helper()
	return &Request{
		Pod: podOf(uid), Volume: parse[v1.Volume](b, "{name: data, persistentVolumeClaim: {claimName: data}}"),
		PV:      parse[v1.PersistentVolume](b, "metadata: {name: pv-1}\nspec: {accessModes: [ReadWriteOnce], csi: {driver: "+disk+", volumeHandle: vol-1, volumeAttributes: {size: big}}"+more+"}"),
		Sources: secrets{},
	}
}

// secrets has one secret, and a token for each audience.
type secrets struct{}

func (secrets) Secret(namespace, name string) (*v1.Secret, error) {
	if name != "login" {
		return nil, fmt.Errorf("secret %s/%s not found", namespace, name)
	}
	return &v1.Secret{Data: map[string][]byte{"key": []byte(namespace)}}, nil
}

func (secrets) TellOf(*v1.Pod, string, string) {}

func (secrets) ServiceAccountToken(_ context.Context, pod *v1.Pod, r storagev1.TokenRequest) (authenticationv1.TokenRequestStatus, error) {
	return authenticationv1.TokenRequestStatus{Token: "token of " + pod.Spec.ServiceAccountName + " for " + r.Audience}, nil
}

func (b *bed) setUp(r *Request) string {
	b.Helper()
	b.volumes.Want(r)
	path, err := b.volumes.SetUp(b.Context(), r)
	if err != nil {
		b.Fatal(err)
	}
	return path
}

func (b *bed) tearDown(uid types.UID) {
	b.Helper()
	if err := b.volumes.TearDown(b.Context(), uid); err != nil {
		b.Fatal(err)
	}
}

// nothingLeft checks that no file of a volume is left.
func (b *bed) nothingLeft() {
	b.Helper()
	wait.Until(b, func() error {
		return filepath.WalkDir(b.root, func(path string, e fs.DirEntry, err error) error {
			if err == nil && (e.Name() == recordFile || e.Name() == mountDir || e.Name() == globalDir || e.Type()&fs.ModeSymlink != 0) {
				return fmt.Errorf("%s is still there", path)
			}
			if errors.Is(err, fs.ErrNotExist) {
				return nil
			}
			return err
		})
	})
}

func TestVolumeIsStagedOnceAndUnstagedAfterItsLastPod(t *testing.T) {
	b := newBed(t)
	d, _ := b.driver(fakecsi.Options{Can: staging()})
	one, two := b.wanted("1", ""), b.wanted("2", "")
	one.Attachment = "csi-x"
	b.volumes.Want(one)
	one.Attachment = "" // its driver turns out to need no attachment
	if b.volumes.Want(one); len(b.inUse()) > 0 {
		t.Errorf("in use that need not be attached: %q", b.inUse())
	}
	one.Attachment, two.Attachment = "csi-x", "csi-x"
	first, second := b.setUp(one), b.setUp(two)
	if err := os.WriteFile(filepath.Join(first, "file"), []byte("text"), 0o600); err != nil {
		t.Fatal(err)
	}
	if got, err := os.ReadFile(filepath.Join(second, "file")); err != nil || string(got) != "text" {
		t.Errorf("the other pod reads %q, %v", got, err)
	}
	if want := filepath.Join(b.root, "pods/1/volumes/kubernetes.io~csi/pv-1/mount"); first != want {
		t.Errorf("got path %s, want %s", first, want)
	}
	if got := fakecsi.Last[*csipb.NodePublishVolumeRequest](d); !strings.HasPrefix(got.StagingTargetPath, "/var/lib/kubelet/plugins/kubernetes.io/csi/"+disk+"/") ||
		got.TargetPath != "/var/lib/kubelet/pods/2/volumes/kubernetes.io~csi/pv-1/mount" {
		t.Errorf("the driver was told the paths %s, %s, want them as it sees them", got.StagingTargetPath, got.TargetPath)
	}
	b.setUp(one) // again, as when something else of the pod has failed
	b.calls(d, "Stage vol-1", "Publish vol-1", "Publish vol-1")
	want := []v1.UniqueVolumeName{"kubernetes.io/csi/" + disk + "^vol-1"}
	if got := b.inUse(); !slices.Equal(got, want) {
		t.Errorf("in use: got %q, want %q", got, want)
	}
	b.tearDown("1")
	b.calls(d, "Unpublish vol-1")
	b.tearDown("2")
	b.calls(d, "Unpublish vol-1", "Unstage vol-1")
	b.nothingLeft()
	wait.Until(t, func() error {
		if got := b.inUse(); len(got) > 0 {
			return fmt.Errorf("in use at the end: %q", got)
		}
		return nil
	})
	b.tearDown("2") // again: nothing is there
	b.calls(d)
	if got, err := os.ReadFile(filepath.Join(d.Content("vol-1"), "file")); err != nil || string(got) != "text" {
		t.Errorf("the volume's file in the end: %q, %v", got, err)
	}
}

func TestDriverIsToldAllThatItAsksFor(t *testing.T) {
	b := newBed(t)
	d, _ := b.driver(fakecsi.Options{Can: append(staging(), csipb.NodeServiceCapability_RPC_VOLUME_MOUNT_GROUP, csipb.NodeServiceCapability_RPC_SINGLE_NODE_MULTI_WRITER)})
	r := b.wanted("1", ", mountOptions: [noatime]")
	s := r.PV.Spec.CSI
	s.FSType = "ext4"
	s.NodeStageSecretRef, s.NodePublishSecretRef = &v1.SecretReference{Namespace: "stage", Name: "login"}, &v1.SecretReference{Namespace: "publish", Name: "login"}
	r.Context = map[string]string{"device": "/dev/sdb"}
	r.Volume.PersistentVolumeClaim.ReadOnly = true
	r.Pod.Spec.SecurityContext = parse[v1.PodSecurityContext](t, "fsGroup: 7")
	r.About = parse[storagev1.CSIDriver](t, "spec: {podInfoOnMount: true, tokenRequests: [{audience: vault}, {audience: ''}]}")
	b.setUp(r)
	stage, publish := fakecsi.Last[*csipb.NodeStageVolumeRequest](d), fakecsi.Last[*csipb.NodePublishVolumeRequest](d)
	if stage.Secrets["key"] != "stage" || stage.PublishContext["device"] != "/dev/sdb" || len(stage.VolumeContext) != 1 || stage.VolumeContext["size"] != "big" {
		t.Errorf("it stages by %+v", stage)
	}
	c := publish.VolumeCapability
	if m := c.GetMount(); m.FsType != "ext4" || !slices.Equal(m.MountFlags, []string{"noatime"}) || m.VolumeMountGroup != "7" ||
		c.AccessMode.Mode != csipb.VolumeCapability_AccessMode_SINGLE_NODE_MULTI_WRITER {
		t.Errorf("it publishes as %+v", c)
	}
	if !publish.Readonly || publish.Secrets["key"] != "publish" || publish.PublishContext["device"] != "/dev/sdb" {
		t.Errorf("it publishes by %+v", publish)
	}
	for key, want := range map[string]string{
		"size": "big", "csi.storage.k8s.io/pod.name": "web-1", "csi.storage.k8s.io/pod.namespace": "team", "csi.storage.k8s.io/pod.uid": "1",
		"csi.storage.k8s.io/serviceAccount.name": "runner", "csi.storage.k8s.io/ephemeral": "false",
		tokensKey: `{"":{"token":"token of runner for ","expirationTimestamp":null},"vault":{"token":"token of runner for vault","expirationTimestamp":null}}`,
	} {
		if got := publish.VolumeContext[key]; got != want {
			t.Errorf("%s: got %q, want %q", key, got, want)
		}
	}
	if len(r.PV.Spec.CSI.VolumeAttributes) != 1 {
		t.Errorf("the volume itself has the attributes %v now", r.PV.Spec.CSI.VolumeAttributes)
	}
	secret := b.wanted("2", "")
	secret.About = parse[storagev1.CSIDriver](t, "spec: {serviceAccountTokenInSecrets: true, tokenRequests: [{audience: vault}]}")
	b.setUp(secret)
	if got := fakecsi.Last[*csipb.NodePublishVolumeRequest](d); got.VolumeContext[tokensKey] != "" || !strings.Contains(got.Secrets[tokensKey], "for vault") {
		t.Errorf("tokens that are to be among secrets: got %v, %v", got.VolumeContext, got.Secrets)
	}
}

func TestAccessModesAreThoseOfTheInterface(t *testing.T) {
	single := abilities{csipb.NodeServiceCapability_RPC_SINGLE_NODE_MULTI_WRITER: true}
	for _, tc := range []struct {
		mode v1.PersistentVolumeAccessMode
		can  abilities
		want csipb.VolumeCapability_AccessMode_Mode
	}{
		{v1.ReadWriteOnce, nil, csipb.VolumeCapability_AccessMode_SINGLE_NODE_WRITER},
		{v1.ReadWriteOnce, single, csipb.VolumeCapability_AccessMode_SINGLE_NODE_MULTI_WRITER},
		{v1.ReadWriteOncePod, nil, csipb.VolumeCapability_AccessMode_SINGLE_NODE_WRITER},
		{v1.ReadWriteOncePod, single, csipb.VolumeCapability_AccessMode_SINGLE_NODE_SINGLE_WRITER},
		{v1.ReadOnlyMany, single, csipb.VolumeCapability_AccessMode_MULTI_NODE_READER_ONLY},
		{v1.ReadWriteMany, single, csipb.VolumeCapability_AccessMode_MULTI_NODE_MULTI_WRITER},
	} {
		if got := accessMode(tc.mode, tc.can); got != tc.want {
			t.Errorf("%s, %v: got %v, want %v", tc.mode, tc.can, got, tc.want)
		}
	}
}

func TestInlineVolumeLivesAsLongAsItsPod(t *testing.T) {
	b := newBed(t)
	d, _ := b.driver(fakecsi.Options{Can: staging()})
	r := &Request{
		Pod: podOf("1"), Sources: secrets{},
		Volume: parse[v1.Volume](t, "{name: certs, csi: {driver: "+disk+", readOnly: true, fsType: xfs, nodePublishSecretRef: {name: login}, volumeAttributes: {issuer: ca}}}"),
		About:  parse[storagev1.CSIDriver](t, "spec: {podInfoOnMount: true, volumeLifecycleModes: [Persistent, Ephemeral]}"),
	}
	b.setUp(r)
	got := fakecsi.Last[*csipb.NodePublishVolumeRequest](d)
	if !strings.HasPrefix(got.VolumeId, "csi-") || len(got.VolumeId) != 68 || got.VolumeId != r.Handle() || got.StagingTargetPath != "" || !got.Readonly ||
		got.Secrets["key"] != "team" || got.VolumeContext["issuer"] != "ca" || got.VolumeContext["csi.storage.k8s.io/ephemeral"] != "true" || got.VolumeCapability.GetMount().FsType != "xfs" {
		t.Errorf("got %+v", got)
	}
	if got := b.inUse(); len(got) > 0 {
		t.Errorf("in use: got %q, want nothing: nobody attaches it", got)
	}
	b.tearDown("1")
	b.calls(d, "Publish "+r.Handle(), "Unpublish "+r.Handle())
	b.nothingLeft()
	r.About.Spec.VolumeLifecycleModes = []storagev1.VolumeLifecycleMode{storagev1.VolumeLifecyclePersistent}
	const want = `MountVolume.SetUp failed for volume "certs" : kubernetes.io/csi: volume mode "Ephemeral" not supported by driver disk.example.com (only supports ["Persistent"])`
	if _, err := b.volumes.SetUp(t.Context(), r); err == nil || err.Error() != want {
		t.Errorf("a driver that has no such volumes: got %v, want %s", err, want)
	}
}

func TestVolumeForOnePodWaitsUntilThatHasEnded(t *testing.T) {
	for _, more := range []string{"", ", volumeMode: Block"} {
		b := newBed(t)
		d, _ := b.driver(fakecsi.Options{Can: staging()})
		alone := func(uid string) *Request {
			r := b.wanted(uid, more)
			r.PV.Spec.AccessModes = []v1.PersistentVolumeAccessMode{v1.ReadWriteOncePod}
			return r
		}
		one, two := alone("1"), alone("2")
		b.volumes.Want(two)
		b.setUp(one) // that another waits for it as well is nothing to it
		b.end()
		b.run() // a new agent knows who has it
		b.registered(disk)
		b.volumes.Want(two)
		const want = `failed for volume "pv-1" : volume uses the ReadWriteOncePod access mode and is already in use by another pod`
		if _, err := b.volumes.SetUp(t.Context(), two); err == nil || !strings.HasSuffix(err.Error(), want) {
			t.Errorf("got %v, want %s", err, want)
		}
		b.setUp(one)
		b.tearDown("1")
		b.setUp(two)
		b.tearDown("2")
		b.calls(d, "Stage vol-1", "Publish vol-1", "Unpublish vol-1", "Stage vol-1", "Publish vol-1", "Unpublish vol-1", "Unstage vol-1")
	}
}

func TestDeviceIsPublishedAsAFile(t *testing.T) {
	b := newBed(t)
	d, _ := b.driver(fakecsi.Options{Can: staging()})
	r := b.wanted("1", ", volumeMode: Block")
	path := b.setUp(r)
	if want := filepath.Join(b.root, "plugins/kubernetes.io/csi/volumeDevices/publish/pv-1/1"); path != want || !mounted(path) {
		t.Errorf("got path %s, mounted: %v, want %s", path, mounted(path), want)
	}
	if link, err := os.Readlink(filepath.Join(b.root, "pods/1/volumeDevices/kubernetes.io~csi/pv-1")); err != nil || link != path {
		t.Errorf("the pod's link: got %s, %v", link, err)
	}
	if got := fakecsi.Last[*csipb.NodeStageVolumeRequest](d).StagingTargetPath; got != "/var/lib/kubelet/plugins/kubernetes.io/csi/volumeDevices/staging/pv-1" {
		t.Errorf("staged at %s", got)
	}
	b.end()
	b.run() // a new agent knows of it
	b.registered(disk)
	b.tearDown("1")
	b.calls(d, "Stage vol-1", "Publish vol-1", "Unpublish vol-1", "Unstage vol-1")
	b.nothingLeft()
}

func TestPodsWaitForTheirDriverInUpstreamsWords(t *testing.T) {
	b := newBed(t)
	inline := &Request{Pod: podOf("1"), Volume: parse[v1.Volume](t, "{name: certs, csi: {driver: "+disk+"}}"), Sources: secrets{}, About: parse[storagev1.CSIDriver](t, "spec: {volumeLifecycleModes: [Ephemeral]}")}
	for want, r := range map[string]*Request{
		`MountVolume.SetUp failed for volume "certs" : kubernetes.io/csi: mounter.SetUpAt failed to get CSI client: driver name disk.example.com not found in the list of registered CSI drivers`:                      inline,
		`MountVolume.MountDevice failed for volume "pv-1" : kubernetes.io/csi: attacher.MountDevice failed to create newCsiDriverClient: driver name disk.example.com not found in the list of registered CSI drivers`: b.wanted("1", ""),
		`MapVolume.SetUpDevice failed for volume "pv-1" : kubernetes.io/csi: blockMapper.SetUpDevice failed to get CSI client: driver name disk.example.com not found in the list of registered CSI drivers`:           b.wanted("2", ", volumeMode: Block"),
	} {
		if _, err := b.volumes.SetUp(t.Context(), r); err == nil || err.Error() != want {
			t.Errorf("got %v, want %s", err, want)
		}
	}
	came := b.drivers.Came()
	d, stop := b.driver(fakecsi.Options{Max: 5, Topology: map[string]string{"zone": "z", "rack": "r"}})
	<-came
	if got, ok := b.shown(disk); !ok || got.NodeID != "id-of-node" || !slices.Equal(got.TopologyKeys, []string{"rack", "zone"}) || *got.Allocatable.Count != 5 {
		t.Errorf("the API shows %+v, %v", got, ok)
	}
	b.setUp(inline)
	b.calls(d, "Publish "+inline.Handle())
	b.failAPI(errors.New("the API is away"))
	stop()
	wait.Until(t, func() error {
		if _, err := b.drivers.find(disk); err == nil {
			return errors.New("the driver is still registered")
		}
		return nil
	})
	if err := b.volumes.TearDown(t.Context(), "1"); err == nil || !strings.Contains(err.Error(), "not found in the list of registered CSI drivers") {
		t.Errorf("without its driver: got %v", err)
	}
	if !mounted(b.volumes.Path(inline)) {
		t.Error("a volume was unmounted without its driver")
	}
	b.failAPI(nil)
	wait.Until(t, func() error {
		if _, ok := b.shown(disk); ok {
			return errors.New("the API still shows the driver")
		}
		return nil
	})
}

// TestNewAgentUndoesWhatAKilledOneHasBegun wherever it was.
func TestNewAgentUndoesWhatAKilledOneHasBegun(t *testing.T) {
	for _, method := range []string{"Stage", "Publish", "Unpublish", "Unstage", ""} {
		t.Run("killed in "+method, func(t *testing.T) {
			b := newBed(t)
			d, _ := b.driver(fakecsi.Options{Can: staging()})
			d.FailWith(func(m string) error {
				if m == method {
					return status.Error(codes.DeadlineExceeded, "the answer is lost")
				}
				return nil
			})
			r := b.wanted("1", "")
			r.Attachment = "csi-x"
			b.volumes.Want(r)
			_, err := b.volumes.SetUp(t.Context(), r)
			if failed := method == "Stage" || method == "Publish"; failed != (err != nil) {
				t.Fatalf("set up: got %v", err)
			}
			if method == "Unpublish" || method == "Unstage" {
				if err := b.volumes.TearDown(t.Context(), "1"); (err != nil) != (method == "Unpublish") {
					t.Fatalf("tear down: got %v", err)
				}
			}
			b.end()
			d.FailWith(nil)
			d.TakeCalls()
			b.run()
			b.registered(disk)
			if got := b.inUse(); len(got) != 1 && method != "Unstage" && method != "Stage" { // which is undone at once
				t.Errorf("in use before it is undone: got %q", got)
			}
			b.tearDown("1")
			b.nothingLeft()
			want := []string{"Unpublish vol-1", "Unstage vol-1"}
			switch method {
			case "Stage", "Unstage": // nothing was published, or it is no more
				want = want[1:]
			}
			b.calls(d, want...)
		})
	}
}

// TestWhatADriverFailsToStageOrUnstage is staged anew, and unstaged only if it may be staged.
func TestWhatADriverFailsToStageOrUnstage(t *testing.T) {
	for _, tc := range []struct {
		method string
		code   codes.Code
		more   string
		want   []string
	}{
		{"Stage", codes.InvalidArgument, "", []string{"Stage vol-1", "Stage vol-1"}},
		{"Stage", codes.Internal, ", volumeMode: Block", []string{"Stage vol-1", "Stage vol-1"}},
		{"Stage", codes.DeadlineExceeded, "", []string{"Stage vol-1", "Stage vol-1", "Unstage vol-1"}},
		{"Unstage", codes.InvalidArgument, "", []string{"Stage vol-1", "Publish vol-1", "Unpublish vol-1", "Unstage vol-1"}},
	} {
		b := newBed(t)
		d, _ := b.driver(fakecsi.Options{Can: staging()})
		d.FailWith(func(m string) error {
			if m == tc.method {
				return status.Error(tc.code, "not now")
			}
			return nil
		})
		r := b.wanted("1", tc.more)
		for range 2 {
			b.volumes.Want(r)
			if _, err := b.volumes.SetUp(t.Context(), r); tc.method == "Stage" && status.Code(err) != tc.code {
				t.Errorf("%+v: set up: got %v", tc, err)
			}
		}
		b.tearDown("1")
		b.volumes.mu.Lock()
		left := len(b.volumes.mu.volumes)
		b.volumes.mu.Unlock()
		if over := len(tc.want) == 2; over && left > 0 {
			t.Errorf("%+v: a volume that is not staged is still known, and will be unstaged", tc)
		}
		b.calls(d, tc.want...)
		d.FailWith(nil)
		b.setUp(b.wanted("2", tc.more))
		b.tearDown("2")
		b.calls(d, "Stage vol-1", "Publish vol-1", "Unpublish vol-1", "Unstage vol-1")
		b.nothingLeft()
	}
}

func TestDriverThatDiesWhileItPublishesHoldsUpNoOther(t *testing.T) {
	b := newBed(t)
	sick, stop := b.driver(fakecsi.Options{Name: "sick.example.com"})
	well, _ := b.driver(fakecsi.Options{})
	stuck, hold := make(chan struct{}), make(chan struct{})
	defer close(hold)
	sick.FailWith(func(string) error {
		close(stuck)
		<-hold
		return nil
	})
	r := b.wanted("1", "")
	r.PV.Name, r.PV.Spec.CSI.Driver = "pv-2", "sick.example.com"
	failed := make(chan error, 1)
	var wg sync.WaitGroup
	defer wg.Wait()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	wg.Go(func() {
		_, err := b.volumes.SetUp(ctx, r)
		failed <- err
	})
	<-stuck
	b.setUp(b.wanted("2", ""))
	b.calls(well, "Publish vol-1")
	go stop() // waits for the call that it is in
	if err := <-failed; status.Code(errors.Unwrap(err)) != codes.Unavailable {
		t.Errorf("its socket is gone: got %v, want Unavailable", err)
	}
}

func TestVolumeIsGivenToThePodsGroupAsTheDriverSays(t *testing.T) {
	b := newBed(t)
	d, _ := b.driver(fakecsi.Options{})
	const inline = "a volume of the pod's own"
	for i, tc := range []struct {
		about, more string
		fsType      string
		given       bool
	}{
		{"spec: {fsGroupPolicy: File}", "", "", true},
		{"spec: {fsGroupPolicy: None}", "", "ext4", false},
		{"spec: {fsGroupPolicy: ReadWriteOnceWithFSType}", "", "ext4", true},
		{"spec: {}", "", "", false},
		{"", ", accessModes: [ReadWriteMany]", "ext4", false},
		{"spec: {volumeLifecycleModes: [Ephemeral]}", inline, "ext4", true},
		{"spec: {volumeLifecycleModes: [Ephemeral]}", inline, "", false},
	} {
		r := b.wanted(fmt.Sprint(i), "")
		switch tc.more {
		case "":
		case inline:
			r.PV, r.Volume = nil, parse[v1.Volume](t, "{name: certs, csi: {driver: "+disk+", fsType: "+tc.fsType+"}}")
		default:
			r.PV.Spec.AccessModes = []v1.PersistentVolumeAccessMode{v1.ReadWriteMany}
		}
		if r.PV != nil {
			r.PV.Name, r.PV.Spec.CSI.VolumeHandle, r.PV.Spec.CSI.FSType = fmt.Sprint("pv-", i), fmt.Sprint("vol-", i), tc.fsType
		}
		if tc.about != "" {
			r.About = parse[storagev1.CSIDriver](t, tc.about)
		}
		r.Pod.Spec.SecurityContext = parse[v1.PodSecurityContext](t, "fsGroup: 4321")
		b.setUp(r)
		info, err := os.Stat(d.Content(r.Handle()))
		if err != nil {
			t.Fatal(err)
		}
		if got := info.Sys().(*syscall.Stat_t).Gid == 4321; got != tc.given {
			t.Errorf("%+v: given to the group: got %v", tc, got)
		}
	}
}

func TestDriverIsAskedAnewHowManyVolumesItTakes(t *testing.T) {
	b := newBed(t)
	d, stop := b.driver(fakecsi.Options{Max: 5})
	shows := func(want int32) {
		t.Helper()
		wait.Until(t, func() error {
			if got, ok := b.shown(disk); !ok || *got.Allocatable.Count != want {
				return fmt.Errorf("the API shows %+v, want %d", got, want)
			}
			return nil
		})
	}
	shows(5)
	d.TakeUpTo(6)
	r := b.wanted("1", "")
	b.about <- parse[storagev1.CSIDriver](t, "spec: {}")
	if b.volumes.Recount(r) {
		t.Error("a driver is asked that does not want it")
	}
	r.About = parse[storagev1.CSIDriver](t, "spec: {nodeAllocatableUpdatePeriodSeconds: 3600}")
	b.about <- r.About
	if !b.volumes.Recount(r) { // a volume could not be attached
		t.Error("a driver is not asked that wants it")
	}
	shows(6)
	d.TakeUpTo(7)
	b.about <- parse[storagev1.CSIDriver](t, "spec: {nodeAllocatableUpdatePeriodSeconds: 1}")
	shows(7)
	stop()
	wait.Until(t, func() error {
		if _, ok := b.shown(disk); ok {
			return errors.New("the API still shows the driver")
		}
		return nil
	})
}

func TestDriverIsToldAgainIfItWantsThat(t *testing.T) {
	b := newBed(t)
	d, _ := b.driver(fakecsi.Options{})
	r := b.wanted("1", "")
	r.About = parse[storagev1.CSIDriver](t, "spec: {requiresRepublish: true}")
	path := b.setUp(r)
	if again, ok := b.volumes.Due(path); !ok || time.Until(again) > republish || time.Until(again) < republish/2 {
		t.Errorf("due: got %v, %v, want in a minute", again, ok)
	}
	b.setUp(r)
	b.calls(d, "Publish vol-1", "Publish vol-1")
	d.FailWith(func(string) error { return status.Error(codes.Internal, "no token") })
	if _, err := b.volumes.SetUp(t.Context(), r); err == nil || !mounted(path) {
		t.Errorf("when that fails: got %v, mounted: %v, want an error, and that what there is stays", err, mounted(path))
	}
}

func TestWhatChangesWhileAVolumeIsSetUpIsSeenToAfterwards(t *testing.T) {
	b := newBed(t)
	b.driver(fakecsi.Options{})
	r := b.wanted("1", "")
	path := b.setUp(r)
	due := func(want bool) {
		t.Helper()
		if _, seen := b.volumes.Due(path); seen == want {
			t.Errorf("due: got %v, want %v", !seen, want)
		}
	}
	due(false)
	b.volumes.Recheck(path)
	due(true)
	b.volumes.Look(path)
	b.volumes.Recheck(path) // what was found out is old
	b.setUp(r)
	due(true)
	b.volumes.Look(path)
	b.setUp(r)
	due(false)
	b.tearDown("1")
	b.nothingLeft()
}

func TestHostileNamesLeadNowhere(t *testing.T) {
	b := newBed(t)
	b.driver(fakecsi.Options{})
	for _, name := range []string{"../../etc", "a/b", "", ".", "..", "volumeDevices", strings.Repeat("x", 64), "UPPER_case"} {
		r := b.wanted("1", "")
		r.PV.Spec.CSI.Driver = name
		if _, err := b.volumes.SetUp(t.Context(), r); err == nil || !strings.Contains(err.Error(), "is no name of a CSI driver") {
			t.Errorf("driver %q: got %v", name, err)
		}
		if err := b.drivers.Register(t.Context(), plugin.Plugin{Name: name, Endpoint: "/x", Versions: []string{"1.0.0"}}); err == nil || !strings.Contains(err.Error(), "is no name of a CSI driver") {
			t.Errorf("a driver %q that registers: got %v", name, err)
		}
	}
	for _, name := range []string{"..", ".", "", "staging", "publish"} {
		r := b.wanted("1", ", volumeMode: Block")
		r.PV.Name = name
		if _, err := b.volumes.SetUp(t.Context(), r); err == nil || !strings.Contains(err.Error(), "bad name of a volume") {
			t.Errorf("volume %q: got %v", name, err)
		}
	}
	r := b.wanted("1", "")
	r.PV.Name = "aws://../x" // as disks of clouds are called
	if got := b.volumes.Path(r); got != filepath.Join(b.root, "pods/1/volumes/kubernetes.io~csi/aws:~~..~x/mount") {
		t.Errorf("a name with a path leads to %s", got)
	}
	r = b.wanted("1", "") // a handle may be anything
	r.PV.Spec.CSI.VolumeHandle = "../../../../etc/passwd"
	home := b.volumes.home(r)
	if dir := filepath.Dir(home); dir != filepath.Join(b.root, "plugins/kubernetes.io/csi", disk) {
		t.Errorf("a handle with a path leads to %s", home)
	}
}

func TestRecordsThatSayNothingAreRemovedWithWhatTheyStoodFor(t *testing.T) {
	b := newBed(t)
	d, _ := b.driver(fakecsi.Options{})
	path := b.setUp(b.wanted("1", ""))
	for _, text := range []string{"", "{", `{"driverName": "../..", "volumeHandle": "x"}`, `{"driverName": "disk.example.com"}`} {
		b.end()
		if err := os.WriteFile(filepath.Join(filepath.Dir(path), recordFile), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		b.run()
		b.registered(disk)
		b.tearDown("1")
		b.nothingLeft()
		path = b.setUp(b.wanted("1", ""))
	}
	if got := d.TakeCalls(); slices.Contains(got, "Unpublish x") {
		t.Errorf("got calls %q", got)
	}
}

func TestVersionsAreRefusedThatAreNotInCommon(t *testing.T) {
	b := newBed(t)
	for _, tc := range []struct {
		versions []string
		want     string
	}{
		{nil, `ValidatePlugin for CSI driver "disk.example.com" failed. Plugin returned an empty list for supported versions`},
		{[]string{"2.0.0", "0.3.0", "one"}, `ValidatePlugin for CSI driver "disk.example.com" failed. None of the versions specified ["2.0.0" "0.3.0" "one"] are supported`},
	} {
		err := b.drivers.Register(t.Context(), plugin.Plugin{Name: disk, Endpoint: "/csi.sock", Versions: tc.versions})
		if err == nil || err.Error() != tc.want {
			t.Errorf("%q: got %v, want %s", tc.versions, err, tc.want)
		}
	}
	b.driver(fakecsi.Options{Versions: []string{"1.2.0", "9.0.0"}})
	err := b.drivers.Register(t.Context(), plugin.Plugin{Name: disk, Endpoint: "/csi.sock", Socket: "/other", Versions: []string{"1.1.0"}})
	if want := `ValidatePlugin for CSI driver "disk.example.com" failed. Another driver with the same name is already registered with a higher supported version: "1.2.0"`; err == nil || err.Error() != want {
		t.Errorf("an older one: got %v, want %s", err, want)
	}
	if err := b.drivers.Register(t.Context(), plugin.Plugin{Name: disk, Endpoint: "csi.sock", Versions: []string{"1.0.0"}}); err == nil {
		t.Error("an endpoint that is no absolute path: got no error")
	}
}

func TestDriverThatHangsHoldsNobodyUpWhoLooksWhatVolumesHold(t *testing.T) {
	b := newBed(t)
	can := append(staging(), csipb.NodeServiceCapability_RPC_GET_VOLUME_STATS)
	sick, _ := b.driver(fakecsi.Options{Name: "sick.example.com", Can: can})
	well, _ := b.driver(fakecsi.Options{Can: can})
	of := []Published{{"1", b.setUp(b.wanted("1", ""))}}
	for _, uid := range []string{"2", "3", "4"} { // who asked them one after the other would wait for each
		r := b.wanted(uid, "")
		r.PV.Name, r.PV.Spec.CSI.Driver, r.PV.Spec.CSI.VolumeHandle = "pv-"+uid, "sick.example.com", "vol-"+uid
		of = append(of, Published{types.UID(uid), b.setUp(r)})
	}
	sick.TakeCalls()
	well.TakeCalls()
	hold := make(chan struct{})
	sick.FailWith(func(string) error {
		<-hold
		return nil
	})
	look := func(want int, within time.Duration) {
		t.Helper()
		began := time.Now()
		got := b.volumes.Held(t.Context(), of)
		if took := time.Since(began); len(got) != want || took > within {
			t.Errorf("got what %d volumes hold, %v, after %s, want %d within %s", len(got), got, took, want, within)
		}
		if got := got[of[0].Path].UsedBytes; got == nil || *got != 400 {
			t.Errorf("of the volume whose driver is well: got %v bytes, want 400", got)
		}
	}
	look(1, 3*patience)
	for range 3 {
		look(1, patience/2) // it is known of all three that they are late
	}
	if got := well.TakeCalls(); !slices.Equal(got, []string{"Stats vol-1"}) {
		t.Errorf("the driver that is well: got calls %q, want one", got)
	}
	if got := len(sick.TakeCalls()); got != 3 {
		t.Errorf("the driver that hangs: got %d calls, want one for each volume", got)
	}
	close(hold)
	wait.Until(t, func() error {
		if got := b.volumes.Held(t.Context(), of); len(got) != len(of) {
			return fmt.Errorf("got what %d volumes hold, want %d", len(got), len(of))
		}
		return nil
	})
	for _, v := range of {
		b.tearDown(v.Pod)
	}
	if got := b.volumes.Held(t.Context(), of); len(got) != 0 {
		t.Errorf("of volumes that are gone: got %v", got)
	}
}

func TestDriverThatCannotSayIsNotAskedAgainAndAgain(t *testing.T) {
	b := newBed(t)
	d, _ := b.driver(fakecsi.Options{Can: []csipb.NodeServiceCapability_RPC_Type{csipb.NodeServiceCapability_RPC_GET_VOLUME_STATS}})
	of := []Published{{"1", b.setUp(b.wanted("1", ""))}}
	d.TakeCalls()
	d.FailWith(func(string) error { return status.Error(codes.Internal, "the disk is dumb") })
	for range 3 {
		if got := b.volumes.Held(t.Context(), of); len(got) != 0 {
			t.Errorf("got %v, want nothing", got)
		}
	}
	if got := d.TakeCalls(); !slices.Equal(got, []string{"Stats vol-1"}) {
		t.Errorf("got calls %q, want one", got)
	}
	d.FailWith(nil)
	b.tearDown("1")
}
