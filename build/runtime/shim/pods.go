package main

import (
	"cmp"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	taskapi "github.com/containerd/containerd/api/runtime/task/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// pods are the pods of one shim. Each has a task service of its own: containerd's
// deals with the ends of containers one after the other, and waits for the runc
// that is at work on one of them. One that hangs must not hold up other pods.
type pods struct {
	service func() (taskapi.TTRPCTaskService, error)
	end     func() // ends the process

	mu    sync.Mutex
	of    map[string]*pod // by container
	all   []*pod          // at least one
	timer *time.Timer     // ends the process, unless a container comes
	ended bool
}

// A pod is a task service and the pod whose containers it has. It goes to another
// pod when it has none any more, as it cannot be ended alone.
type pod struct {
	taskapi.TTRPCTaskService
	sandbox    string
	containers int
}

// begin makes one that has no pod yet.
func (p *pods) begin() (*pod, error) {
	service, err := p.service()
	if err != nil {
		return nil, err
	}
	made := &pod{TTRPCTaskService: service}
	p.all = append(p.all, made)
	return made, nil
}

// serving is the service that has a container. Of one that nobody has, any says that it is not here.
func (p *pods) serving(id string) taskapi.TTRPCTaskService {
	p.mu.Lock()
	defer p.mu.Unlock()
	if pod := p.of[id]; pod != nil {
		return pod
	}
	return p.all[0]
}

// add notes a container that is to be created, and returns the service of its pod.
func (p *pods) add(id, bundle string) (taskapi.TTRPCTaskService, error) {
	sandbox, err := sandboxOf(id, bundle)
	if err != nil {
		return nil, err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case p.ended:
		return nil, status.Error(codes.Unavailable, "the shim is ending")
	case p.of[id] != nil:
		return nil, status.Errorf(codes.AlreadyExists, "container %s is there already", id)
	}
	pod, err := p.pod(sandbox)
	if err != nil {
		return nil, err
	}
	if p.timer != nil {
		p.timer.Stop()
		p.timer = nil
	}
	p.of[id] = pod
	pod.containers++
	return pod, nil
}

// pod returns the one that a sandbox has, or gives it one.
func (p *pods) pod(sandbox string) (*pod, error) {
	var idle *pod
	for _, pod := range p.all {
		switch {
		case pod.containers == 0:
			idle = pod
		case pod.sandbox == sandbox:
			return pod, nil
		}
	}
	if idle == nil {
		var err error
		if idle, err = p.begin(); err != nil {
			return nil, err
		}
	}
	idle.sandbox = sandbox
	return idle, nil
}

// remove forgets a container.
func (p *pods) remove(id string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if pod := p.of[id]; pod != nil {
		pod.containers--
		delete(p.of, id)
	}
}

// lingering is how long a shim stays after its last container, for a pod that has
// been told that it is there but has not come yet.
const lingering = 3 * time.Second

// endSoon ends the process if there is no container, nor comes one soon.
func (p *pods) endSoon() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.of) == 0 && p.timer == nil {
		p.timer = time.AfterFunc(lingering, p.endIdle)
	}
}

func (p *pods) endIdle() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.of) > 0 || p.ended {
		return
	}
	p.ended = true
	p.end()
}

// sandboxOf is the sandbox that a container belongs to: itself, if its bundle names none.
func sandboxOf(id, bundle string) (string, error) {
	data, err := os.ReadFile(filepath.Join(bundle, "sandbox"))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return "", err
	}
	return cmp.Or(strings.TrimSpace(string(data)), id), nil
}
