package server

import (
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"time"

	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// CheckpointDir is the directory of checkpoints below an agent's root directory.
const CheckpointDir = "checkpoints"

// serveCheckpoint has the runtime write the state of a running container to a file (KEP-2008).
func (s *Server) serveCheckpoint(w http.ResponseWriter, r *http.Request) {
	f, err := s.find(r.Context(), r)
	if err != nil {
		fail(w, err)
		return
	}
	name := r.PathValue("container")
	if named := func(c v1.Container) bool { return c.Name == name }; !slices.ContainsFunc(f.Pod.Spec.Containers, named) && !slices.ContainsFunc(f.Pod.Spec.InitContainers, named) {
		failWith(w, http.StatusNotFound, fmt.Errorf("container %v does not exist", name))
		return
	}
	timeout := int64(0) // the runtime's own
	if list := r.URL.Query()["timeout"]; len(list) > 0 {
		if timeout, err = strconv.ParseInt(list[len(list)-1], 10, 64); err != nil {
			failWith(w, http.StatusNotFound, errors.New("cannot parse value of timeout parameter"))
			return
		}
	}
	file, err := s.checkpoint(r, f, timeout)
	if err != nil {
		fail(w, fmt.Errorf("checkpointing of %v/%v/%v failed (%w)", f.Pod.Namespace, f.Pod.Name, name, err))
		return
	}
	writeJSON(w, map[string][]string{"items": {file}})
}

// checkpoint returns the file that it has been written to.
func (s *Server) checkpoint(r *http.Request, f found, timeout int64) (string, error) {
	name := r.PathValue("container")
	id, ok := f.running(name)
	if !ok {
		return "", fmt.Errorf("container %v not found", name)
	}
	if err := os.MkdirAll(s.o.CheckpointDir, 0o700); err != nil {
		return "", fmt.Errorf("make directory of checkpoints: %w", err)
	}
	file := filepath.Join(s.o.CheckpointDir, fmt.Sprintf("checkpoint-%s_%s-%s-%s.tar", f.Pod.Name, f.Pod.Namespace, name, time.Now().Format(time.RFC3339)))
	_, err := s.runtime.CheckpointContainer(r.Context(), &runtimeapi.CheckpointContainerRequest{ContainerId: id, Location: file, Timeout: timeout})
	return file, err
}
