package fakecri

import (
	"context"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// Options of a runtime. The zero value works.
type Options struct {
	// PodCIDR is where pod addresses come from. Default 10.88.0.0/16.
	PodCIDR netip.Prefix
	// Program says what a container does. Default: [DefaultProgram].
	Program func(*runtimeapi.ContainerConfig) Program
	// Exec runs a command in a container. Default: every command succeeds.
	Exec func(c *runtimeapi.ContainerConfig, command []string) (stdout string, exitCode int32)
	// Hang takes the place of Exec for commands that take as long as they are let. Its error is that of the call.
	Hang func(ctx context.Context, c *runtimeapi.ContainerConfig, command []string) error
	// Pull is asked before an image is pulled. Default: every image exists and is
	// there at once.
	Pull func(ctx context.Context, image string) error
	// NetworkDown is asked whether sandboxes can have a network of their own. Default: they can.
	NetworkDown func() bool
	// RunSandbox is asked before a sandbox is made.
	RunSandbox func(*runtimeapi.PodSandboxConfig) error
	// Stop is told of each call to end a running container.
	Stop func(*runtimeapi.ContainerConfig)
	// Create is asked before a container is made.
	Create func(*runtimeapi.ContainerConfig) error
	// MergesGroups: it cannot keep the groups of the image from a container.
	MergesGroups bool
}

// Runtime is a container runtime in memory. It serves both services of CRI; the
// methods that it does not have answer Unimplemented.
type Runtime struct {
	runtimeapi.RuntimeServiceClient // those not written here
	runtimeapi.ImageServiceClient

	o  Options
	mu struct {
		sync.Mutex
		seq        int
		nextIP     netip.Addr
		images     map[string]bool
		sandboxes  map[string]*sandbox
		containers map[string]*container
		streams    map[*stream]struct{}
		calls      map[string]int
	}
}

type sandbox struct {
	config    *runtimeapi.PodSandboxConfig
	id, ip    string
	handler   string
	ready     bool
	createdAt int64
}

type container struct {
	config    *runtimeapi.ContainerConfig
	id        string
	sandbox   *sandbox
	state     runtimeapi.ContainerState
	program   Program
	created   int64
	started   int64
	finished  int64
	exitCode  int32
	reason    string
	message   string
	exit      *time.Timer   // ends the process; nil if nothing will
	exited    chan struct{} // closed when the process has ended
	resources *runtimeapi.LinuxContainerResources
}

var (
	_ runtimeapi.RuntimeServiceClient = (*Runtime)(nil)
	_ runtimeapi.ImageServiceClient   = (*Runtime)(nil)
)

// New returns an empty runtime.
func New(o Options) *Runtime {
	if !o.PodCIDR.IsValid() {
		o.PodCIDR = netip.MustParsePrefix("10.88.0.0/16")
	}
	if o.Program == nil {
		o.Program = DefaultProgram
	}
	r := &Runtime{
		RuntimeServiceClient: runtimeapi.NewRuntimeServiceClient(noConn{}),
		ImageServiceClient:   runtimeapi.NewImageServiceClient(noConn{}),
		o:                    o,
	}
	r.mu.nextIP = o.PodCIDR.Masked().Addr().Next().Next() // the first is the bridge's
	r.mu.images = map[string]bool{}
	r.mu.sandboxes = map[string]*sandbox{}
	r.mu.containers = map[string]*container{}
	r.mu.streams = map[*stream]struct{}{}
	r.mu.calls = map[string]int{}
	return r
}

// noConn answers every call that Runtime has no method for.
type noConn struct{}

func (noConn) Invoke(_ context.Context, method string, _, _ any, _ ...grpc.CallOption) error {
	return status.Errorf(codes.Unimplemented, "method %s not implemented", method)
}

func (noConn) NewStream(_ context.Context, _ *grpc.StreamDesc, method string, _ ...grpc.CallOption) (grpc.ClientStream, error) {
	return nil, status.Errorf(codes.Unimplemented, "method %s not implemented", method)
}

func (r *Runtime) idLocked(kind string) string {
	r.mu.seq++
	return fmt.Sprintf("%s%063x", kind, r.mu.seq)[:64]
}

func notFound(what, id string) error {
	return status.Errorf(codes.NotFound, "an error occurred when try to find %s %q: not found", what, id)
}

// Version says what this is.
func (r *Runtime) Version(context.Context, *runtimeapi.VersionRequest, ...grpc.CallOption) (*runtimeapi.VersionResponse, error) {
	return &runtimeapi.VersionResponse{Version: "0.1.0", RuntimeName: "fake", RuntimeVersion: "v1.0.0", RuntimeApiVersion: "v1"}, nil
}

// Status is good, but for the network if that is said.
func (r *Runtime) Status(context.Context, *runtimeapi.StatusRequest, ...grpc.CallOption) (*runtimeapi.StatusResponse, error) {
	network := &runtimeapi.RuntimeCondition{Type: runtimeapi.NetworkReady, Status: true}
	if r.networkDown() {
		network.Status, network.Reason = false, "NetworkPluginNotReady"
		network.Message = "Network plugin returns error: cni plugin not initialized"
	}
	return &runtimeapi.StatusResponse{Status: &runtimeapi.RuntimeStatus{Conditions: []*runtimeapi.RuntimeCondition{
		{Type: runtimeapi.RuntimeReady, Status: true}, network,
	}}, Features: &runtimeapi.RuntimeFeatures{SupplementalGroupsPolicy: !r.o.MergesGroups}}, nil
}

func (r *Runtime) networkDown() bool { return r.o.NetworkDown != nil && r.o.NetworkDown() }

// RunPodSandbox makes a sandbox with an address.
func (r *Runtime) RunPodSandbox(_ context.Context, in *runtimeapi.RunPodSandboxRequest, _ ...grpc.CallOption) (*runtimeapi.RunPodSandboxResponse, error) {
	if r.o.RunSandbox != nil {
		if err := r.o.RunSandbox(in.Config); err != nil {
			return nil, err
		}
	}
	ofHost := in.Config.GetLinux().GetSecurityContext().GetNamespaceOptions().GetNetwork() == runtimeapi.NamespaceMode_NODE
	if !ofHost && r.networkDown() {
		return nil, status.Error(codes.Unknown, "failed to setup network for sandbox: cni plugin not initialized")
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	s := &sandbox{config: in.Config, handler: in.RuntimeHandler, id: r.idLocked("5"), ready: true, createdAt: time.Now().UnixNano()}
	if !ofHost {
		s.ip = r.addressLocked()
	}
	r.mu.sandboxes[s.id] = s
	r.mu.calls["RunPodSandbox"]++
	r.tellLocked(s, s.id, runtimeapi.ContainerEventType_CONTAINER_STARTED_EVENT)
	return &runtimeapi.RunPodSandboxResponse{PodSandboxId: s.id}, nil
}

// addressLocked returns the next free address; after the last comes the first.
func (r *Runtime) addressLocked() string {
	used := map[string]bool{}
	for _, s := range r.mu.sandboxes {
		used[s.ip] = true
	}
	for {
		ip := r.mu.nextIP
		r.mu.nextIP = ip.Next()
		if !r.o.PodCIDR.Contains(ip) {
			r.mu.nextIP = r.o.PodCIDR.Masked().Addr().Next().Next()
			continue
		}
		if !used[ip.String()] {
			return ip.String()
		}
	}
}

// StopPodSandbox kills what runs in the sandbox and takes its address.
func (r *Runtime) StopPodSandbox(_ context.Context, in *runtimeapi.StopPodSandboxRequest, _ ...grpc.CallOption) (*runtimeapi.StopPodSandboxResponse, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	s := r.mu.sandboxes[in.PodSandboxId]
	if s == nil {
		return &runtimeapi.StopPodSandboxResponse{}, nil
	}
	for _, c := range r.mu.containers {
		if c.sandbox == s && c.state == runtimeapi.ContainerState_CONTAINER_RUNNING {
			r.endLocked(c, 137, "Error")
		}
	}
	s.ip = ""
	r.mu.calls["StopPodSandbox"]++
	if s.ready {
		s.ready = false
		r.tellLocked(s, s.id, runtimeapi.ContainerEventType_CONTAINER_STOPPED_EVENT)
	}
	return &runtimeapi.StopPodSandboxResponse{}, nil
}

// RemovePodSandbox forgets the sandbox and its containers.
func (r *Runtime) RemovePodSandbox(ctx context.Context, in *runtimeapi.RemovePodSandboxRequest, _ ...grpc.CallOption) (*runtimeapi.RemovePodSandboxResponse, error) {
	if _, err := r.StopPodSandbox(ctx, &runtimeapi.StopPodSandboxRequest{PodSandboxId: in.PodSandboxId}); err != nil {
		return nil, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	s := r.mu.sandboxes[in.PodSandboxId]
	if s == nil {
		return &runtimeapi.RemovePodSandboxResponse{}, nil
	}
	maps.DeleteFunc(r.mu.containers, func(_ string, c *container) bool { return c.sandbox == s })
	delete(r.mu.sandboxes, s.id)
	r.mu.calls["RemovePodSandbox"]++
	r.tellLocked(s, s.id, runtimeapi.ContainerEventType_CONTAINER_DELETED_EVENT)
	return &runtimeapi.RemovePodSandboxResponse{}, nil
}

func (s *sandbox) status() *runtimeapi.PodSandboxStatus {
	state := runtimeapi.PodSandboxState_SANDBOX_NOTREADY
	if s.ready {
		state = runtimeapi.PodSandboxState_SANDBOX_READY
	}
	return &runtimeapi.PodSandboxStatus{
		Id: s.id, Metadata: s.config.Metadata, State: state, CreatedAt: s.createdAt, RuntimeHandler: s.handler,
		Network: &runtimeapi.PodSandboxNetworkStatus{Ip: s.ip}, Labels: s.config.Labels, Annotations: s.config.Annotations,
	}
}

// PodSandboxStatus describes one sandbox.
func (r *Runtime) PodSandboxStatus(_ context.Context, in *runtimeapi.PodSandboxStatusRequest, _ ...grpc.CallOption) (*runtimeapi.PodSandboxStatusResponse, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	s := r.mu.sandboxes[in.PodSandboxId]
	if s == nil {
		return nil, notFound("sandbox", in.PodSandboxId)
	}
	return &runtimeapi.PodSandboxStatusResponse{Status: s.status()}, nil
}

// ListPodSandbox lists by labels.
func (r *Runtime) ListPodSandbox(_ context.Context, in *runtimeapi.ListPodSandboxRequest, _ ...grpc.CallOption) (*runtimeapi.ListPodSandboxResponse, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	out := &runtimeapi.ListPodSandboxResponse{}
	for _, id := range slices.Sorted(maps.Keys(r.mu.sandboxes)) {
		s := r.mu.sandboxes[id]
		if st := s.status(); matches(in.GetFilter().GetLabelSelector(), st.Labels) {
			out.Items = append(out.Items, &runtimeapi.PodSandbox{
				Id: st.Id, Metadata: st.Metadata, State: st.State, CreatedAt: st.CreatedAt, Labels: st.Labels, Annotations: st.Annotations,
			})
		}
	}
	return out, nil
}

func matches(selector, labels map[string]string) bool {
	for k, v := range selector {
		if labels[k] != v {
			return false
		}
	}
	return true
}
