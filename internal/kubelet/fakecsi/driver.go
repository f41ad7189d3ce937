package fakecsi

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	csipb "github.com/container-storage-interface/spec/lib/go/csi"
	"golang.org/x/sys/unix"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	registerapi "k8s.io/kubelet/pkg/apis/pluginregistration/v1"
)

// Options of a Driver. Name and Registry are required.
type Options struct {
	Name     string
	Registry string // the directory where it registers
	Versions []string
	Can      []csipb.NodeServiceCapability_RPC_Type
	Topology map[string]string
	Max      int64 // volumes a node; 0: as many as there are
	// Seen and Root: paths that it is told begin with the one, and lie on this machine below the other.
	Seen, Root string
}

// Driver is a driver that serves until it is stopped.
type Driver struct {
	csipb.UnimplementedIdentityServer
	csipb.UnimplementedNodeServer
	registerapi.UnimplementedRegistrationServer

	o      Options
	dir    string // of its volumes and its socket
	socket string // where it registers

	mu struct {
		sync.Mutex
		calls []string
		last  map[string]any            // the last request of each method
		fail  func(method string) error // asked before each call; may be nil
		told  []*registerapi.RegistrationStatus
		max   int64
	}
}

// New returns a driver that does not serve yet.
func New(t *testing.T, o Options) *Driver {
	t.Helper()
	dir, err := os.MkdirTemp("", "csi") // shorter than the test's name, as the path of a socket must be
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	if o.Versions == nil {
		o.Versions = []string{"1.0.0"}
	}
	d := &Driver{o: o, dir: dir, socket: filepath.Join(o.Registry, o.Name+"-reg.sock")}
	d.mu.last, d.mu.max = map[string]any{}, o.Max
	return d
}

// Serve has it serve, and register, until the returned function is called or the test ends.
func (d *Driver) Serve(t *testing.T) (stop func()) {
	t.Helper()
	if err := os.MkdirAll(d.o.Registry, 0o755); err != nil {
		t.Fatal(err)
	}
	s := grpc.NewServer()
	csipb.RegisterIdentityServer(s, d)
	csipb.RegisterNodeServer(s, d)
	registerapi.RegisterRegistrationServer(s, d)
	var wg sync.WaitGroup
	for _, path := range []string{filepath.Join(d.dir, "csi.sock"), d.socket} { // the latter says that it is there
		l, err := net.Listen("unix", path)
		if err != nil {
			t.Fatal(err)
		}
		wg.Go(func() { _ = s.Serve(l) })
	}
	stop = sync.OnceFunc(func() {
		s.Stop()
		wg.Wait()
	})
	t.Cleanup(stop)
	return stop
}

// FailWith has f asked before each call, by the name of its method; nil: nobody.
func (d *Driver) FailWith(f func(method string) error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.mu.fail = f
}

// TakeUpTo says how many volumes the node can take from now on.
func (d *Driver) TakeUpTo(volumes int64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.mu.max = volumes
}

// TakeCalls returns the calls that have changed something since it was last called.
func (d *Driver) TakeCalls() []string {
	d.mu.Lock()
	defer d.mu.Unlock()
	calls := d.mu.calls
	d.mu.calls = nil
	return calls
}

// Last is the last request of a type that there was.
func Last[T any](d *Driver) T {
	d.mu.Lock()
	defer d.mu.Unlock()
	var none T
	got, ok := d.mu.last[fmt.Sprintf("%T", none)].(T)
	if !ok {
		return none
	}
	return got
}

// Told is what it was told of its registrations.
func (d *Driver) Told() []*registerapi.RegistrationStatus {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.Clone(d.mu.told)
}

// Content is the directory of a volume's files.
func (d *Driver) Content(handle string) string { return filepath.Join(d.dir, "volumes", handle) }

