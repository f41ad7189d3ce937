package fakeplugin

import (
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	pluginapi "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"

	"github.com/kemudi/kemudi/test/wait"
)

// Devices is a device plugin. What is exported is to be set before it serves.
type Devices struct {
	pluginapi.UnimplementedDevicePluginServer
	Resource string
	Dir      string // of its socket
	Options  *pluginapi.DevicePluginOptions
	Prefer   []string // what it answers when it is asked what it prefers
	Library  string   // directory that its containers see as /usr/lib/device; empty: none

	t       *testing.T
	changed chan struct{}
	mu      struct {
		sync.Mutex
		devices map[string]string // health by ID
		nodes   map[string]int64  // NUMA nodes by ID of those that are at one
		calls   []string
		refuse  error         // of Allocate
		deaf    chan struct{} // Allocate answers when it is closed; nil: at once
	}
}

// NewDevices returns a plugin with these devices, all of them healthy.
func NewDevices(t *testing.T, dir, resource string, devices ...string) *Devices {
	f := &Devices{t: t, Resource: resource, Dir: dir, Options: &pluginapi.DevicePluginOptions{}, changed: make(chan struct{}, 1)}
	f.mu.devices, f.mu.nodes = map[string]string{}, map[string]int64{}
	for _, id := range devices {
		f.mu.devices[id] = pluginapi.Healthy
	}
	return f
}

// Set says how a device is; empty: it is not there any more.
func (f *Devices) Set(id, health string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.mu.devices[id] = health
	if health == "" {
		delete(f.mu.devices, id)
	}
	select {
	case f.changed <- struct{}{}:
	default: // it has been told
	}
}

// SetAt has it have a healthy device that is at a NUMA node.
func (f *Devices) SetAt(id string, node int64) {
	f.mu.Lock()
	f.mu.nodes[id] = node
	f.mu.Unlock()
	f.Set(id, pluginapi.Healthy)
}

// Count is how many devices it has.
func (f *Devices) Count() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.mu.devices)
}

// Refuse has it refuse to give devices; nil: it gives them.
func (f *Devices) Refuse(err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.mu.refuse = err
}

// Deafen has it not answer before until is closed; nil: it answers.
func (f *Devices) Deafen(until chan struct{}) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.mu.deaf = until
}

func (f *Devices) called(format string, args ...any) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.mu.calls = append(f.mu.calls, fmt.Sprintf(format, args...))
}

// Calls are what it was asked since this was last called.
func (f *Devices) Calls() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	calls := f.mu.calls
	f.mu.calls = nil
	return calls
}

// Endpoint is the name of its socket.
func (f *Devices) Endpoint() string { return strings.ReplaceAll(f.Resource, "/", "_") + ".sock" }

// Serve has it serve until stop is called, or the test ends.
func (f *Devices) Serve() (stop func()) {
	f.t.Helper()
	return serve(f.t, filepath.Join(f.Dir, f.Endpoint()), func(s *grpc.Server) { pluginapi.RegisterDevicePluginServer(s, f) })
}

// Register registers with the node at its socket, when that is there.
func (f *Devices) Register() error {
	return Register(f.t, f.Dir, pluginapi.Version, f.Endpoint(), f.Resource)
}

// Register registers a plugin as it says with the node whose socket is in dir.
func Register(t *testing.T, dir, version, endpoint, resource string) error {
	t.Helper()
	socket := filepath.Join(dir, "kubelet.sock")
	wait.Until(t, func() error {
		_, err := os.Stat(socket)
		return err
	})
	conn, err := grpc.NewClient("unix:"+socket, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	_, err = pluginapi.NewRegistrationClient(conn).Register(t.Context(), &pluginapi.RegisterRequest{Version: version, Endpoint: endpoint, ResourceName: resource}, grpc.WaitForReady(true))
	return err
}

// GetDevicePluginOptions is a call of the node.
func (f *Devices) GetDevicePluginOptions(context.Context, *pluginapi.Empty) (*pluginapi.DevicePluginOptions, error) {
	return f.Options, nil
}

// ListAndWatch is a call of the node.
func (f *Devices) ListAndWatch(_ *pluginapi.Empty, s grpc.ServerStreamingServer[pluginapi.ListAndWatchResponse]) error {
	for {
		f.mu.Lock()
		list := &pluginapi.ListAndWatchResponse{}
		for _, id := range slices.Sorted(maps.Keys(f.mu.devices)) {
			d := &pluginapi.Device{ID: id, Health: f.mu.devices[id]}
			if node, ok := f.mu.nodes[id]; ok {
				d.Topology = &pluginapi.TopologyInfo{Nodes: []*pluginapi.NUMANode{{ID: node}}}
			}
			list.Devices = append(list.Devices, d)
		}
		f.mu.Unlock()
		if err := s.Send(list); err != nil {
			return err
		}
		select {
		case <-f.changed:
		case <-s.Context().Done():
			return nil
		}
	}
}

// GetPreferredAllocation is a call of the node.
func (f *Devices) GetPreferredAllocation(_ context.Context, r *pluginapi.PreferredAllocationRequest) (*pluginapi.PreferredAllocationResponse, error) {
	one := r.ContainerRequests[0]
	f.called("prefer %d of %v with %v", one.AllocationSize, one.AvailableDeviceIDs, one.MustIncludeDeviceIDs)
	return &pluginapi.PreferredAllocationResponse{ContainerResponses: []*pluginapi.ContainerPreferredAllocationResponse{{DeviceIDs: f.Prefer}}}, nil
}

// Allocate is a call of the node.
func (f *Devices) Allocate(ctx context.Context, r *pluginapi.AllocateRequest) (*pluginapi.AllocateResponse, error) {
	ids := r.ContainerRequests[0].DevicesIds
	f.called("allocate %v", ids)
	f.mu.Lock()
	deaf, refuse := f.mu.deaf, f.mu.refuse
	f.mu.Unlock()
	if deaf != nil {
		select {
		case <-deaf:
		case <-ctx.Done():
			return nil, status.FromContextError(ctx.Err()).Err()
		}
	}
	if refuse != nil {
		return nil, refuse
	}
	answer := &pluginapi.ContainerAllocateResponse{
		Envs: map[string]string{"DEVICES": strings.Join(ids, ",")}, Annotations: map[string]string{"example.com/device": ids[0]},
	}
	if f.Library != "" {
		answer.Mounts = []*pluginapi.Mount{{ContainerPath: "/usr/lib/device", HostPath: f.Library, ReadOnly: true}}
	}
	for _, id := range ids {
		answer.Devices = append(answer.Devices, &pluginapi.DeviceSpec{ContainerPath: "/dev/" + id, HostPath: "/dev/null", Permissions: "rw"})
		answer.CdiDevices = append(answer.CdiDevices, &pluginapi.CDIDevice{Name: f.Resource + "=" + id})
	}
	return &pluginapi.AllocateResponse{ContainerResponses: []*pluginapi.ContainerAllocateResponse{answer}}, nil
}

// PreStartContainer is a call of the node.
func (f *Devices) PreStartContainer(_ context.Context, r *pluginapi.PreStartContainerRequest) (*pluginapi.PreStartContainerResponse, error) {
	f.called("start %v", r.DevicesIds)
	return &pluginapi.PreStartContainerResponse{}, nil
}
