package container

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"

	"google.golang.org/grpc"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// podsOfShim is how many pods a shim looks after at most. A shim takes 15 MiB, and
// one that dies takes its pods with it.
const podsOfShim = 16

// annotationGroup names the group of a pod, which is that of its shim.
const annotationGroup = "io.containerd.runc.v2.group"

// sharing has pods share shims (invariant I5): it names the groups of those that are started.
type sharing struct {
	own    map[string]bool // handlers whose shim is ours
	groups groups
}

func newSharing(o Options) *sharing {
	own := map[string]bool{"": true}
	for name, h := range handlerSettings(o) {
		own[name] = h.(map[string]any)["runtime_path"] == o.shim()
	}
	return &sharing{own: own, groups: groups{run: rand.Text(), of: map[string]*group{}}}
}

// around is put around each call of CRI, from this process or by the socket.
func (s *sharing) around(ctx context.Context, req any, _ *grpc.UnaryServerInfo, call grpc.UnaryHandler) (any, error) {
	switch r := req.(type) {
	case *runtimeapi.RunPodSandboxRequest:
		if s.own[r.RuntimeHandler] && r.Config != nil {
			return s.run(ctx, r, call)
		}
	case *runtimeapi.StopPodSandboxRequest:
		return s.end(ctx, r, r.PodSandboxId, call)
	case *runtimeapi.RemovePodSandboxRequest:
		return s.end(ctx, r, r.PodSandboxId, call)
	}
	return call(ctx, req)
}

func (s *sharing) run(ctx context.Context, r *runtimeapi.RunPodSandboxRequest, call grpc.UnaryHandler) (any, error) {
	if r.Config.Annotations == nil {
		r.Config.Annotations = map[string]string{}
	}
	g := s.groups.join()
	r.Config.Annotations[annotationGroup] = g.name
	res, err := call(ctx, r)
	if err != nil {
		s.groups.failed(g)
		return nil, err
	}
	s.groups.joined(g, res.(*runtimeapi.RunPodSandboxResponse).PodSandboxId)
	return res, nil
}

func (s *sharing) end(ctx context.Context, r any, sandbox string, call grpc.UnaryHandler) (any, error) {
	res, err := call(ctx, r)
	if err == nil {
		s.groups.leave(sandbox)
	}
	return res, err
}

// groups are the groups that this process has begun. Pods of an earlier one stay
// in theirs, which gets no more: its shim may be of an older version.
type groups struct {
	run string // tells this process's from those of others

	mu   sync.Mutex
	last int // number of the last one begun
	open []*group
	of   map[string]*group // by sandbox
}

// A group is the pods of a shim, also those that are being started.
type group struct {
	name    string
	pods    int
	suspect bool // the last pod did not start, which may be the shim's fault
}

// join finds room for a pod.
func (s *groups) join() *group {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, g := range s.open {
		if g.pods < podsOfShim && !g.suspect {
			g.pods++
			return g
		}
	}
	s.last++
	g := &group{name: fmt.Sprintf("%s-%d", s.run, s.last), pods: 1}
	s.open = append(s.open, g)
	return g
}

// joined notes where a sandbox is that has started.
func (s *groups) joined(g *group, sandbox string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	g.suspect = false
	s.of[sandbox] = g
}

// failed says that a pod could not be started.
func (s *groups) failed(g *group) {
	s.mu.Lock()
	defer s.mu.Unlock()
	g.suspect = true
	s.less(g)
}

// leave says that a sandbox has ended.
func (s *groups) leave(sandbox string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if g := s.of[sandbox]; g != nil {
		delete(s.of, sandbox)
		s.less(g)
	}
}

// less takes a pod from a group. One without pods is given up: its shim is about to end.
func (s *groups) less(g *group) {
	if g.pods--; g.pods == 0 {
		s.open = slices.DeleteFunc(s.open, func(other *group) bool { return other == g })
	}
}

// shimOfBundle names the shim that a container was started with, as its process
// does: after its group, or the container itself.
func shimOfBundle(o Options, id string) string {
	data, err := os.ReadFile(filepath.Join(o.bundles(), id, "config.json"))
	if err != nil {
		return id
	}
	var spec struct {
		Annotations map[string]string `json:"annotations"`
	}
	if json.Unmarshal(data, &spec) == nil && spec.Annotations[annotationGroup] != "" {
		return spec.Annotations[annotationGroup]
	}
	return id
}