// note notes a call, and says whether it is to fail.
func (d *Driver) note(request any, call string) error {
	method, _, _ := strings.Cut(call, " ")
	d.mu.Lock()
	d.mu.last[fmt.Sprintf("%T", request)] = request
	d.mu.calls = append(d.mu.calls, call)
	fail := d.mu.fail
	d.mu.Unlock()
	if fail != nil {
		return fail(method)
	}
	return nil
}

// GetInfo is asked when it registers.
func (d *Driver) GetInfo(context.Context, *registerapi.InfoRequest) (*registerapi.PluginInfo, error) {
	return &registerapi.PluginInfo{Type: registerapi.CSIPlugin, Name: d.o.Name, Endpoint: filepath.Join(d.dir, "csi.sock"), SupportedVersions: d.o.Versions}, nil
}

// NotifyRegistrationStatus tells it what became of that.
func (d *Driver) NotifyRegistrationStatus(_ context.Context, s *registerapi.RegistrationStatus) (*registerapi.RegistrationStatusResponse, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.mu.told = append(d.mu.told, s)
	return &registerapi.RegistrationStatusResponse{}, nil
}

// NodeGetInfo says what the node is to the driver.
func (d *Driver) NodeGetInfo(context.Context, *csipb.NodeGetInfoRequest) (*csipb.NodeGetInfoResponse, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	resp := &csipb.NodeGetInfoResponse{NodeId: "id-of-node", MaxVolumesPerNode: d.mu.max}
	if d.o.Topology != nil {
		resp.AccessibleTopology = &csipb.Topology{Segments: d.o.Topology}
	}
	return resp, nil
}

// NodeGetCapabilities says what it can do.
func (d *Driver) NodeGetCapabilities(context.Context, *csipb.NodeGetCapabilitiesRequest) (*csipb.NodeGetCapabilitiesResponse, error) {
	resp := &csipb.NodeGetCapabilitiesResponse{}
	for _, c := range d.o.Can {
		resp.Capabilities = append(resp.Capabilities, &csipb.NodeServiceCapability{
			Type: &csipb.NodeServiceCapability_Rpc{Rpc: &csipb.NodeServiceCapability_RPC{Type: c}},
		})
	}
	return resp, nil
}

// here is a path as it is on this machine.
func (d *Driver) here(path string) string {
	if below, ok := strings.CutPrefix(path, d.o.Seen); ok && d.o.Seen != "" {
		return d.o.Root + below
	}
	return path
}

// NodeStageVolume mounts the volume at the staging path.
func (d *Driver) NodeStageVolume(_ context.Context, r *csipb.NodeStageVolumeRequest) (*csipb.NodeStageVolumeResponse, error) {
	if err := d.note(r, "Stage "+r.VolumeId); err != nil {
		return nil, err
	}
	if r.VolumeCapability.GetBlock() != nil {
		return &csipb.NodeStageVolumeResponse{}, nil
	}
	return &csipb.NodeStageVolumeResponse{}, d.mount(r.VolumeId, r.StagingTargetPath)
}

// NodeUnstageVolume unmounts it there.
func (d *Driver) NodeUnstageVolume(_ context.Context, r *csipb.NodeUnstageVolumeRequest) (*csipb.NodeUnstageVolumeResponse, error) {
	if err := d.note(r, "Unstage "+r.VolumeId); err != nil {
		return nil, err
	}
	return &csipb.NodeUnstageVolumeResponse{}, unmount(d.here(r.StagingTargetPath))
}

