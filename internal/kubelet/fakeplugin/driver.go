package fakeplugin

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/status"
	healthpb "k8s.io/kubelet/pkg/apis/dra-health/v1"
	healthalpha "k8s.io/kubelet/pkg/apis/dra-health/v1alpha1"
	drapb "k8s.io/kubelet/pkg/apis/dra/v1"
	drabeta "k8s.io/kubelet/pkg/apis/dra/v1beta1"
	registerapi "k8s.io/kubelet/pkg/apis/pluginregistration/v1"

	"github.com/kemudi/kemudi/test/wait"
)

// Driver is a driver of resource claims. It gives each claim a device for a request one, another
// for a request two, and one for all of it.
type Driver struct {
	drapb.UnimplementedDRAPluginServer
	registerapi.UnimplementedRegistrationServer
	healthpb.UnimplementedDRAResourceHealthServer
	Name, Socket string
	Versions     []string // that it registers with
	Stop         func()
	reports      chan *healthpb.DeviceHealth
	mu           struct {
		sync.Mutex
		calls  []string
		answer func(*drapb.NodePrepareResourcesResponse) // changes what it answers; nil: nothing
		refuse error
		deaf   bool
	}
}

// Calls are what it was asked since this was last called.
func (f *Driver) Calls() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	calls := f.mu.calls
	f.mu.calls = nil
	return calls
}

// Set changes how it answers: by answer what it answers, by refuse that it fails, or not at all.
func (f *Driver) Set(answer func(*drapb.NodePrepareResourcesResponse), refuse error, deaf bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.mu.answer, f.mu.refuse, f.mu.deaf = answer, refuse, deaf
}

// NodePrepareResources is a call of the node.
func (f *Driver) NodePrepareResources(ctx context.Context, r *drapb.NodePrepareResourcesRequest) (*drapb.NodePrepareResourcesResponse, error) {
	f.mu.Lock()
	f.mu.calls = append(f.mu.calls, "prepare "+names(r.Claims))
	answer, refuse, deaf := f.mu.answer, f.mu.refuse, f.mu.deaf
	f.mu.Unlock()
	if deaf {
		<-ctx.Done()
		return nil, status.FromContextError(ctx.Err()).Err()
	}
	out := &drapb.NodePrepareResourcesResponse{Claims: map[string]*drapb.NodePrepareResourceResponse{}}
	for _, c := range r.Claims {
		out.Claims[c.Uid] = &drapb.NodePrepareResourceResponse{Devices: []*drapb.Device{
			{RequestNames: []string{"one"}, PoolName: "n1", DeviceName: c.Name + "-1", CdiDeviceIds: []string{"example.com/gpu=" + c.Name + "-1"}},
			{RequestNames: []string{"two"}, PoolName: "n1", DeviceName: c.Name + "-2", CdiDeviceIds: []string{"example.com/gpu=" + c.Name + "-2"}},
			{PoolName: "n1", DeviceName: "all", CdiDeviceIds: []string{"example.com/all=" + c.Name}},
		}}
	}
	if answer != nil {
		answer(out)
	}
	return out, refuse
}

// NodeUnprepareResources is a call of the node.
func (f *Driver) NodeUnprepareResources(_ context.Context, r *drapb.NodeUnprepareResourcesRequest) (*drapb.NodeUnprepareResourcesResponse, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.mu.calls = append(f.mu.calls, "unprepare "+names(r.Claims))
	out := &drapb.NodeUnprepareResourcesResponse{Claims: map[string]*drapb.NodeUnprepareResourceResponse{}}
	for _, c := range r.Claims {
		out.Claims[c.Uid] = &drapb.NodeUnprepareResourceResponse{}
	}
	return out, f.mu.refuse
}

func names(claims []*drapb.Claim) string {
	var out []string
	for _, c := range claims {
		out = append(out, c.Namespace+"/"+c.Name)
	}
	slices.Sort(out)
	return strings.Join(out, " ")
}

// Report tells of a device of a pool n1 to who watches: that something is the matter with it, or not (empty), and
// for how many seconds that is to be believed; 0: it does not say.
func (f *Driver) Report(device, trouble string, seconds int64) {
	h := &healthpb.DeviceHealth{Device: &healthpb.DeviceIdentifier{PoolName: "n1", DeviceName: device}, Health: healthpb.HealthStatus_HEALTHY, Message: trouble, HealthCheckTimeoutSeconds: seconds}
	if trouble != "" {
		h.Health = healthpb.HealthStatus_UNHEALTHY
	}
	f.reports <- h
}

// NodeWatchResources is a call of the node.
func (f *Driver) NodeWatchResources(_ *healthpb.NodeWatchResourcesRequest, s grpc.ServerStreamingServer[healthpb.NodeWatchResourcesResponse]) error {
	for {
		select {
		case h := <-f.reports:
			if err := s.Send(&healthpb.NodeWatchResourcesResponse{Devices: []*healthpb.DeviceHealth{h}}); err != nil {
				return err
			}
		case <-s.Context().Done():
			return nil
		}
	}
}

// NewDriver runs a driver at a socket, by the newest service.
func NewDriver(t *testing.T, name, socket string) *Driver {
	t.Helper()
	f := &Driver{Name: name, Socket: socket, Versions: []string{drapb.DRAPluginService}, reports: make(chan *healthpb.DeviceHealth)}
	f.Stop = serve(t, socket, func(s *grpc.Server) {
		drapb.RegisterDRAPluginServer(s, f)
		healthpb.RegisterDRAResourceHealthServer(s, f)
		healthalpha.RegisterDRAResourceHealthServer(s, healthpb.V1ServerWrapper{Server: f})
	})
	return f
}

// NewBetaDriver runs a driver that has but the service of the version before.
func NewBetaDriver(t *testing.T, name, socket string) *Driver {
	t.Helper()
	f := &Driver{Name: name, Socket: socket, Versions: []string{drabeta.DRAPluginService}}
	f.Stop = serve(t, socket, func(s *grpc.Server) { drabeta.RegisterDRAPluginServer(s, drabeta.V1ServerWrapper{DRAPluginServer: f}) })
	return f
}

// Show has it show itself in the node's registry of plugins, when that is there, until stop is called.
func (f *Driver) Show(t *testing.T, dir string) (stop func()) {
	t.Helper()
	wait.Until(t, func() error {
		_, err := os.Stat(dir)
		return err
	})
	return serve(t, filepath.Join(dir, f.Name+"-reg.sock"), func(s *grpc.Server) { registerapi.RegisterRegistrationServer(s, f) })
}

// GetInfo is a call of the node.
func (f *Driver) GetInfo(context.Context, *registerapi.InfoRequest) (*registerapi.PluginInfo, error) {
	return &registerapi.PluginInfo{Type: registerapi.DRAPlugin, Name: f.Name, Endpoint: f.Socket, SupportedVersions: f.Versions}, nil
}

// NotifyRegistrationStatus is a call of the node.
func (f *Driver) NotifyRegistrationStatus(context.Context, *registerapi.RegistrationStatus) (*registerapi.RegistrationStatusResponse, error) {
	return &registerapi.RegistrationStatusResponse{}, nil
}
