// Package podsapi tells programs on the node of its pods, as its agent knows them: the Pods API of a kubelet (KEP-4188), at
// a socket that only root reaches. It needs no API server. What each pod is like at a moment is package pod's business.
package podsapi

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/types"
	podsapi "k8s.io/kubelet/pkg/apis/pods/v1alpha1"

	"github.com/kemudi/kemudi/internal/kubelet/plugin"
	"github.com/kemudi/kemudi/internal/kubelet/pod"
)

// Server tells of the pods of a node.
type Server struct {
	podsapi.UnimplementedPodsServer
	Dir string   // where the socket is
	Set *pod.Set // has the pods
}

// Run serves until ctx ends. While nobody asks, it waits.
func (s *Server) Run(ctx context.Context) error {
	if err := os.MkdirAll(s.Dir, 0o750); err != nil {
		return fmt.Errorf("make directory of the Pods API: %w", err)
	}
	path := filepath.Join(s.Dir, "pods-api.sock")
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("remove old socket of the Pods API: %w", err)
	}
	l, err := net.Listen("unix", path)
	if err != nil {
		return fmt.Errorf("listen for questions about pods: %w", err)
	}
	server := grpc.NewServer()
	podsapi.RegisterPodsServer(server, s)
	return plugin.Serve(ctx, server, l)
}

// ListPods tells of all pods.
func (s *Server) ListPods(context.Context, *podsapi.ListPodsRequest) (*podsapi.ListPodsResponse, error) {
	out := &podsapi.ListPodsResponse{}
	for _, p := range sorted(s.Set.Known()) {
		data, err := encode(p)
		if err != nil {
			return nil, err
		}
		out.Pods = append(out.Pods, data)
	}
	return out, nil
}

// GetPod tells of one pod.
func (s *Server) GetPod(_ context.Context, r *podsapi.GetPodRequest) (*podsapi.GetPodResponse, error) {
	if r.PodUID == "" {
		return nil, status.Error(codes.InvalidArgument, "podUID must be set")
	}
	for _, p := range s.Set.Known() {
		if p.UID == types.UID(r.PodUID) {
			data, err := encode(p)
			if err != nil {
				return nil, err
			}
			return &podsapi.GetPodResponse{Pod: data}, nil
		}
	}
	return nil, status.Errorf(codes.NotFound, "pod with UID %q not found", r.PodUID)
}

// WatchPods tells of all pods that there are, and then of what becomes of them. Of a pod that changes faster than is
// read, only the newest state is told.
func (s *Server) WatchPods(_ *podsapi.WatchPodsRequest, out grpc.ServerStreamingServer[podsapi.WatchPodsEvent]) error {
	n := &news{there: make(chan struct{}, 1), pods: map[types.UID]pod.Told{}}
	defer s.Set.Follow(n.add)()
	known := map[types.UID]*v1.Pod{}
	for first := true; ; first = false {
		for _, told := range n.take() {
			if err := tell(out, known, told); err != nil {
				return err
			}
		}
		if first {
			if err := out.Send(&podsapi.WatchPodsEvent{Type: podsapi.EventType_INITIAL_SYNC_COMPLETE}); err != nil {
				return err
			}
		}
		select {
		case <-n.there:
		case <-out.Context().Done():
			return status.FromContextError(out.Context().Err()).Err()
		}
	}
}

// tell sends what is new of a pod, if anything is.
func tell(out grpc.ServerStreamingServer[podsapi.WatchPodsEvent], known map[types.UID]*v1.Pod, told pod.Told) error {
	uid, kind := told.Pod.UID, podsapi.EventType_MODIFIED
	before := known[uid]
	switch {
	case told.Gone && before == nil || !told.Gone && before != nil && equality.Semantic.DeepEqual(before, told.Pod):
		return nil
	case told.Gone:
		kind = podsapi.EventType_DELETED
		delete(known, uid)
	case before == nil:
		kind = podsapi.EventType_ADDED
		known[uid] = told.Pod
	default:
		known[uid] = told.Pod
	}
	data, err := encode(told.Pod)
	if err != nil {
		return err
	}
	return out.Send(&podsapi.WatchPodsEvent{Type: kind, Pod: data})
}

func encode(p *v1.Pod) ([]byte, error) {
	data, err := p.Marshal()
	if err != nil {
		return nil, status.Errorf(codes.Internal, "encode pod %s/%s: %v", p.Namespace, p.Name, err)
	}
	return data, nil
}

func sorted(list []*v1.Pod) []*v1.Pod {
	slices.SortFunc(list, func(a, b *v1.Pod) int { return strings.Compare(a.Namespace+"/"+a.Name, b.Namespace+"/"+b.Name) })
	return list
}

// news is what a watch has not been told yet, of each pod the newest.
type news struct {
	there chan struct{} // holds a token while there may be something
	mu    sync.Mutex
	pods  map[types.UID]pod.Told
}

func (n *news) add(t pod.Told) {
	n.mu.Lock()
	n.pods[t.Pod.UID] = t
	n.mu.Unlock()
	select {
	case n.there <- struct{}{}:
	default:
	}
}

func (n *news) take() []pod.Told {
	n.mu.Lock()
	defer n.mu.Unlock()
	list := slices.Collect(maps.Values(n.pods))
	clear(n.pods)
	slices.SortFunc(list, func(a, b pod.Told) int {
		return strings.Compare(a.Pod.Namespace+"/"+a.Pod.Name, b.Pod.Namespace+"/"+b.Pod.Name)
	})
	return list
}