// NodePublishVolume mounts the volume, or a device for it that is none, at the target path.
func (d *Driver) NodePublishVolume(_ context.Context, r *csipb.NodePublishVolumeRequest) (*csipb.NodePublishVolumeResponse, error) {
	if err := d.note(r, "Publish "+r.VolumeId); err != nil {
		return nil, err
	}
	target := d.here(r.TargetPath)
	if r.VolumeCapability.GetBlock() != nil {
		device := d.Content(r.VolumeId)
		err := errors.Join(os.MkdirAll(filepath.Dir(device), 0o755), unix.Mknod(device, unix.S_IFBLK|0o600, int(unix.Mkdev(7, 0))))
		if err != nil && !errors.Is(err, fs.ErrExist) {
			return nil, status.Error(codes.Internal, err.Error())
		}
		if err := os.WriteFile(target, nil, 0o600); err != nil && !mountedAlready(target) {
			return nil, status.Error(codes.Internal, err.Error())
		}
		return &csipb.NodePublishVolumeResponse{}, bind(device, target)
	}
	if err := os.Mkdir(target, 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
		return nil, status.Error(codes.Internal, err.Error())
	}
	return &csipb.NodePublishVolumeResponse{}, d.mount(r.VolumeId, r.TargetPath)
}

// NodeUnpublishVolume unmounts it there.
func (d *Driver) NodeUnpublishVolume(_ context.Context, r *csipb.NodeUnpublishVolumeRequest) (*csipb.NodeUnpublishVolumeResponse, error) {
	if err := d.note(r, "Unpublish "+r.VolumeId); err != nil {
		return nil, err
	}
	target := d.here(r.TargetPath)
	if err := unmount(target); err != nil {
		return nil, err
	}
	if err := os.Remove(target); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, status.Error(codes.Internal, err.Error())
	}
	return &csipb.NodeUnpublishVolumeResponse{}, nil
}

// NodeExpandVolume notes that the volume is to fill the size it has now.
func (d *Driver) NodeExpandVolume(_ context.Context, r *csipb.NodeExpandVolumeRequest) (*csipb.NodeExpandVolumeResponse, error) {
	if err := d.note(r, fmt.Sprintf("Expand %s %d", r.VolumeId, r.GetCapacityRange().GetRequiredBytes())); err != nil {
		return nil, err
	}
	return &csipb.NodeExpandVolumeResponse{CapacityBytes: r.GetCapacityRange().GetRequiredBytes()}, nil
}

// NodeGetVolumeStats says what the volume holds.
func (d *Driver) NodeGetVolumeStats(_ context.Context, r *csipb.NodeGetVolumeStatsRequest) (*csipb.NodeGetVolumeStatsResponse, error) {
	if err := d.note(r, "Stats "+r.VolumeId); err != nil {
		return nil, err
	}
	return &csipb.NodeGetVolumeStatsResponse{Usage: []*csipb.VolumeUsage{
		{Unit: csipb.VolumeUsage_BYTES, Total: 1000, Used: 400, Available: 600}, {Unit: csipb.VolumeUsage_INODES, Total: 10, Used: 4, Available: 6},
	}}, nil
}

// mount mounts a volume, unless it is mounted there already.
func (d *Driver) mount(handle, told string) error {
	content := d.Content(handle)
	if err := os.MkdirAll(content, 0o777); err != nil {
		return status.Error(codes.Internal, err.Error())
	}
	return bind(content, d.here(told))
}

func bind(source, target string) error {
	from, err := os.Stat(source)
	if err != nil {
		return status.Error(codes.Internal, err.Error())
	}
	to, err := os.Stat(target)
	if err != nil {
		return status.Error(codes.Internal, err.Error())
	}
	if os.SameFile(from, to) {
		return nil
	}
	if err := unix.Mount(source, target, "", unix.MS_BIND, ""); err != nil {
		return status.Errorf(codes.Internal, "mount %s: %v", target, err)
	}
	return nil
}

// mountedAlready reports whether a device is at the target.
func mountedAlready(target string) bool {
	info, err := os.Stat(target)
	return err == nil && info.Mode()&fs.ModeDevice != 0
}

func unmount(path string) error {
	err := unix.Unmount(path, unix.UMOUNT_NOFOLLOW)
	if err != nil && !errors.Is(err, unix.EINVAL) && !errors.Is(err, unix.ENOENT) { // it is not mounted
		return status.Errorf(codes.Internal, "unmount %s: %v", path, err)
	}
	return nil
}
