package podresources

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

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	v1 "k8s.io/api/core/v1"
	"k8s.io/client-go/util/flowcontrol"
	podapi "k8s.io/kubelet/pkg/apis/podresources/v1"
	"k8s.io/kubelet/pkg/apis/podresources/v1alpha1"
	"k8s.io/utils/cpuset"

	"github.com/kemudi/kemudi/internal/api/core"
	"github.com/kemudi/kemudi/internal/kubelet/device"
	"github.com/kemudi/kemudi/internal/kubelet/dra"
	"github.com/kemudi/kemudi/internal/kubelet/memory"
	"github.com/kemudi/kemudi/internal/kubelet/pin"
	"github.com/kemudi/kemudi/internal/kubelet/plugin"
)

// Options of a Server; all are required.
type Options struct {
	Dir      string           // where the socket is
	Pods     func() []*v1.Pod // those of the node that have not ended
	Pins     *pin.Pins
	Claims   *dra.Manager
	Registry *prometheus.Registry
}

// Server tells which pods have which devices, processors and memory.
type Server struct {
	podapi.UnimplementedPodResourcesListerServer
	o       Options
	metrics *metrics
}

// New returns a server that does not listen yet.
func New(o Options) *Server { return &Server{o: o, metrics: newMetrics(o.Registry)} }

// Run serves until ctx ends. While nobody asks, it waits.
func (s *Server) Run(ctx context.Context) error {
	if err := os.MkdirAll(s.o.Dir, 0o750); err != nil {
		return fmt.Errorf("make directory of pod resources: %w", err)
	}
	path := filepath.Join(s.o.Dir, "kubelet.sock")
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("remove old socket of pod resources: %w", err)
	}
	l, err := net.Listen("unix", path)
	if err != nil {
		return fmt.Errorf("listen for questions about pod resources: %w", err)
	}
	server := grpc.NewServer(grpc.UnaryInterceptor(limited()))
	podapi.RegisterPodResourcesListerServer(server, s)
	v1alpha1.RegisterPodResourcesListerServer(server, older{s: s})
	return plugin.Serve(ctx, server, l)
}

// How often monitors may ask, all of them together, in a second and at once: as much as of a kubelet.
const (
	questions = 100
	burst     = 10
)

// limited refuses questions that come too fast.
func limited() grpc.UnaryServerInterceptor {
	left := flowcontrol.NewTokenBucketPassiveRateLimiter(questions, burst)
	return func(ctx context.Context, r any, _ *grpc.UnaryServerInfo, next grpc.UnaryHandler) (any, error) {
		if !left.TryAccept() {
			return nil, status.Error(codes.ResourceExhausted, "rejected by rate limit")
		}
		return next(ctx, r)
	}
}

// List tells of all pods that have not finished.
func (s *Server) List(context.Context, *podapi.ListPodResourcesRequest) (*podapi.ListPodResourcesResponse, error) {
	s.metrics.asked(s.metrics.list, version)
	out := &podapi.ListPodResourcesResponse{}
	for _, p := range s.pods() {
		out.PodResources = append(out.PodResources, s.resourcesOf(p))
	}
	return out, nil
}

// Get tells of one pod.
func (s *Server) Get(_ context.Context, r *podapi.GetPodResourcesRequest) (*podapi.GetPodResourcesResponse, error) {
	s.metrics.asked(s.metrics.get, version)
	for _, p := range s.pods() {
		if p.Name == r.PodName && p.Namespace == r.PodNamespace {
			return &podapi.GetPodResourcesResponse{PodResources: s.resourcesOf(p)}, nil
		}
	}
	s.metrics.failed(s.metrics.getErrors)
	return nil, fmt.Errorf("pod %s in namespace %s not found", r.PodName, r.PodNamespace)
}

// GetAllocatableResources tells which devices, processors and memory pods can have, or have.
func (s *Server) GetAllocatableResources(context.Context, *podapi.AllocatableResourcesRequest) (*podapi.AllocatableResourcesResponse, error) {
	s.metrics.asked(s.metrics.allocatable, version)
	return &podapi.AllocatableResourcesResponse{
		Devices: messages(s.o.Pins.Devices.Allocatable()), CpuIds: ids(s.o.Pins.CPUs.Allocatable()), Memory: parts(s.o.Pins.Memory.Allocatable()),
	}, nil
}

func (s *Server) pods() []*v1.Pod {
	pods := s.o.Pods()
	slices.SortFunc(pods, func(a, b *v1.Pod) int { return strings.Compare(a.Namespace+"/"+a.Name, b.Namespace+"/"+b.Name) })
	return pods
}

func (s *Server) resourcesOf(p *v1.Pod) *podapi.PodResources {
	out := &podapi.PodResources{Name: p.Name, Namespace: p.Namespace}
	add := func(c *v1.Container) {
		one := &podapi.ContainerResources{
			Name: c.Name, Devices: messages(s.o.Pins.Devices.Of(p.UID, c.Name)),
			CpuIds: ids(s.o.Pins.CPUs.Of(p.UID, c.Name)), Memory: parts(s.o.Pins.Memory.Of(p.UID, c.Name)),
		}
		for _, claim := range s.o.Claims.Of(p, c) {
			one.DynamicResources = append(one.DynamicResources, message(p.Namespace, claim))
		}
		out.Containers = append(out.Containers, one)
	}
	for i := range p.Spec.InitContainers {
		if c := &p.Spec.InitContainers[i]; core.IsSidecar(c) {
			add(c)
		}
	}
	for i := range p.Spec.Containers {
		add(&p.Spec.Containers[i])
	}
	return out
}

// ids are processors.
func ids(set cpuset.CPUSet) []int64 {
	var out []int64
	for _, id := range set.List() {
		out = append(out, int64(id))
	}
	return out
}

// parts are memory of NUMA nodes.
func parts(list []memory.Part) []*podapi.ContainerMemory {
	var out []*podapi.ContainerMemory
	for _, p := range list {
		one := &podapi.ContainerMemory{MemoryType: string(p.Kind), Size: uint64(p.Size), Topology: &podapi.TopologyInfo{}}
		for _, node := range p.Nodes {
			one.Topology.Nodes = append(one.Topology.Nodes, &podapi.NUMANode{ID: int64(node)})
		}
		out = append(out, one)
	}
	return out
}

// messages are devices, each for itself.
func messages(list []device.Device) []*podapi.ContainerDevices {
	var out []*podapi.ContainerDevices
	for _, d := range list {
		one := &podapi.ContainerDevices{ResourceName: d.Resource, DeviceIds: []string{d.ID}}
		for _, node := range d.Nodes {
			if one.Topology == nil {
				one.Topology = &podapi.TopologyInfo{}
			}
			one.Topology.Nodes = append(one.Topology.Nodes, &podapi.NUMANode{ID: node})
		}
		out = append(out, one)
	}
	return out
}

func message(namespace string, c dra.Claim) *podapi.DynamicResource {
	out := &podapi.DynamicResource{ClaimName: c.Name, ClaimNamespace: namespace}
	for _, d := range c.Devices {
		one := &podapi.ClaimResource{DriverName: d.Driver, PoolName: d.Pool, DeviceName: d.Name, ShareId: d.ShareID}
		for _, name := range d.CDI {
			one.CdiDevices = append(one.CdiDevices, &podapi.CDIDevice{Name: name})
		}
		out.ClaimResources = append(out.ClaimResources, one)
	}
	return out
}
